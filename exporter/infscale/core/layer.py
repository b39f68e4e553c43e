"""One evaluation of all that infscale decides: the HPA layer, and around it what the HPA does not model.

The sidecar, the recommender, `infscale decide`, `infscale kube` and the simulator call `decide`. It is pure: the same
policy, fleet and state give the same decision and state. With nothing asked for beyond the HPA, and every replica
answering, it decides as the HPA does.
"""

from __future__ import annotations

from dataclasses import replace

from infscale.core.counters import Differences, remember
from infscale.core.decide import Proposed, from_outcomes, record_change, settle
from infscale.core.decision import Decision, Invalid, Proposal, Reason, Step, reason_of
from infscale.core.demand import View, demand_of, look
from infscale.core.guard import guarded
from infscale.core.hpa import largest
from infscale.core.lookahead import horizon_s
from infscale.core.memory import ScaleState, compact, not_after
from infscale.core.observation import Observation
from infscale.core.replicas import Fleet
from infscale.core.scale_decision import ScaleDecision
from infscale.core.scaling import MetricName, ScalePolicy
from infscale.core.signals import Scene, Signal, hpa_policy, pods_of, signal_of
from infscale.core.work import knee_of
from infscale.core.zero import from_zero, to_zero

NO_COUNT = "no recommendation: the workload's replica count was not read; give it, or a source that knows it"

_AT_ONCE = ("zero", "bounds")
"""The steps of the HPA layer after which it looks at nothing else, and so does this one."""


def decide(policy: ScalePolicy, fleet: Fleet, state: ScaleState) -> tuple[ScaleDecision, ScaleState]:
    """How many replicas, and what to remember for the next time.

    The steps: `metrics` (what the HPA proposes), `fill` (silent replicas), `lookahead`, `hold` (nothing falls on what
    cannot be trusted), the HPA's `stabilise` and `limit`, then `guard`, `to_zero` or `from_zero`.

    Args:
        policy: one that `checks.check_policy` lets pass.
        fleet: what was seen.
        state: what the last call gave back; `ScaleState()` before the first.
    """
    state = not_after(state, fleet.now_s)
    view = look(fleet)
    state, seen = remember(policy, fleet, view, state)
    scene = _scene(policy, fleet, view, state, seen)
    signals = tuple(signal_of(goal, scene) for goal in policy.goals)
    if policy.lookahead_s:
        kept = {signal.demand.metric.value: signal.samples for signal in signals if signal.demand and signal.samples}
        state = replace(state, samples=kept)
    answer = _answer(fleet, view, signals, seen)
    if fleet.spec_replicas is None:
        return answer, state
    decision, hpa, state = _decided(scene, signals, state, seen.idle_s)
    return (
        replace(
            answer,
            current=decision.current,
            desired=decision.replicas,
            hpa=hpa,
            proposal=decision.proposal,
            reason=decision.reason,
            steps=decision.steps,
            note="",
        ),
        state,
    )


def _scene(policy: ScalePolicy, fleet: Fleet, view: View, state: ScaleState, seen: Differences) -> Scene:
    spec = fleet.spec_replicas or 0
    status = spec if fleet.status_replicas is None else fleet.status_replicas
    return Scene(
        policy=policy,
        hpa=hpa_policy(policy),
        view=view,
        observation=Observation(fleet.now_s, spec, status, (), pods_of(policy, fleet.replicas)),
        samples=state.samples,
        ahead_s=horizon_s(policy, state),
        ttft=seen.ttft,
        load=seen.load,
        knee=knee_of(policy, state.learned),
    )


def _decided(
    scene: Scene, signals: tuple[Signal, ...], state: ScaleState, idle_s: float | None
) -> tuple[Decision, int, ScaleState]:
    """The decision, what a plain HPA would do, and what is remembered of both."""
    policy, current, now_s = scene.policy, scene.observation.spec_replicas, scene.observation.now_s
    measured = from_outcomes(scene.hpa, current, [signal.measured for signal in signals])
    if policy.plain:
        decision, hpa = settle(scene.hpa, now_s, current, state.hpa, lambda: measured)
        plain, shadow = decision, None
    else:
        plain, after = settle(scene.hpa, now_s, current, state.shadow, lambda: measured)
        shadow = compact(after.recommendations)
        decision, hpa = settle(scene.hpa, now_s, current, state.hpa, lambda: _layered(measured, scene, signals))
        decision = _with_steps(decision, _later(scene, state, decision, idle_s))
    hpa = record_change(scene.hpa, hpa, now_s, current, decision.replicas)
    hpa = replace(hpa, recommendations=compact(hpa.recommendations))
    return decision, plain.replicas, replace(state, hpa=hpa, plain=shadow)


