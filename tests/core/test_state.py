"""The memory of the HPA layer as JSON: nothing is lost, and nothing foreign is taken in."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.core.numbers import MAX_INT32
from infscale.core.state import Recommendation, ScaleEvent, State, from_json, to_json
from infscale.errors import StateError
from tests.core.workload import refusals

counts = st.integers(0, MAX_INT32)
times = st.floats(allow_nan=False, allow_infinity=False)
events = st.lists(st.builds(ScaleEvent, counts, times), max_size=5).map(tuple)
states = st.builds(
    State,
    recommendations=st.none() | st.lists(st.builds(Recommendation, counts, times), max_size=5).map(tuple),
    scale_up_events=events,
    scale_down_events=events,
    scaled_to_zero=st.booleans(),
)


@given(states)
def test_through_json_and_back_changes_nothing(state):
    """What is read back from the text is the state that was written."""
    assert from_json(json.loads(json.dumps(to_json(state), allow_nan=False))) == state


def test_the_largest_numbers_are_read():
    """A count of 2^31-1 and the last instant of float64."""
    state = State((Recommendation(MAX_INT32, sys.float_info.max),), (ScaleEvent(0, -sys.float_info.max),))
    assert from_json(json.loads(json.dumps(to_json(state)))) == state


FOREIGN: list[tuple[dict[str, Any], str]] = [
    ({"version": 2}, "f.json.version: 2"),
    ({"version": True}, "f.json.version: True"),
    ({"recommendations": 3}, "f.json.recommendations: int"),
    ({"recommendations": [3]}, "f.json.recommendations[0]: int"),
    ({"recommendations": [{}]}, "f.json.recommendations[0]: has nothing"),
    ({"recommendations": [{"replicas": 3}]}, "f.json.recommendations[0]: has replicas"),
    ({"recommendations": [{"replicas": 1.5, "time_s": 0}]}, "f.json.recommendations[0].replicas: 1.5"),
    ({"scale_up_events": [{"change": 2**40, "time_s": 0}]}, "f.json.scale_up_events[0].change"),
    ({"scale_up_events": [{"change": 1, "time_s": float("nan")}]}, "f.json.scale_up_events[0].time_s: nan"),
    ({"scale_down_events": [{"change": 1, "time_s": "now"}]}, "f.json.scale_down_events[0].time_s: 'now'"),
    ({"scale_down_events": None}, "f.json.scale_down_events: NoneType"),
    ({"scaled_to_zero": 1}, "f.json.scaled_to_zero: 1"),
    ({"extra": 1}, "f.json: 'extra' is unknown"),
]


@pytest.mark.parametrize(("change", "place"), FOREIGN)
def test_what_was_not_written_by_the_core_is_refused(change, place):
    """The error points at the part that is wrong."""
    with pytest.raises(StateError) as refused:
        from_json({**to_json(State()), **change}, "f.json")
    assert str(refused.value).startswith(place)
    assert "\n" not in str(refused.value)


def test_each_fault_as_a_person_reads_it(golden):
    """The whole line for each value above, and for each part that is missing."""
    golden("state-faults-hpa.txt", refusals(from_json, to_json(State()), (change for change, _ in FOREIGN)))


@pytest.mark.parametrize("data", [None, [], "state", {}])
def test_a_foreign_value_is_refused(data):
    """Not an object, or one without a version."""
    with pytest.raises(StateError, match="expected"):
        from_json(data)


@pytest.mark.parametrize("key", ["recommendations", "scale_up_events", "scale_down_events", "scaled_to_zero"])
def test_a_missing_part_is_named(key):
    """A state that lacks a part is damaged."""
    data = to_json(State())
    del data[key]
    with pytest.raises(StateError, match=f"{key} is missing"):
        from_json(data)
