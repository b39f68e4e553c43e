"""Whole evaluations: the order of the steps, what is remembered and what is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infscale.core.decide import decide_hpa, evaluate, record_change
from infscale.core.decision import Decision, Reason
from infscale.core.observation import Measurement, Observation
from infscale.core.policy import (
    Behavior,
    Controller,
    MetricTarget,
    Policy,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
    Source,
    TargetType,
)
from infscale.core.state import Recommendation, ScaleEvent, State

QUEUE = MetricTarget(Source.EXTERNAL, TargetType.AVERAGE_VALUE, 4000, "queue")
CPU = MetricTarget(Source.RESOURCE, TargetType.UTILIZATION, 50, resource="cpu")
KNOWN = State(recommendations=())
BY_CONDITION = Controller(version=(1, 37))


def see(replicas: int, load: float | None, now_s: float = 0.0) -> Observation:
    """So many replicas, all there, with that many requests (None: nothing could be read)."""
    measured = Measurement(failure="refused") if load is None else Measurement((int(load * 1000),))
    return Observation(now_s, replicas, replicas, (measured,))


def reason_in(decision: Decision, kind: str) -> str:
    """The reason of a condition that must be there."""
    condition = decision.condition(kind)
    assert condition is not None
    return condition.reason


def behavior(down: tuple[tuple[PolicyType, int], ...], window_s: int = 0) -> Behavior:
    """Down policies of 15 s each."""
    return Behavior(
        scale_down=ScalingRules(
            tuple(ScalingPolicy(kind, value, 15) for kind, value in down), stabilization_window_s=window_s
        )
    )


def test_a_queue_of_twelve():
    """2 running and 10 waiting at a target of 4 are 3 replicas, and the steps say how."""
    decision, _ = decide_hpa(Policy((QUEUE,), 1, 3), see(1, 12), KNOWN)
    assert (decision.replicas, decision.proposal, decision.direction, decision.reason) == (3, 3, "up", Reason.METRIC)
    assert [step.words for step in decision.steps] == [
        "queue: 12 over 4 per replica at a count of 1 is a ratio of 3, proposes 3",
        "3: no recent proposal holds it",
        "3: DesiredWithinRange",
    ]


@pytest.mark.parametrize(
    ("down", "replicas"),
    [
        (((PolicyType.PODS, 1),), 7),
        (((PolicyType.PERCENT, 50),), 4),
        (((PolicyType.PODS, 1), (PolicyType.PERCENT, 50)), 4),
    ],
)
def test_from_eight_replicas_with_a_proposal_of_two(down, replicas):
    """One Pod at a time is 7, half of them 4, and of both the larger change counts."""
    decision, state = decide_hpa(Policy((QUEUE,), behavior=behavior(down)), see(8, 8), KNOWN)
    assert (decision.replicas, decision.proposal, decision.reason) == (replicas, 2, Reason.RATE_LIMITED)
    assert state.scale_down_events == (ScaleEvent(8 - replicas, 0.0),)


def test_the_first_evaluation_remembers_the_count_and_so_holds_it():
    """After a start nothing falls for one window."""
    policy = Policy((QUEUE,), behavior=behavior(((PolicyType.PERCENT, 100),), window_s=60))
    held, state = decide_hpa(policy, see(8, 0, 0.0), State())
    assert (held.replicas, held.reason, reason_in(held, "AbleToScale")) == (
        8,
        Reason.STABILISED,
        "ScaleDownStabilized",
    )
    held, state = decide_hpa(policy, see(8, 0, 59.0), state)
    assert held.replicas == 8
    let_go, _ = decide_hpa(policy, see(8, 0, 60.0), state)
    assert (let_go.replicas, let_go.reason) == (1, Reason.MIN)


@pytest.mark.parametrize(("current", "bound", "reason"), [(12, 10, Reason.MAX), (2, 6, Reason.MIN)])
def test_a_count_outside_the_bounds_goes_to_the_bound_at_once(current, bound, reason):
    """No metric, no window, no limit, not even Disabled; but the change is remembered."""
    frozen = ScalingRules((ScalingPolicy(PolicyType.PODS, 1, 60),), SelectPolicy.DISABLED, 300)
    policy = Policy((QUEUE,), 6, 10, Behavior(frozen, frozen))
    decision, state = decide_hpa(policy, see(current, None), KNOWN)
    assert (decision.replicas, decision.proposal, decision.reason) == (bound, None, reason)
    assert state.recommendations == ()
    assert state.scale_up_events + state.scale_down_events == (ScaleEvent(abs(bound - current), 0.0),)


def test_without_behavior_no_change_is_remembered():
    """The history is of no use there."""
    _, state = decide_hpa(Policy((QUEUE,)), see(1, 12), KNOWN)
    assert state == State(recommendations=(Recommendation(3, 0.0),))


@pytest.mark.parametrize(
    ("minimum", "controller", "state", "replicas", "reason"),
    [
        (0, Controller(), KNOWN, 2, Reason.ACTIVATE_FROM_ZERO),
        (1, Controller(), KNOWN, 0, Reason.DISABLED),
        (0, BY_CONDITION, KNOWN, 0, Reason.DISABLED),
        (0, BY_CONDITION, replace(KNOWN, scaled_to_zero=True), 2, Reason.ACTIVATE_FROM_ZERO),
        (6, BY_CONDITION, replace(KNOWN, scaled_to_zero=True), 6, Reason.ACTIVATE_FROM_ZERO),
    ],
)
def test_leaving_zero(minimum, controller, state, replicas, reason):
    """Up to 1.36 a minimum of 0 is enough; from 1.37 on the controller must have gone to zero itself."""
    decision, _ = decide_hpa(Policy((QUEUE,), minimum, 10, controller=controller), see(0, 5), state)
    assert (decision.replicas, decision.reason) == (replicas, reason)


def test_by_condition_zero_needs_a_metric_without_pods_or_a_minimum():
    """Cpu alone can be returned from only to a minimum above 0, and at zero there is no sample of it."""
    state = replace(KNOWN, scaled_to_zero=True)
    for minimum, reason in ((0, Reason.DISABLED), (1, Reason.NO_SAMPLES)):
        decision, _ = decide_hpa(Policy((CPU,), minimum, 10, controller=BY_CONDITION), see(0, None), state)
        assert (decision.replicas, decision.reason) == (0, reason)


@pytest.mark.parametrize("source", [Source.OBJECT, Source.EXTERNAL])
def test_one_metric_without_pods_is_enough(source):
    """Beside cpu, in any order."""
    metric = replace(QUEUE, source=source)
    assert Policy((CPU, metric)).has_object_or_external
    assert Policy((metric, CPU)).has_object_or_external
    assert not Policy((CPU, CPU)).has_object_or_external


def test_zero_is_marked_when_the_core_goes_there_and_unmarked_when_it_leaves():
    """From 1.37 on; before, there is no such condition."""
    policy = Policy((QUEUE,), 0, 10, controller=BY_CONDITION)
    _, state = decide_hpa(policy, see(2, 0), KNOWN)
    assert state.scaled_to_zero
    _, state = decide_hpa(policy, see(0, 5, 400.0), state)
    assert not state.scaled_to_zero
    _, state = decide_hpa(replace(policy, controller=Controller()), see(2, 0), KNOWN)
    assert not state.scaled_to_zero


def test_what_cannot_be_read_changes_nothing():
    """No metric, and no metric of several where the rest says down; nothing is logged then."""
    decision, state = decide_hpa(Policy((QUEUE,), 1, 10), see(5, None), KNOWN)
    assert (decision.replicas, decision.reason, state) == (5, Reason.NO_SAMPLES, KNOWN)
    assert reason_in(decision, "ScalingActive") == "FailedGetExternalMetric"
    assert decision.steps[0].words == "queue: refused"
    both = Policy((QUEUE, QUEUE), 1, 10)
    partly = replace(see(5, 4), measurements=(Measurement((4000,)), Measurement(failure="refused")))
    decision, state = decide_hpa(both, partly, KNOWN)
    assert (decision.replicas, decision.reason, state) == (5, Reason.PARTIAL_SAMPLES, KNOWN)
    none, _ = decide_hpa(Policy((), 1, 10), replace(partly, measurements=()), KNOWN)
    assert (none.replicas, none.reason) == (5, Reason.ERROR)


def test_each_metric_has_its_measurement():
    """One too few or too many is a fault of the caller, not a metric without a value."""
    for measurements in ((), (Measurement((4000,)),) * 2):
        with pytest.raises(ValueError, match="zip"):
            decide_hpa(Policy((QUEUE,)), replace(see(1, 4), measurements=measurements), KNOWN)


def test_the_tolerance_is_the_reason_where_it_keeps_the_count():
    """Nothing changed; a proposal that equals the count without it is the metric's own."""
    assert decide_hpa(Policy((QUEUE,)), see(10, 41), KNOWN)[0].reason is Reason.TOLERANCE
    assert decide_hpa(Policy((QUEUE,)), see(1, 2), KNOWN)[0].reason is Reason.METRIC


