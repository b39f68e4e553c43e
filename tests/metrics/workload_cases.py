"""Workloads in the situations that matter, as the views that a recommender would have of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from infscale.metrics.workload import Counts, WorkloadView
from infscale.metrics.workload_collector import WorkloadCollector
from infscale.metrics.workload_counters import WorkloadCounters

NOW_S = 1_760_000_000.0

HELD = WorkloadView(
    namespace="inference",
    name="llama",
    recommended=3,
    hpa_recommended=3,
    measured=71.0,
    filled=71.0,
    target=24.0,
    replicas=Counts(spec=3, ready=3, serving=3, starting=0, silent=0, draining=0),
    reason="tolerance",
    coverage=1.0,
    evaluated_at_s=NOW_S,
    steps=("queue: 71 over 3 x 24: 0.986, within the tolerance",),
)

VIEWS = {
    "typical": HELD,
    "not-evaluated": WorkloadView("inference", "llama"),
    "no-spec": replace(
        HELD,
        recommended=None,
        hpa_recommended=None,
        replicas=Counts(serving=3, starting=0, silent=0, draining=0),
        reason="error",
        message="the replica count was not read: give --spec-replicas",
    ),
    "zero": replace(
        HELD,
        recommended=0,
        hpa_recommended=0,
        measured=None,
        filled=None,
        replicas=Counts(0, 0, 0, 0, 0, 0),
        reason="metric",
        steps=("0: nothing is held",),
    ),
    "zero-held": replace(
        HELD,
        recommended=1,
        hpa_recommended=1,
        measured=5.0,
        filled=5.0,
        held=5.0,
        replicas=Counts(0, 0, 0, 0, 0, 0),
        reason="activate_from_zero",
        steps=("queue: 5 over 24: 1",),
    ),
    "zero-activator-silent": replace(
        HELD,
        recommended=0,
        hpa_recommended=0,
        measured=None,
        filled=None,
        held=None,
        replicas=Counts(0, 0, 0, 0, 0, 0),
        reason="no_samples",
        message="the activator did not answer",
    ),
    "all-silent": replace(
        HELD,
        measured=None,
        filled=72.0,
        replicas=Counts(spec=3, ready=3, serving=0, starting=0, silent=3, draining=0),
        silent_names=("llama-a", "llama-b", "llama-c"),
        reason="no_samples",
        coverage=0.0,
        steps=("3: no replica gave a value",),
    ),
    "up": replace(
        HELD,
        recommended=5,
        hpa_recommended=6,
        measured=133.0,
        filled=133.0,
        reason="rate_limited",
        steps=("queue: 133 over 24: 6", "limit: 5, at most 2 a minute"),
    ),
    "held-by-coverage": replace(
        HELD,
        measured=3.0,
        filled=51.0,
        replicas=Counts(spec=3, ready=1, serving=1, starting=1, silent=2, draining=1),
        silent_names=("llama-b", "llama-c"),
        reason="partial_samples",
        coverage=1 / 3,
        steps=("queue: 51 over 24: 3", "coverage: 1 of 3 is below 50 %"),
    ),
    "lookahead": replace(
        HELD,
        recommended=4,
        measured=71.5,
        filled=71.5,
        reason="lookahead",
        lookahead_demand=92.25,
        steps=("queue: 71.5, in 90 s 92.25, over 24: 4",),
    ),
}
"""Each situation, by the name of its golden file."""


@dataclass(frozen=True)
class WorkloadCase:
    """A view, and what was counted before it."""

    view: WorkloadView
    counters: WorkloadCounters

    def collector(self) -> WorkloadCollector:
        """The collector that such a recommender has."""
        return WorkloadCollector(lambda: self.view, self.counters)


def case(name: str) -> WorkloadCase:
    """A situation after an evaluation 15 s before it that decided the same, with two cold starts and a lost state."""
    view, counters = VIEWS[name], WorkloadCounters()
    if view.evaluated_at_s is not None:
        counters.evaluated(replace(view, evaluated_at_s=view.evaluated_at_s - 15), cold_starts_s=(41.5, 95.0))
        counters.evaluated(view)
        counters.state_reset()
    return WorkloadCase(view, counters)


CASES = {name: case(name) for name in VIEWS}
