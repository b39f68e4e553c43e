"""One policy on all cases of a search, given up as soon as another is as good at less for certain.

Misses and replica-minutes only ever grow in a run. So once both have reached those of a policy that was tried before,
nothing can make this one better than that one, and the rest of it need not be run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from infscale_sim.cluster import Cluster
from infscale_sim.knee import knee_tokens_per_s
from infscale_sim.metrics import missed
from infscale_sim.policies import scaler_of
from infscale_sim.tune.cases import Case

_LOOKS = 64
"""How often in a run it is asked whether to go on."""
_SAME_S = 1e-6


class Cost(NamedTuple):
    """What a policy costs over all cases: replica-minutes and misses."""

    replica_minutes: float
    misses: int


class Stopped(Exception):
    """A run was given up."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The costs that a trial has to beat.

    Attributes:
        frontier: rising in replica-minutes, falling in misses.
    """

    frontier: Sequence[Cost] = ()

    def exclude(self, least: Cost) -> bool:
        """Whether a policy that costs at least that much is no better than one of them."""
        index = bisect_right(self.frontier, least.replica_minutes, key=lambda cost: cost.replica_minutes)
        return index > 0 and self.frontier[index - 1].misses <= least.misses


def try_policy(
    cases: Sequence[Case], text: str, limits: Limits, is_over: Callable[[], bool] = lambda: False
) -> Cost | None:
    """Run a policy on every case.

    Args:
        cases: what to run.
        text: the policy.
        limits: what it has to beat.
        is_over: asked now and then; True gives up.

    Returns:
        Its cost over all cases; None where it was given up.
    """
    total = Cost(0.0, 0)
    try:
        for case in cases:
            cost = _run(case, text, _Watch(case, limits, total, is_over))
            total = Cost(total.replica_minutes + cost.replica_minutes, total.misses + cost.misses)
    except Stopped:
        return None
    return total


def cost_of(case: Case, text: str) -> Cost:
    """One policy on one case, to the end."""
    return _run(case, text, None)


def _run(case: Case, text: str, watch: _Watch | None) -> Cost:
    scenario, requests = case.scenario, case.requests
    knee = partial(knee_tokens_per_s, scenario.hardware, requests) if scenario.knee_known else None
    cluster = Cluster(scenario, requests, scaler_of(text, scenario.defaults, knee))
    if watch is not None:
        watch.cluster = cluster
        cluster.progress = watch
    run = cluster.run()
    return Cost(run.replica_minutes, sum(missed(requests, run, scenario.slo)))


class _Watch:
    """What a run calls when its scaler looks: counts what is certain by now, and gives up where that is too much.

    At a look the replicas are as the look before left them, so that one is the instant of which all is known.
    """

    def __init__(self, case: Case, limits: Limits, before: Cost, is_over: Callable[[], bool]) -> None:
        self.case, self.limits, self.before, self.is_over = case, limits, before, is_over
        self.cluster: Cluster | None = None
        self.known_s = 0.0
        self.next_share = 1 / _LOOKS
        self.judged = self.misses = 0

    def __call__(self, share: float) -> None:
        """A look at that share of the horizon.

        Raises:
            Stopped: the rest need not be run.
        """
        if share >= self.next_share:
            self.next_share = share + 1 / _LOOKS
            if self.is_over() or self.limits.exclude(self._least()):
                raise Stopped
        self.known_s = share * self.case.scenario.horizon_s - _SAME_S

    def _least(self) -> Cost:
        """What the trial costs at least."""
        assert self.cluster is not None  # noqa: S101 - for mypy
        ttft_s, first_s, arrival_s = self.case.scenario.slo.ttft_s, self.cluster.book.first_s, self.cluster.arrival_s
        while self.judged < len(arrival_s) and arrival_s[self.judged] + ttft_s < self.known_s:
            self.misses += first_s[self.judged] - arrival_s[self.judged] > ttft_s + _SAME_S
            self.judged += 1
        spans = self.cluster.spans.values()
        seconds = sum(max(0.0, min(self.known_s, span.ended_s) - span.created_s) for span in spans)
        return Cost(self.before.replica_minutes + seconds / 60, self.before.misses + self.misses)
