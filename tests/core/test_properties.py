"""What always holds, whatever the policy, the history, the load and the faults."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from infscale.core.decide import decide_hpa
from infscale.core.decision import Reason
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
from infscale.core.state import Recommendation, ScaleEvent, State, from_json, to_json

QUEUE = MetricTarget(Source.EXTERNAL, TargetType.AVERAGE_VALUE, 4000, "queue")

loads = st.integers(0, 400_000)
directions = st.builds(
    ScalingRules,
    policies=st.lists(
        st.builds(ScalingPolicy, st.sampled_from(PolicyType), st.integers(1, 200), st.integers(1, 120)),
        min_size=1,
        max_size=3,
    ).map(tuple),
    select_policy=st.sampled_from(SelectPolicy),
    stabilization_window_s=st.integers(0, 120),
    tolerance=st.none() | st.floats(0, 1),
)
policies = st.builds(
    lambda low, room, metrics, behavior, controller: Policy((QUEUE,) * metrics, low, low + room, behavior, controller),
    st.integers(0, 10),
    st.integers(1, 50),
    st.integers(1, 3),
    st.none() | st.builds(Behavior, directions, directions),
    st.builds(Controller, version=st.sampled_from([(1, 32), (1, 35), (1, 37)])),
)
past = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), max_size=8)
"""(age in seconds, count)."""
states = st.builds(
    lambda log, up, down, zero: State(
        None if log is None else tuple(Recommendation(count, -float(age)) for age, count in log),
        tuple(ScaleEvent(count, -float(age)) for age, count in up),
        tuple(ScaleEvent(count, -float(age)) for age, count in down),
        zero,
    ),
    st.none() | past,
    past,
    past,
    st.booleans(),
)


def look(policy: Policy, replicas: int, load_milli: int, *, faulty: int = 0) -> Observation:
    """All replicas there, every metric with that load but the first `faulty`, which could not be read."""
    measured = [
        Measurement(failure="refused") if i < faulty else Measurement((load_milli,)) for i in range(len(policy.metrics))
    ]
    return Observation(0.0, replicas, replicas, tuple(measured))


@given(policies, states, st.integers(0, 70), loads, st.integers(0, 3))
def test_the_count_is_within_its_bounds(policy, state, replicas, load, faulty):
    """Whatever the load, the history and the faults; only a count of zero that may not be left stays below."""
    decision, _ = decide_hpa(policy, look(policy, replicas, load, faulty=faulty), state)
    if decision.current == 0 and decision.reason in (Reason.DISABLED, Reason.NO_SAMPLES):
        assert decision.replicas == 0
    else:
        assert policy.min_replicas <= decision.replicas <= policy.max_replicas


@given(policies, states, st.integers(0, 70), loads, loads, st.integers(0, 3))
def test_more_load_never_means_fewer_replicas(policy, state, replicas, one, other, faulty):
    """For queue metrics at the same counts, state and faults.

    Not for metrics of Pods, some of which are missing or unready: what is assumed of those turns at a ratio of 1. And
    not across different counts: within the tolerance the count is kept, just beyond it can fall to ceil(u/T).
    """
    less, more = sorted((one, other))
    low, _ = decide_hpa(policy, look(policy, replicas, less, faulty=faulty), state)
    high, _ = decide_hpa(policy, look(policy, replicas, more, faulty=faulty), state)
    assert low.replicas <= high.replicas


@given(policies, states, st.integers(1, 70), st.integers(0, 3))
def test_a_hole_never_lowers_the_count(policy, state, replicas, faulty):
    """With any metric unread, a count within the bounds does not fall."""
    replicas = max(policy.min_replicas, min(policy.max_replicas, replicas))
    decision, _ = decide_hpa(policy, look(policy, replicas, 0, faulty=faulty), state)
    assert faulty == 0 or decision.replicas >= replicas


@given(
    policies,
    states,
    st.integers(0, 70),
    st.sampled_from(list(TargetType)[:2]),
    st.sampled_from([Source.EXTERNAL, Source.OBJECT]),
)
def test_no_nan_ever_scales(policy, state, replicas, target_type, source):
    """A target of 0 and a load of 0 are 0/0: the count stays where it is, or goes to its bound."""
    policy = replace(policy, metrics=(MetricTarget(source, target_type, 0),))
    decision, after = decide_hpa(policy, look(policy, replicas, 0), state)
    bound = max(policy.min_replicas, min(policy.max_replicas, replicas)) if replicas else 0
    assert decision.replicas == bound
    assert after.recommendations == (
        state.recommendations if state.recommendations is not None else (Recommendation(replicas, 0.0),)
    )


@given(policies, states, st.integers(0, 70), loads)
def test_the_same_input_gives_the_same_output(policy, state, replicas, load):
    """Also with a state that went through JSON; and every step begins where the one before it ended."""
    first = decide_hpa(policy, look(policy, replicas, load), state)
    assert decide_hpa(policy, look(policy, replicas, load), from_json(to_json(state))) == first
    decision = first[0]
    counts = [decision.current] + [step.after for step in decision.steps]
    assert [step.before for step in decision.steps] == counts[:-1]
    assert counts[-1] == decision.replicas