def test_a_caller_with_steps_of_its_own_records_what_it_ends_with():
    """`evaluate` leaves the change to be recorded; `decide_hpa` is both."""
    policy = Policy((QUEUE,), behavior=Behavior())
    decision, state = evaluate(policy, see(1, 12), KNOWN)
    assert state.scale_up_events == ()
    assert record_change(policy, state, 0.0, 1, 2).scale_up_events == (ScaleEvent(1, 0.0),)
    assert decide_hpa(policy, see(1, 12), KNOWN) == (decision, record_change(policy, state, 0.0, 1, 3))


def test_a_time_line():
    """Burst, hold, fall: each line sets the load, advances the clock by 15 s and names the count that follows."""
    policy = Policy((QUEUE,), 1, 8, behavior(((PolicyType.PODS, 1),), window_s=45))
    replicas, now_s, state = 1, 0.0, State()
    line = [
        (4, 1),  # one replica is just right
        (40, 5),  # ten are asked for; at most four more in 15 s, or double
        (40, 8),  # the maximum
        (8, 8),  # two are enough, but the window holds
        (8, 8),
        (8, 7),  # 45 s after the last burst the first Pod goes
        (8, 6),  # one each 15 s
        (24, 6),  # six are enough
        (40, 8),
    ]
    for load, expected in line:
        decision, state = decide_hpa(policy, see(replicas, load, now_s), state)
        replicas, now_s = decision.replicas, now_s + 15.0
        assert replicas == expected, (now_s, [step.words for step in decision.steps])
