"""One workload evaluated again and again: look, decide, remember, publish. The sidecar and the recommender run one.

Everything that it does not do itself comes from outside: the source looks, the core decides, the applier scales.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from infscale.asked import Asked, settled
from infscale.core.layer import decide
from infscale.core.memory import ScaleState
from infscale.core.replicas import Fleet, Held, Phase
from infscale.core.scale_decision import ScaleDecision
from infscale.core.scaling import MetricName, ScalePolicy
from infscale.core.signals import hpa_policy
from infscale.errors import InfscaleError, StateError
from infscale.fleet.source import Source
from infscale.metrics.workload import Counts, WorkloadView
from infscale.metrics.workload_counters import WorkloadCounters
from infscale.recommender_answers import MAX_AGE_S, History
from infscale.state_file import recover_state, write_state

log = logging.getLogger(__name__)

INTERVAL_S = 15.0
"""The HPA's own sync period (`--horizontal-pod-autoscaler-sync-period`)."""

MISSED = 4
"""Evaluations that may be missed before the last one is too old to act upon, and a longer pause is a gap."""

_REQUESTS = (MetricName.QUEUE, MetricName.WAITING, MetricName.RUNNING)


class Applier(Protocol):
    """Scales a workload to what was decided."""

    def apply(self, decision: ScaleDecision, now_s: float) -> str:
        """Scale, if that is to be done; returns why not, or what else is to be known, in one line, or nothing."""
        ...

    def stop(self) -> None:
        """Nothing is applied any more: another may take over at once."""
        ...


