"""What the layer remembers: through JSON and back, bounded, and on a clock that jumps."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import (
    MOST_COLD_STARTS,
    MOST_LOG_ENTRIES,
    Mark,
    Memory,
    Sample,
    ScaleState,
    compact,
    not_after,
    without_future,
)
from infscale.core.memory_json import from_json, to_json
from infscale.core.policy import Behavior, Policy, ScalingRules
from infscale.core.replicas import Buckets, Phase, Replica
from infscale.core.stabilise import stabilise
from infscale.core.state import Recommendation, ScaleEvent, State
from infscale.core.work import MOST_LEARNED
from infscale.errors import StateError
from tests.core.workload import fleet, serving, through_json

times = st.floats(-1e9, 1e12)
amounts = st.floats(0, 1e15)
logs = st.lists(st.builds(Recommendation, st.integers(0, 100), times), max_size=4).map(tuple)
events = st.lists(st.builds(ScaleEvent, st.integers(1, 100), times), max_size=4).map(tuple)
layouts = st.lists(st.floats(0, 100), min_size=1, max_size=4, unique=True).flatmap(
    lambda bounds: st.lists(amounts, min_size=len(bounds) + 1, max_size=len(bounds) + 1).map(
        lambda counts: Buckets((*sorted(bounds), math.inf), tuple(counts))
    )
)
marks = st.builds(Mark, times, amounts, amounts, st.booleans())
memories = st.builds(Memory, st.lists(marks, max_size=3).map(tuple), st.lists(layouts, max_size=2).map(tuple))
states = st.builds(
    ScaleState,
    hpa=st.builds(State, st.none() | logs, events, events, st.booleans()),
    plain=st.none() | logs,
    evaluated_s=st.none() | times,
    last_activity_s=st.none() | times,
    samples=st.dictionaries(st.text(max_size=5), st.lists(st.builds(Sample, times, amounts), max_size=3).map(tuple)),
    replicas=st.dictionaries(st.text(max_size=5), memories, max_size=3),
    starting=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    cold_starts_s=st.lists(amounts, max_size=3).map(tuple),
    learned=st.lists(amounts, max_size=3).map(tuple),
)


@given(states)
def test_through_json_and_back_changes_nothing(state):
    """What is read back from the text is the state that was written."""
    assert through_json(state) == state


GOOD: dict[str, Any] = to_json(
    ScaleState(
        samples={"queue": (Sample(1.0, 2.0),)},
        replicas={"r": Memory((Mark(1.0, 2.0, 3.0, True),), (Buckets((1.0, math.inf), (1.0, 2.0)),))},
    )
)
MEMORY = GOOD["replicas"]["r"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"format": "other"}, "f.json: not a state of infscale"),
        ({"version": 2}, "f.json.version: 2: written by a later version"),
        ({"version": "1"}, "f.json.version: '1'"),
        ({"version": True}, "f.json.version: True"),
        ({"version": 0}, "f.json.version: 0"),
        ({"hpa": 3}, "f.json.hpa: int"),
        ({"hpa": {**GOOD["hpa"], "version": 9}}, "f.json.hpa.version: 9"),
        ({"plain": [{"replicas": "x", "time_s": 0}]}, "f.json.plain.recommendations[0].replicas: 'x'"),
        ({"evaluated_s": "now"}, "f.json.evaluated_s: 'now'"),
        ({"last_activity_s": 10**400}, "f.json.last_activity_s: 1000"),
        ({"last_activity_s": math.nan}, "f.json.last_activity_s: nan"),
        ({"samples": []}, "f.json.samples: list"),
        ({"samples": {"queue": [[1.0]]}}, "f.json.samples.queue[0]: expected a list of 2"),
        ({"samples": {"queue": [[1.0, -2.0]]}}, "f.json.samples.queue[0][1]: -2.0"),
        ({"replicas": {"r": {}}}, "f.json.replicas.r: has nothing"),
        ({"replicas": {"r": {**MEMORY, "marks": [[1, 2, 3, 4]]}}}, "f.json.replicas.r.marks[0][3]: 4"),
        ({"replicas": {"r": {**MEMORY, "marks": 5}}}, "f.json.replicas.r.marks: int"),
        ({"replicas": {"r": {**MEMORY, "ttft": [{}]}}}, "f.json.replicas.r.ttft[0]: has nothing"),
        (
            {"replicas": {"r": {**MEMORY, "ttft": [{"bounds": [2, 1], "counts": [1, 2, 3]}]}}},
            "f.json.replicas.r.ttft[0]: expected ascending bounds",
        ),
        (
            {"replicas": {"r": {**MEMORY, "ttft": [{"bounds": [1], "counts": [1]}]}}},
            "f.json.replicas.r.ttft[0]: expected ascending bounds and one more count",
        ),
        ({"starting": [3]}, "f.json.starting[0]: 3"),
        ({"cold_starts_s": [-1]}, "f.json.cold_starts_s[0]: -1"),
        ({"learned": None}, "f.json.learned: NoneType"),
        ({"extra": 1}, "f.json: 'extra' is unknown"),
    ],
)
def test_what_was_not_written_by_the_core_is_refused(change, place):
    """The error points at the part that is wrong, in one line."""
    with pytest.raises(StateError) as refused:
        from_json({**GOOD, **change}, "f.json")
    assert str(refused.value).startswith(place)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", [key for key in GOOD if key not in ("format", "version")])
def test_a_missing_part_is_named(key):
    """A state that lacks a part is damaged."""
    with pytest.raises(StateError, match=f"{key} is missing"):
        from_json({name: value for name, value in GOOD.items() if name != key})


@pytest.mark.parametrize("data", [None, [], "state", {}, {"version": 1}])
def test_a_foreign_value_is_refused(data):
    """Not an object, or one that does not say what it is."""
    with pytest.raises(StateError, match="expected"):
        from_json(data)


def test_times_in_the_future_of_a_file_are_dropped():
    """All of them, and how many there were; a log without an entry left begins anew."""
    future, past = 200.0, 50.0
    state = ScaleState(
        hpa=State((Recommendation(9, future),), (ScaleEvent(1, past), ScaleEvent(1, future)), (ScaleEvent(2, future),)),
        plain=(Recommendation(9, future),),
        evaluated_s=future,
        last_activity_s=future,
        samples={"queue": (Sample(past, 1.0), Sample(future, 9.0))},
        replicas={"r": Memory((Mark(past, 1.0, 1.0, True), Mark(future, 2.0, 2.0, True)))},
    )
    kept, dropped = without_future(state, 100.0)
    assert dropped == 8
    assert kept == ScaleState(
        hpa=State(None, (ScaleEvent(1, past),), ()),
        samples={"queue": (Sample(past, 1.0),)},
        replicas={"r": Memory((Mark(past, 1.0, 1.0, True),))},
    )
    assert without_future(kept, 100.0) == (kept, 0)


def test_a_running_clock_that_goes_backwards_forgets_nothing():
    """What was in the future is now: it holds for one window from here."""
    state = ScaleState(
        hpa=State((Recommendation(9, 200.0), Recommendation(3, 50.0)), (ScaleEvent(1, 200.0),)), evaluated_s=200.0
    )
    moved = not_after(state, 100.0)
    assert moved.hpa.recommendations == (Recommendation(9, 100.0), Recommendation(3, 50.0))
    assert moved.hpa.scale_up_events == (ScaleEvent(1, 100.0),)
    assert moved.evaluated_s == 100.0
    assert not_after(state, 300.0) is state


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30)), min_size=MOST_LOG_ENTRIES + 1, max_size=300),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 400),
    st.integers(0, 400),
)
def test_a_compact_log_says_the_same(entries, current, proposal, up_s, down_s):
    """In any window, in both forms of stabilisation."""
    log = tuple(Recommendation(count, -float(age)) for age, count in entries)
    short = compact(log)
    assert short is not None
    assert len(short) < len(log)
    behavior = Behavior(ScalingRules((), stabilization_window_s=up_s), ScalingRules((), stabilization_window_s=down_s))
    for policy in (Policy(()), Policy((), behavior=behavior)):
        whole, _, _ = stabilise(policy, log, 0.0, current, proposal)
        brief, _, _ = stabilise(policy, short, 0.0, current, proposal)
        assert brief.after == whole.after


def test_a_short_log_is_left_as_it_is():
    """As the HPA has it."""
    log = tuple(Recommendation(1, float(second)) for second in range(MOST_LOG_ENTRIES))
    assert compact(log) is log
    assert compact(None) is None


def test_the_memory_is_bounded_whatever_the_fleet_does():
    """Replicas that come and go, restart and wait, each second, with everything asked for."""
    policy = parse_policy("queue:4+ttft:1+work:learned,min=1,max=9,lookahead=auto,guard=0.85,downwindow=3600,uppods=3")
    state, sizes = ScaleState(), []
    for step in range(2000):
        name = f"r{step // 20}"
        histogram = (Buckets((1.0, math.inf), (float(step % 7), float(step))),)
        tokens = float(step % 50) * 100
        young = Replica(f"s{step}", Phase.STARTING, created_s=float(step))
        busy = serving(
            name,
            float(step % 40),
            waiting=1.0,
            generation_tokens=tokens,
            prompt_tokens=0.0,
            ttft=histogram,
            created_s=20 * (step // 20) - 0.5,
        )
        _, state = decide(policy, fleet(busy, young, spec=1 + step % 9, now_s=float(step)), state)
        sizes.append(len(json.dumps(to_json(state))))
    assert len(state.replicas) == 1
    assert len(state.cold_starts_s) == MOST_COLD_STARTS
    assert len(state.learned) == MOST_LEARNED
    assert max(sizes[1200:]) < 1.5 * max(sizes[:1000])


def test_nothing_is_kept_that_the_policy_does_not_need():
    """A queue policy keeps no counters."""
    busy = serving("a", 4.0, generation_tokens=5.0, ttft=(Buckets((1.0, math.inf), (1.0, 2.0)),))
    _, state = decide(parse_policy("queue:4"), fleet(busy), ScaleState())
    assert (state.replicas, state.samples, state.learned) == ({}, {}, ())
    _, state = decide(parse_policy("queue:4,guard=0.85"), fleet(busy), ScaleState())
    assert state.replicas["a"].ttft == ()
    assert replace(state.replicas["a"], marks=()) == Memory()
