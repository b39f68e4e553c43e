"""How far and how fast: windows, limits and their history, at exact ages and against a look at the whole history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.core.limits import changed_within, limit, longest_period_s, scale_down_limit, scale_up_limit, store_event
from infscale.core.numbers import MAX_INT32, MIN_INT32
from infscale.core.policy import (
    Behavior,
    Controller,
    Policy,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from infscale.core.stabilise import with_behavior, without_behavior
from infscale.core.state import Recommendation, ScaleEvent, State

PODS, PERCENT = PolicyType.PODS, PolicyType.PERCENT


def rules(*policies: tuple[PolicyType, int, int], select: SelectPolicy = SelectPolicy.MAX) -> ScalingRules:
    """Rules from (type, value, period)."""
    return ScalingRules(tuple(ScalingPolicy(*policy) for policy in policies), select)


@pytest.mark.parametrize(
    ("start", "percent", "limited"),
    [(50, 10, 56), (100, 10, 111), (100, 9, 110), (225, 8, 244), (10, 10, 11), (90, 10, 100), (0, 100, 0), (1, 1, 2)],
)
def test_percent_up_is_rounded_up_in_float64(start, percent, limited):
    """50 + 10 % is 56, for 50 * 1.1 is a little above 55."""
    assert scale_up_limit(start, (), (), rules((PERCENT, percent, 15)), 0.0) == limited


@pytest.mark.parametrize(
    ("start", "percent", "limited"),
    [(90, 30, 62), (75, 32, 50), (125, 32, 84), (10, 10, 9), (3, 50, 1), (1, 50, 0), (10, 100, 0), (10, 150, -5)],
)
def test_percent_down_is_cut_in_float64(start, percent, limited):
    """90 - 30 % is 62, for 90 * 0.7 is a little below 63."""
    assert scale_down_limit(start, (), (), rules((PERCENT, percent, 15)), 0.0) == limited


def test_select_policy():
    """Max is the largest change, Min the smallest, Disabled none, in either direction."""
    both = ((PODS, 4, 60), (PERCENT, 10, 60))
    allowed = {
        select: (
            scale_up_limit(20, (), (), rules(*both, select=select), 0.0),
            scale_down_limit(20, (), (), rules(*both, select=select), 0.0),
        )
        for select in SelectPolicy
    }
    assert allowed == {SelectPolicy.MAX: (24, 16), SelectPolicy.MIN: (22, 18), SelectPolicy.DISABLED: (20, 20)}


def test_each_policy_looks_back_over_its_own_period_in_both_directions():
    """An event of exactly the period's age no longer counts; what was removed is added back."""
    added = (ScaleEvent(5, -60.0), ScaleEvent(3, -59.5), ScaleEvent(2, -10.0))
    removed = (ScaleEvent(4, -20.0),)
    assert scale_up_limit(20, added, removed, rules((PODS, 1, 60)), 0.0) == 20 - 5 + 4 + 1
    assert scale_up_limit(20, added, removed, rules((PODS, 1, 15)), 0.0) == 20 - 2 + 1
    assert scale_down_limit(20, added, removed, rules((PODS, 1, 61)), 0.0) == 20 - 10 + 4 - 1


@pytest.mark.parametrize(
    ("select", "up", "down"), [(SelectPolicy.MAX, MIN_INT32, MAX_INT32), (SelectPolicy.MIN, MAX_INT32, MIN_INT32)]
)
def test_no_scaling_policy_at_all(select, up, down):
    """As the controller begins its loop over them; a change is outdated at once."""
    assert longest_period_s(rules(select=select)) == 0
    assert scale_up_limit(5, (), (), rules(select=select), 0.0) == up
    assert scale_down_limit(5, (), (), rules(select=select), 0.0) == down


def test_a_value_that_means_no_limit_does_not_wrap():
    """2^31-1 Pods more is as many as there are numbers."""
    assert scale_up_limit(10, (), (), rules((PODS, MAX_INT32, 60)), 0.0) == MAX_INT32


def limited(desired: int, *, current: int, low: int, high: int, behavior: Behavior | None) -> tuple[int, str, bool]:
    """Count, HPA reason and whether it limited."""
    step, condition = limit(Policy((), low, high, behavior), State(()), 0.0, current, desired)
    return step.after, condition.reason, condition.status


@pytest.mark.parametrize(
    ("desired", "outcome"),
    [
        (1, (2, "TooFewReplicas", True)),
        (2, (2, "DesiredWithinRange", False)),
        (8, (8, "DesiredWithinRange", False)),
        (9, (8, "ScaleUpLimit", True)),
    ],
)
def test_without_behavior_the_count_at_most_doubles(desired, outcome):
    """At most max(2*S, 4), and the bounds."""
    assert limited(desired, current=4, low=2, high=20, behavior=None) == outcome