class Evaluator:
    """Evaluates one workload on a thread of its own, every `interval_s`.

    Attributes:
        policy: what is asked for; another one counts from the next evaluation on, and what is remembered stays, as over
            a restart.

    Args:
        source: where the replicas are.
        policy: what is asked for.
        held: the activator's held requests; None where there is no activator.
        state_path: where the state is kept; None: only in memory.
        applier: scales; None: dry run.
        interval_s: from the start of one evaluation to the start of the next.
        why_not: asked before each evaluation: why it is not this process' turn, in one line; empty if it is.
        wall_clock: Unix seconds.

    Raises:
        StateError: no state can be kept at `state_path`.
    """

    def __init__(
        self,
        source: Source,
        policy: ScalePolicy,
        *,
        held: Callable[[], Held] | None = None,
        state_path: Path | None = None,
        applier: Applier | None = None,
        interval_s: float = INTERVAL_S,
        why_not: Callable[[], str] = lambda: "",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.counters = WorkloadCounters()
        self.history = History()
        self.max_age_s = max(MAX_AGE_S, MISSED * interval_s)
        self._source, self._held = source, held
        self._policy = self.policy = policy
        self._state_path, self._applier = state_path, applier
        self._interval_s, self._why_not, self._wall_clock = interval_s, why_not, wall_clock
        self._view = self._empty_view()
        self._asked: Asked | None = None
        self._said = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._state = self._first_state()

    def view(self) -> WorkloadView:
        """The workload as last evaluated; one that is not evaluated here has its name, and a message that says why."""
        return self._view

    def evaluate(self) -> WorkloadView:
        """One evaluation, now.

        What cannot be read is no error: the view says so. The state is kept before anything is applied, so that a
        change that a crash interrupts counts as made.
        """
        now_s = self._wall_clock()
        self._policy = self.policy  # one policy for the whole of an evaluation
        fleet = self._source.observe(now_s)
        if self._held is not None:
            fleet = replace(fleet, held=self._held())
        before = self._remembered(fleet)
        decision, self._state = decide(self._policy, fleet, before)
        messages = [fleet.failure or decision.note, self._keep()]
        if decision.desired is not None and decision.current is not None:
            if decision.desired != decision.current:
                self._asked = Asked(before.hpa, now_s, decision.current, decision.desired)
            if self._applier is not None:
                messages.append(self._applier.apply(replace(decision, replicas=fleet.replicas), now_s))
        self._view = view_of(self._source, self._policy, fleet, decision, "; ".join(filter(None, messages)))
        self.counters.evaluated(self._view, decision.cold_starts_s)
        self.history.add(self._view)
        self._log(self._view)
        return self._view

    def turn(self) -> None:
        """One evaluation, if it is ours to make. Never raises: a failed one is shown, and its time stands still."""
        try:
            why_not = self._why_not()
            if why_not:
                self._view = replace(self._empty_view(), message=why_not)
            else:
                self.evaluate()
        except InfscaleError as error:
            log.warning("evaluation failed", extra={"reason": str(error)})
            self._view = replace(self._view, reason="error", message=f"the evaluation failed: {error}")
        except Exception as error:
            log.exception("evaluation failed: this is a bug in infscale")
            what = f"the evaluation failed, by a bug in infscale: {type(error).__name__}: {error}"
            self._view = replace(self._view, reason="error", message=" ".join(what.split()))

    def start(self) -> None:
        """Begin to evaluate, on a thread."""
        self._thread = threading.Thread(target=self._run, name="evaluator", daemon=True)
        self._thread.start()

    def stop(self, drain_s: float) -> bool:
        """End after the evaluation under way, and only then let another writer take over.

        Returns whether that was done within `drain_s` seconds.
        """
        self._stop.set()
        ending = threading.Thread(target=self._end, name="evaluator-end", daemon=True)
        ending.start()
        ending.join(drain_s)
        return not ending.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            began_s = time.monotonic()
            self.turn()
            self._stop.wait(max(0.0, self._interval_s - (time.monotonic() - began_s)))

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._applier is not None:
            self._applier.stop()
        self._source.close()

    def _first_state(self) -> ScaleState:
        """The state of the last run; one that cannot be used is set aside."""
        if self._state_path is None:
            return ScaleState()
        loaded = recover_state(self._state_path, self._wall_clock())
        for warning in loaded.warnings:
            log.warning("state file", extra={"reason": warning})
        if loaded.reset:
            self.counters.state_reset()
        # A folder that cannot be written is told now, and not when the state is missed.
        write_state(self._state_path, loaded.state)
        return loaded.state

    def _remembered(self, fleet: Fleet) -> ScaleState:
        """What the last evaluation left, as far as it still tells something.

        After a gap (the process did not run or was suspended, others had the turn, the count could not be read) the log
        knows nothing of the last window. It begins anew with the present count, which holds scale-down for one window,
        as an HPA that restarts: the first look may well find replicas whose clients are not back yet.
        """
        if self._asked is not None and fleet.spec_replicas is not None:
            self._state = settled(self._policy, self._state, self._asked, fleet.spec_replicas)
            self._asked = None
        state, log_of = self._state, self._state.hpa.recommendations
        longest_s = max(*hpa_policy(self._policy).windows_s, MISSED * self._interval_s)
        if not log_of or self._policy.plain or fleet.now_s - max(one.time_s for one in log_of) < longest_s:
            return state
        return replace(state, hpa=replace(state.hpa, recommendations=None), plain=None)

    def _keep(self) -> str:
        """Write the state; returns why that failed: what is decided is good without it, until the next restart."""
        if self._state_path is None:
            return ""
        try:
            write_state(self._state_path, self._state)
        except StateError as error:
            return f"the state is not kept: {error}"
        return ""

    def _empty_view(self) -> WorkloadView:
        workload = self._source.workload
        return WorkloadView(workload.namespace, workload.name, target=target_of(self._policy))

    def _log(self, view: WorkloadView) -> None:
        """A line for each evaluation that says something new."""
        said = f"{view.current} {view.recommended} {view.reason} {view.message}"
        if said == self._said:
            return
        self._said = said
        fields: dict[str, object] = {"current": view.current, "desired": view.recommended, "reason": view.reason}
        if view.message:
            fields["note"] = view.message
        level = logging.WARNING if view.message else logging.INFO
        log.log(level, "decision", extra={**fields, "demand": view.demand, "steps": "; ".join(view.steps)})


def target_of(policy: ScalePolicy) -> float | None:
    """Requests per replica that the policy aims at; None where it scales on something else."""
    return next((goal.target for goal in policy.goals if goal.metric in _REQUESTS), None)


def view_of(source: Source, policy: ScalePolicy, fleet: Fleet, decision: ScaleDecision, message: str) -> WorkloadView:
    """A decision as what is published of it."""
    counts = decision.counts
    return WorkloadView(
        source.workload.namespace,
        source.workload.name,
        recommended=decision.desired,
        hpa_recommended=decision.hpa,
        measured=decision.inflight,
        filled=decision.demand,
        held=0.0 if fleet.held is None else fleet.held.requests,
        target=target_of(policy),
        replicas=Counts(
            spec=fleet.spec_replicas,
            ready=fleet.ready_replicas,
            serving=counts.serving,
            starting=counts.starting,
            silent=counts.silent,
            draining=counts.draining,
        ),
        silent_names=tuple(replica.name for replica in fleet.replicas if replica.phase is Phase.SILENT),
        reason=decision.reason.value,
        lookahead_demand=decision.projection,
        coverage=decision.coverage,
        evaluated_at_s=fleet.now_s,
        steps=tuple(step.words for step in decision.steps),
        message=message,
    )
