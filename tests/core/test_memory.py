"""What the layer remembers: through JSON and back, bounded, and on a clock that jumps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import (
    AT_ONCE,
    MOST_COLD_STARTS,
    MOST_LOG_ENTRIES,
    MOST_READS,
    Mark,
    Memory,
    Read,
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
from infscale.core.state import to_json as hpa_json
from infscale.core.work import MOST_LEARNED
from infscale.errors import StateError
from tests.core.workload import fleet, refusals, serving, through_json

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
    reads=st.dictionaries(st.text(max_size=5), st.builds(Read, times, *[st.none() | amounts] * 3), max_size=3),
)


@given(states)
def test_through_json_and_back_changes_nothing(state):
    """What is read back from the text is the state that was written."""
    assert through_json(state) == state


def test_reads_are_written_where_there_are_some():
    """Most roles have none."""
    assert "reads" not in to_json(ScaleState())
    read = Read(1.0, None, 2.0, None)
    assert to_json(ScaleState(reads={"a": read}))["reads"] == {"a": [1.0, None, 2.0, None]}


def test_so_many_reads_and_no_more():
    """Of 10,000 sources, as a command reads them."""
    most: dict[str, Any] = to_json(ScaleState(reads={f"s{n}": Read(1.0, None, None, None) for n in range(MOST_READS)}))
    assert len(from_json(most).reads) == MOST_READS == 10_000
    reads = {**most["reads"], "more": [1.0, None, None, None]}
    with pytest.raises(StateError, match=r"^state\.reads: 10001 sources: expected at most 10000$"):
        from_json({**most, "reads": reads})


GOOD: dict[str, Any] = to_json(
    ScaleState(
        samples={"queue": (Sample(1.0, 2.0),)},
        replicas={"r": Memory((Mark(1.0, 2.0, 3.0, True),), (Buckets((1.0, math.inf), (1.0, 2.0)),))},
    )
)
MEMORY = GOOD["replicas"]["r"]
FULL: dict[str, Any] = {
    **GOOD,
    "hpa": hpa_json(State((Recommendation(3, 1.0),), (ScaleEvent(1, 1.0),), (ScaleEvent(2, 1.0),))),
    "plain": [{"replicas": 3, "time_s": 1.0}],
    "evaluated_s": 1.0,
    "last_activity_s": 1.0,
    "starting": ["s"],
    "cold_starts_s": [60.0],
    "learned": [500.0],
    "reads": {"a": [1.0, 2.0, 3.0, 4.0]},
}
"""Something of everything."""


def spoiled(value: Any, wrong: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """The value with `wrong` in the place of each part of it in turn, and where that is."""
    yield where, wrong
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        for place, worse in spoiled(part, wrong, f"{where}/{key}"):
            yield place, {**value, key: worse} if isinstance(value, dict) else [*value[:key], worse, *value[key + 1 :]]


FOREIGN: list[tuple[dict[str, Any], str]] = [
    ({"format": "other"}, "f.json: not a state of infscale"),
    ({"version": 2}, "f.json.version: 2: written by a later version"),
    ({"version": "1"}, "f.json.version: '1'"),
    ({"version": True}, "f.json.version: True"),
    ({"version": 0}, "f.json.version: 0"),
    ({"hpa": 3}, "f.json.hpa: int"),
    ({"hpa": {**GOOD["hpa"], "version": 9}}, "f.json.hpa.version: 9"),
    ({"plain": [{"replicas": "x", "time_s": 0}]}, "f.json.plain[0].replicas: 'x'"),
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
        {"replicas": {"r": {**MEMORY, "ttft": [{"bounds": [1, 1], "counts": [1, 2, 3]}]}}},
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
    ({"reads": []}, "f.json.reads: list"),
    ({"reads": {"a": [1.0, 2.0, 3.0]}}, "f.json.reads.a: expected a list of 4"),
    ({"reads": {"a": ["now", None, None, None]}}, "f.json.reads.a[0]: 'now': expected Unix seconds"),
    ({"reads": {"a": [1.0, -1.0, None, None]}}, "f.json.reads.a[1]: -1.0: expected a number from 0 up"),
    ({"reads": {"a": [1.0, None, None, "x"]}}, "f.json.reads.a[3]: 'x': expected a number from 0 up"),
]


@pytest.mark.parametrize(("change", "place"), FOREIGN)
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


def test_what_is_said_of_each_part_that_is_wrong(golden):
    """A text, an object, a list or a negative number in the place of each part of a state: the whole line."""
    lines = []
    for wrong in ("?", {"?": 1, "!": 2}, [1.0, -2.0], -1):
        for place, data in spoiled(FULL, wrong):
            try:
                from_json(data)
                lines.append(f"{place or '/'} {wrong!r} is taken\n")
            except StateError as error:
                lines.append(f"{place or '/'} {error}\n")
    golden("state-faults-everywhere.txt", "".join(lines))


def test_each_fault_as_a_person_reads_it(golden):
    """The whole line for each value above, and for each part that is missing."""
    golden("state-faults.txt", refusals(from_json, GOOD, (change for change, _ in FOREIGN)))


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
        reads={"a": Read(past, 1.0, None, None), "b": Read(future, 1.0, None, None)},
    )
    kept, dropped = without_future(state, 100.0)
    assert dropped == 9
    assert kept == ScaleState(
        hpa=State(None, (ScaleEvent(1, past),), ()),
        samples={"queue": (Sample(past, 1.0),)},
        replicas={"r": Memory((Mark(past, 1.0, 1.0, True),))},
        reads={"a": Read(past, 1.0, None, None)},
    )
    assert without_future(kept, 100.0) == (kept, 0)


def test_a_log_of_which_something_is_left_goes_on():
    """Only one that lost all of its entries begins anew; one that was empty stays so."""
    log = (Recommendation(3, 50.0),)
    state = ScaleState(hpa=State((*log, Recommendation(9, 200.0))), plain=(*log, Recommendation(9, 200.0)))
    assert without_future(state, 100.0) == (ScaleState(hpa=State(log), plain=log), 2)
    assert without_future(AT_ONCE, 100.0) == (AT_ONCE, 0)
    now = replace(state, evaluated_s=200.0, last_activity_s=200.0, reads={"a": Read(200.0, 1.0, None, None)})
    assert without_future(now, 200.0) == (now, 0)


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
    assert not_after(state, 200.0) is state


def test_all_that_a_running_clock_moves():
    """Proposals, changes, samples and instants come to now; counters, of which a rate is made, begin anew."""
    late, now = 200.0, 100.0
    mark, read = Mark(now, 1.0, 1.0, True), Read(now, 1.0, None, None)

    def at(time_s: float) -> ScaleState:
        log = (Recommendation(3, now), Recommendation(9, time_s))
        return ScaleState(
            hpa=State(log, (ScaleEvent(1, time_s),), (ScaleEvent(2, time_s),), scaled_to_zero=True),
            plain=log,
            last_activity_s=time_s,
            samples={"queue": (Sample(now, 1.0), Sample(time_s, 9.0))},
            starting=("s",),
            cold_starts_s=(60.0,),
            learned=(5.0,),
        )

    ttft = (Buckets((1.0, math.inf), (1.0, 2.0)),)
    counters = replace(
        at(late),
        replicas={"r": Memory((mark, Mark(late, 2.0, 2.0, True)), ttft)},
        reads={"a": read, "b": Read(late, 1.0, None, None)},
    )
    assert not_after(counters, now) == replace(at(now), replicas={"r": Memory((mark,), ttft)}, reads={"a": read})


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


def test_what_a_long_log_keeps():
    """Each entry that is larger or smaller than all later ones, by their times and not by their places."""
    log = tuple(Recommendation(20 + (n * 37) % 101, float(n)) for n in range(MOST_LOG_ENTRIES + 1))
    kept = []
    for index, entry in enumerate(log):
        later = [other.replicas for other in log[index + 1 :]]
        if not later or entry.replicas > max(later) or entry.replicas < min(later):
            kept.append(entry)
    assert len(kept) > 2
    assert compact(log) == compact(log[5:] + log[:5]) == tuple(kept)


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


def test_the_logs_of_a_state_are_compact():
    """Both, as they come out of a decision."""
    log = tuple(Recommendation(1, float(second)) for second in range(MOST_LOG_ENTRIES))
    state = ScaleState(hpa=State(log), plain=log)
    _, after = decide(parse_policy("queue:4"), fleet(serving("a", 4.0), now_s=256.0), state)
    assert after.hpa.recommendations == after.plain == (Recommendation(1, 256.0),)


def test_the_last_50_cold_starts_are_kept():
    """One more, and the first is forgotten."""
    state = replace(AT_ONCE, evaluated_s=0.0, starting=("a",), cold_starts_s=tuple(map(float, range(50))))
    ready = serving("a", created_s=-50.0, served_s=10.0)
    _, state = decide(parse_policy("queue:4"), fleet(ready, now_s=15.0), state)
    assert state.cold_starts_s == (*map(float, range(1, 50)), 60.0)
    assert len(state.cold_starts_s) == MOST_COLD_STARTS


@pytest.mark.parametrize(
    ("policy", "keeps", "idles"),
    [
        ("queue:4", False, False),
        ("queue:4,guard=0.85", True, False),
        ("work:100", True, False),
        ("queue:4,min=0", True, True),
        ("hpa:queue:4,min=0", False, False),
        ("hpa:work:100", True, False),
    ],
)
def test_which_policies_need_counters(policy, keeps, idles):
    """Work and the guard for their rates, scale to zero for idleness, but for an HPA, which knows no idleness."""
    busy = serving("a", 4.0, generation_tokens=5.0, ttft=(Buckets((1.0, math.inf), (1.0, 2.0)),))
    _, state = decide(parse_policy(policy), fleet(busy, Replica("s", Phase.STARTING), now_s=9.0), ScaleState())
    assert state.replicas == ({"a": Memory((Mark(9.0, 5.0, 0.0, False),))} if keeps else {})
    assert state.last_activity_s == (9.0 if idles else None)
    assert (state.evaluated_s, state.starting) == (9.0, ("s",))
    _, state = decide(parse_policy("ttft:1"), fleet(busy), ScaleState())
    assert state.replicas == {"a": Memory(ttft=busy.ttft)}


def test_whose_counters_are_kept():
    """Those of before for a replica that tells none, and for all of them where the source failed; none of one gone."""
    policy = parse_policy("queue:4+ttft:1+work:100")
    ttft = (Buckets((1.0, math.inf), (1.0, 2.0)),)
    more = (Buckets((1.0, math.inf), (2.0, 4.0)),)
    old = Memory((Mark(0.0, 5.0, 1.0, True),), ttft)
    state = replace(ScaleState(), replicas=dict.fromkeys(("gone", "full", "bare", "leaving", "silent", "new"), old))
    full = serving("full", 1.0, waiting=2.0, generation_tokens=7.0, prompt_tokens=3.0, ttft=more)
    seen = fleet(
        full,
        serving("bare", 1.0),
        replace(full, name="leaving", phase=Phase.DRAINING),
        replace(full, name="silent", phase=Phase.SILENT),
        replace(full, name="new", phase=Phase.STARTING),
        serving("nothing", 1.0),
        now_s=15.0,
    )
    new = Memory((*old.marks, Mark(15.0, 7.0, 3.0, True)), more)
    _, after = decide(policy, seen, state)
    assert after.replicas == {"full": new, "bare": old, "leaving": new, "silent": old, "new": old}
    _, after = decide(policy, replace(seen, failure="refused"), state)
    assert after.replicas == dict.fromkeys(("full", "bare", "leaving", "silent", "new"), old)


def test_nothing_is_kept_that_the_policy_does_not_need():
    """A queue policy keeps no counters."""
    busy = serving("a", 4.0, generation_tokens=5.0, ttft=(Buckets((1.0, math.inf), (1.0, 2.0)),))
    _, state = decide(parse_policy("queue:4"), fleet(busy), ScaleState())
    assert (state.replicas, state.samples, state.learned) == ({}, {}, ())
    before = ScaleState(replicas={"a": Memory((Mark(0.0, 5.0, 0.0, False),))})
    assert decide(parse_policy("queue:4"), fleet(busy, now_s=15.0), before)[1].replicas == {}
    _, state = decide(parse_policy("queue:4,guard=0.85"), fleet(busy), ScaleState())
    assert state.replicas["a"].ttft == ()
    assert replace(state.replicas["a"], marks=()) == Memory()