def test_which_reason_a_limit_has():
    """The rate's where it is the tighter one, else the bound's."""
    fast = Behavior(rules((PODS, 4, 15)), rules((PODS, 1, 15)))
    assert limited(9, current=2, low=1, high=20, behavior=fast) == (6, "ScaleUpLimit", True)
    assert limited(9, current=2, low=1, high=5, behavior=fast) == (5, "TooManyReplicas", True)
    assert limited(1, current=5, low=1, high=20, behavior=fast) == (4, "ScaleDownLimit", True)
    assert limited(1, current=9, low=9, high=20, behavior=fast) == (9, "TooFewReplicas", True)
    assert limited(12, current=12, low=1, high=10, behavior=fast) == (12, "DesiredWithinRange", False)
    assert limited(9, current=3, low=1, high=3, behavior=None) == (3, "TooManyReplicas", True)
    # What just fits is not limited, nor is an unchanged count.
    assert limited(6, current=2, low=1, high=20, behavior=fast) == (6, "DesiredWithinRange", False)
    assert limited(4, current=5, low=1, high=20, behavior=fast) == (4, "DesiredWithinRange", False)
    assert limited(3, current=3, low=5, high=20, behavior=fast) == (3, "DesiredWithinRange", False)
    # Both at the same count: the bound's.
    assert limited(9, current=4, low=1, high=8, behavior=None) == (8, "TooManyReplicas", True)
    assert limited(9, current=2, low=1, high=6, behavior=fast) == (6, "TooManyReplicas", True)
    assert limited(1, current=5, low=4, high=20, behavior=fast) == (4, "TooFewReplicas", True)


def test_one_direction_can_be_disabled():
    """Disabled down still lets the count rise."""
    keep = Behavior(scale_down=rules((PODS, 4, 15), select=SelectPolicy.DISABLED))
    assert limited(1, current=5, low=1, high=20, behavior=keep) == (5, "ScaleDownLimit", True)
    assert limited(7, current=5, low=1, high=20, behavior=keep) == (7, "DesiredWithinRange", False)


def test_the_factor_is_an_option():
    """The controller's own tests run with a factor of 8."""
    policy = Policy((), 1, 2000, controller=Controller(scale_up_limit_factor=8))
    assert limit(policy, State(()), 0.0, 3, 1000)[0].after == 24


def test_windows_at_exact_ages():
    """A proposal of exactly the window's age counts without behavior, and no longer with it."""
    log = (Recommendation(9, -300.0),)
    assert without_behavior(log, 0.0, 3, 300)[0] == 9
    assert with_behavior(log, 0.0, 9, 3, 0, 300)[0] == 3
    assert with_behavior((Recommendation(9, -299.9),), 0.0, 9, 3, 0, 300)[0] == 9


steps = st.lists(st.tuples(st.integers(1, 240), st.integers(0, 30)), min_size=1, max_size=60)
"""(quarter seconds since the one before, value)."""


@given(steps, st.integers(0, 50))
def test_the_window_without_behavior_sees_what_the_whole_history_holds(history, window_s):
    """The reuse of slots never loses a proposal that still counts."""
    log: tuple[Recommendation, ...] = ()
    seen: list[tuple[float, int]] = []
    now_s = 0.0
    for wait, proposal in history:
        now_s += wait / 4
        seen.append((now_s, proposal))
        replicas, log = without_behavior(log, now_s, proposal, window_s)
        assert replicas == max(value for time_s, value in seen if now_s - time_s <= window_s)


@given(steps, st.integers(0, 50), st.integers(0, 50))
def test_the_windows_with_behavior_see_what_the_whole_history_holds(history, up_s, down_s):
    """Each direction's window, over everything that was ever proposed; the log holds no more than the windows need."""
    log: tuple[Recommendation, ...] = ()
    seen: list[tuple[float, int]] = []
    now_s, current, most = 0.0, 5, 0
    for wait, proposal in history:
        now_s += wait / 4
        up = min([proposal, *(value for time_s, value in seen if now_s - time_s < up_s)])
        down = max([proposal, *(value for time_s, value in seen if now_s - time_s < down_s)])
        seen.append((now_s, proposal))
        current_before = current
        current, log = with_behavior(log, now_s, current, proposal, up_s, down_s)
        assert current == (up if current_before < up else down if current_before > down else current_before)
        most = max(most, sum(now_s - time_s <= max(up_s, down_s) for time_s, _ in seen))
        assert len(log) <= most + 1


@given(steps, st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_each_period_sees_what_the_whole_history_holds(history, periods):
    """The reuse of slots never loses a change that still counts for any policy of the direction."""
    policies = rules(*((PODS, 1, period) for period in periods))
    events: tuple[ScaleEvent, ...] = ()
    seen: list[tuple[float, int]] = []
    now_s = 0.0
    for wait, change in history:
        now_s += wait / 4
        events = store_event(events, change, policies, now_s)
        seen.append((now_s, change))
        for period in periods:
            whole = sum(value for time_s, value in seen if now_s - time_s < period)
            assert changed_within(period, events, now_s) == whole


def test_slots_are_reused_from_the_end():
    """The last outdated entry makes room; one of exactly the period's age is not outdated yet."""
    events = (ScaleEvent(1, -61.0), ScaleEvent(2, -62.0), ScaleEvent(3, -60.0))
    stored = store_event(events, 9, rules((PODS, 1, 60)), 0.0)
    assert stored == (events[0], ScaleEvent(9, 0.0), events[2])
    log = (Recommendation(1, -301.0), Recommendation(2, -300.0))
    assert without_behavior(log, 0.0, 5, 300)[1] == (Recommendation(5, 0.0), log[1])
    assert with_behavior(log, 0.0, 5, 5, 60, 300)[1] == (Recommendation(5, 0.0), log[1])