def _layered(measured: Proposed, scene: Scene, signals: tuple[Signal, ...]) -> Proposed:
    """What the HPA proposes, and what silent replicas, the lookahead and doubt make of it.

    Where the count is held, that is remembered as a proposal of itself, which the HPA does not do: after an outage the
    window starts anew, so that the first look at replicas whose clients are not back yet takes nothing away.
    """
    current = scene.observation.spec_replicas
    steps = list(measured.steps)
    filled, ahead = [signal.filled for signal in signals], [signal.ahead or signal.filled for signal in signals]
    for name, outcomes in (("fill", filled), ("lookahead", ahead)):
        recommended = tuple(outcome for outcome in outcomes if outcome is not None)
        if not recommended:
            return _held(measured, steps, current, Reason.NO_SAMPLES, "no metric gives a recommendation")
        chosen = largest(recommended, current)
        if isinstance(chosen, Invalid):
            return _held(measured, steps, current, chosen.reason, chosen.words)
        before, replicas = steps[-1].after, chosen.replicas
        if replicas != before:
            reason, words = _stage(name, signals, chosen)
            steps.append(Step(name, before, replicas, reason, f"{replicas} instead of {before}: {words}"))
    doubts = [f"{scene.view.stale[0]} is stale"] if scene.view.stale else []
    if scene.view.held_unknown:
        doubts.append("the activator did not answer")
    if doubts and steps[-1].after < current:
        return _held(measured, steps, current, Reason.PARTIAL_SAMPLES, f"{' and '.join(doubts)}, nothing falls on that")
    return replace(measured, steps=tuple(steps), counts=True)


def _stage(name: str, signals: tuple[Signal, ...], chosen: Proposal) -> tuple[Reason, str]:
    """Why a stage changed the proposal."""
    if name == "lookahead":
        return Reason.LOOKAHEAD, f"the projected demand: {chosen.words}"
    missing = [signal.demand.missing for signal in signals if signal.demand is not None]
    if any(missing):
        return (
            Reason.PARTIAL_SAMPLES,
            f"{max(missing)} replicas without a value count as at their target: {chosen.words}",
        )
    return Reason.METRIC, f"the metrics that give a recommendation: {chosen.words}"


def _held(measured: Proposed, steps: list[Step], current: int, reason: Reason, words: str) -> Proposed:
    """The count as it is, whatever was proposed."""
    hold = Step("hold", steps[-1].after, current, reason, f"{current} is held: {words}")
    return replace(measured, steps=(*steps, hold), counts=False, logged=True)


def _later(scene: Scene, state: ScaleState, decision: Decision, idle_s: float | None) -> tuple[Step, ...]:
    """The steps after the HPA's limits."""
    policy, current = scene.policy, scene.observation.spec_replicas
    if decision.steps[0].name in _AT_ONCE:
        return ()
    replicas = decision.replicas
    if policy.min_replicas == 0 and current == 0:
        return from_zero(policy, scene.view, replicas)
    steps: tuple[Step, ...] = ()
    if policy.guard is not None and replicas < current:
        steps = (guarded(policy.guard, scene.load, scene.knee, current, replicas),)
        replicas = steps[-1].after
    if policy.min_replicas == 0:
        steps += to_zero(policy, state, current, replicas, idle_s)
    return steps


def _with_steps(decision: Decision, later: tuple[Step, ...]) -> Decision:
    if not later:
        return decision
    steps = (*decision.steps, *later)
    return replace(decision, replicas=steps[-1].after, steps=steps, reason=reason_of(steps))


def _answer(fleet: Fleet, view: View, signals: tuple[Signal, ...], seen: Differences) -> ScaleDecision:
    """What is known without a decision: the sums and counts, and that nothing is recommended."""
    demands = (signal.demand for signal in signals if signal.demand is not None)
    inflight = next((demand for demand in demands if demand.metric is MetricName.QUEUE), None)
    inflight = inflight or demand_of(MetricName.QUEUE, 0.0, view)
    measured = inflight.given or view.held or (fleet.spec_replicas == 0 and view.at_zero)
    request = next((signal for signal in signals if signal.demand is not None), None)
    demand = None if request is None or view.failure or not (measured or view.expected) else request.demand
    return ScaleDecision(
        current=None,
        desired=None,
        hpa=None,
        proposal=None,
        reason=Reason.NO_SAMPLES,
        steps=(),
        counts=view.counts,
        coverage=inflight.given / view.expected if view.expected else float(not view.failure),
        note=NO_COUNT,
        inflight=inflight.measured if measured else None,
        demand=None if demand is None else demand.total,
        projection=None if request is None else request.projection,
        cold_starts_s=seen.cold_starts_s,
    )
