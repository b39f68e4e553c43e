"""One evaluation of the HPA layer: the steps in the controller's order.

`core.layer` puts what infscale adds around `settle`; the test vectors call `decide_hpa`. It is pure: the same policy,
observation and state give the same decision and state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from infscale.core.decision import Condition, Decision, Invalid, Proposal, Reason, Step, reason_of
from infscale.core.hpa import largest, propose
from infscale.core.limits import limit, store_event
from infscale.core.observation import Observation
from infscale.core.policy import Policy, Source
from infscale.core.stabilise import logged, stabilise
from infscale.core.state import Recommendation, State

_FAILED = {
    Source.EXTERNAL: "FailedGetExternalMetric",
    Source.OBJECT: "FailedGetObjectMetric",
    Source.PODS: "FailedGetPodsMetric",
    Source.RESOURCE: "FailedGetResourceMetric",
    Source.CONTAINER_RESOURCE: "FailedGetContainerResourceMetric",
}


def decide_hpa(policy: Policy, observation: Observation, state: State) -> tuple[Decision, State]:
    """What the HPA would do, and what it would remember.

    Source: pkg/controller/podautoscaler/horizontal.go, `reconcileAutoscaler`.
    """
    decision, state = evaluate(policy, observation, state)
    return decision, record_change(policy, state, observation.now_s, decision.current, decision.replicas)


@dataclass(frozen=True, slots=True)
class Proposed:
    """What the metrics ask for together.

    Attributes:
        steps: at least one; the first begins at the current count, the last ends at the proposal.
        active: the HPA's ScalingActive condition.
        counts: False where they may not change the count: no window and no limit is looked at.
        logged: whether a count that is held is remembered as a proposal of itself, so that it is still held for one
            window after. The HPA remembers nothing then.
    """

    steps: tuple[Step, ...]
    active: Condition
    counts: bool = True
    logged: bool = False


def evaluate(policy: Policy, observation: Observation, state: State) -> tuple[Decision, State]:
    """`decide_hpa` without recording the change, for a caller that has steps of its own to add.

    Such a caller hands the count that it ends with to `record_change`.
    """

    def proposed() -> Proposed:
        """What the metrics propose together."""
        outcomes = [
            propose(metric, measurement, observation, policy)
            for metric, measurement in zip(policy.metrics, observation.measurements, strict=True)
        ]
        return from_outcomes(policy, observation.spec_replicas, outcomes)

    return settle(policy, observation.now_s, observation.spec_replicas, state, proposed)


def settle(
    policy: Policy, now_s: float, current: int, state: State, proposed: Callable[[], Proposed]
) -> tuple[Decision, State]:
    """One evaluation around whatever proposes.

    The order: first sight logs the count; a count of zero may stay; a count outside the bounds goes to the bound at
    once, with no look at a metric, a window or a limit; otherwise `proposed` is asked, then come stabilisation and the
    limits. Where no metric counts, nothing is logged.
    """
    log = state.recommendations
    if log is None:
        log = (Recommendation(current, now_s),)
        state = replace(state, recommendations=log)

    early = _zero(policy, state, current) or _bounds(policy, current)
    if early is not None:
        step, condition = early
        return _decision(current, None, (step,), (condition,)), state

    asked = proposed()
    if not asked.counts:
        if asked.logged:
            state = replace(state, recommendations=logged(log, now_s, current, max(policy.windows_s)))
        return _decision(current, None, asked.steps, (asked.active,)), state
    proposal = asked.steps[-1].after
    stabilised, able, log = stabilise(policy, log, now_s, current, proposal)
    limited, limiting = limit(policy, state, now_s, current, stabilised.after)
    steps = [*asked.steps, stabilised, limited]
    if current == 0 and limited.after < policy.min_replicas and policy.controller.leaves_zero_by_condition:
        words = f"{policy.min_replicas}: the minimum is reached at once from zero"
        steps.append(Step("zero", limited.after, policy.min_replicas, Reason.MIN, words))
    conditions = (asked.active, able, limiting)
    return _decision(current, proposal, tuple(steps), conditions), replace(state, recommendations=log)


def record_change(policy: Policy, state: State, now_s: float, before: int, after: int) -> State:
    """The state after the count was changed (or not): an event where `behavior` is set, and the mark of zero.

    Source: horizontal.go, `storeScaleEvent`; the ScaledToZero condition is set on every change (1.37 and newer).
    """
    if before == after:
        return state
    if policy.controller.leaves_zero_by_condition:
        went_to_zero = after == 0 and policy.min_replicas == 0 and policy.has_object_or_external
        state = replace(state, scaled_to_zero=went_to_zero)
    if policy.behavior is None:
        return state
    if after > before:
        events = store_event(state.scale_up_events, after - before, policy.behavior.scale_up, now_s)
        return replace(state, scale_up_events=events)
    events = store_event(state.scale_down_events, before - after, policy.behavior.scale_down, now_s)
    return replace(state, scale_down_events=events)


def _zero(policy: Policy, state: State, current: int) -> tuple[Step, Condition] | None:
    """A count of zero that nothing may change, or None to go on.

    Up to 1.36 zero may be left if the minimum is 0. From 1.37 on the controller must have made it zero itself
    (ScaledToZero), and there must be a metric that exists without Pods, or a minimum above 0 to return to.

    Source: horizontal.go, `reconcileAutoscaler` (up to 1.36), `shouldComputeMetricsForZeroReplicas` (1.37 and newer).
    """
    if current != 0:
        return None
    if policy.controller.leaves_zero_by_condition:
        may_leave = state.scaled_to_zero and (policy.min_replicas > 0 or policy.has_object_or_external)
    else:
        may_leave = policy.min_replicas == 0
    if may_leave:
        return None
    words = "0: scaling is disabled since the replica count of the target is zero"
    return Step("zero", 0, 0, Reason.DISABLED, words), Condition("ScalingActive", False, "ScalingDisabled")


def _bounds(policy: Policy, current: int) -> tuple[Step, Condition] | None:
    """The bound that a count outside of them goes to at once, or None to go on."""
    able = Condition("AbleToScale", True, "SucceededGetScale")
    if current > policy.max_replicas:
        words = f"{policy.max_replicas} at once: {current} is above the maximum"
        return Step("bounds", current, policy.max_replicas, Reason.MAX, words), able
    if 0 < current < policy.min_replicas:
        words = f"{policy.min_replicas} at once: {current} is below the minimum"
        return Step("bounds", current, policy.min_replicas, Reason.MIN, words), able
    return None


def from_outcomes(policy: Policy, current: int, outcomes: Sequence[Proposal | Invalid]) -> Proposed:
    """What the metrics propose together (never below 0), one outcome for each metric of the policy."""
    chosen = largest(tuple(outcomes), current)
    if isinstance(chosen, Invalid):
        faulty = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Invalid)]
        cause = _FAILED[policy.metrics[faulty[0]].source] if faulty else "InvalidMetricSourceType"
        step = Step("metrics", current, current, chosen.reason, chosen.words)
        return Proposed((step,), Condition("ScalingActive", False, cause), counts=False)
    proposal = max(0, chosen.replicas)
    kept = chosen.within and proposal == current
    words = "; ".join(outcome.words for outcome in outcomes)
    step = Step("metrics", current, proposal, Reason.TOLERANCE if kept else Reason.METRIC, words)
    return Proposed((step,), Condition("ScalingActive", True, "ValidMetricFound"))


def _decision(
    current: int, proposal: int | None, steps: tuple[Step, ...], conditions: tuple[Condition, ...]
) -> Decision:
    return Decision(current, steps[-1].after, proposal, reason_of(steps), steps, conditions)
