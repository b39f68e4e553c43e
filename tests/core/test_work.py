"""Work: rates from counters, what a replica can do, and the guard that rests on both."""

from __future__ import annotations

import math

import pytest

from infscale.core.decision import Invalid, Proposal, Reason
from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import AT_ONCE, Mark, ScaleState
from infscale.core.replicas import Phase, Replica
from infscale.core.scale_decision import ScaleDecision
from infscale.core.work import MOST_LEARNED, Load, mark_of, marked, propose_work, rate_of
from tests.core.workload import fleet, serving


def run(
    policy: str, rates: list[float], *, steps: int = 5, inflight: float = 1.0, waiting: float = 0.0, silent: int = 0
) -> tuple[ScaleDecision, ScaleState]:
    """So many looks, 15 s apart, at replicas that generate so many tokens per second each; the last ones silent."""
    state, decision = AT_ONCE, None
    scale = parse_policy(f"{policy},max=50,downwindow=0,up=50/15,down=100%/15")
    for step in range(steps):
        replicas = [
            serving(f"r{n}", inflight, waiting=waiting, generation_tokens=rate * 15 * step, prompt_tokens=0.0)
            for n, rate in enumerate(rates)
        ]
        replicas[len(replicas) - silent :] = [Replica(f"s{n}", Phase.SILENT) for n in range(silent)]
        decision, state = decide(scale, fleet(*replicas, now_s=15.0 * step), state)
    assert decision is not None
    return decision, state


def marks(*rows: tuple[float, float, bool]) -> tuple[Mark, ...]:
    """Marks added one after the other: (time, generated tokens, waiting)."""
    kept: tuple[Mark, ...] = ()
    for time_s, tokens, waiting in rows:
        kept = marked(kept, Mark(time_s, tokens, 0.0, waiting))
    return kept


def test_the_proposal_is_the_load_over_85_percent_of_the_capacity():
    """3 * 850 tokens/s over 0.85 * 1000 are 3; a little more is 4, without a tolerance."""
    assert run("work:1000", [850.0] * 3)[0].desired == 3
    assert run("work:1000", [851.0] * 3)[0].desired == 4
    assert run("work:1000", [85.0] * 3)[0].desired == 1


def test_the_capacity_may_be_given_as_the_knee():
    """`work:learned,knee=1000` is `work:1000` until something else is given."""
    assert run("work:learned,knee=1000", [851.0] * 3)[0].desired == 4


def test_the_first_look_recommends_nothing():
    """There is no rate yet; nor is there one without counters."""
    decision, _ = run("work:1000", [85.0] * 3, steps=1)
    assert (decision.desired, decision.reason) == (3, "no_samples")
    assert "a second read of the token counters" in decision.steps[0].words
    decision, _ = decide(parse_policy("work:1000"), fleet(serving("a", 1.0)), AT_ONCE)
    assert "no replica has token counters" in decision.steps[0].words


def test_a_silent_replica_counts_as_at_its_share():
    """Two at 85 tokens/s and one that does not tell: 1020 over 850."""
    assert run("work:1000", [85.0] * 3, silent=1)[0].desired == 2
    assert run("work:1000", [85.0] * 3, silent=2)[0].desired == 3


def test_the_proposal_with_its_numbers():
    """160 tokens/s of two and 85 assumed of the third, over 85 each."""
    words = "work: 245 tokens/s over 0.85 of 100 per replica, proposes 3"
    assert propose_work(Load(160.0, 2, 3, 2), 100.0) == Proposal(3, False, words, 0)
    assert propose_work(Load(160.0, 2, 3, 2), None) is None
    assert propose_work(Load(0.0, 0, 3, 3), 100.0) == Invalid(
        Reason.NO_SAMPLES, "work: no replica has a second read of the token counters"
    )
    assert propose_work(Load(0.0, 0, 3, 0), 100.0) == Invalid(Reason.NO_SAMPLES, "work: no replica has token counters")


def test_prompt_tokens_have_a_weight():
    """1,000 prompt tokens per second are 100 with the usual weight of 0.1."""
    both = (Mark(0.0, 0.0, 0.0, False), Mark(60.0, 6000.0, 60000.0, False))
    assert rate_of(both, 0.1) == pytest.approx(200.0)
    assert rate_of(both, 0.0) == pytest.approx(100.0)


def test_the_rate_is_that_of_about_the_last_minute():
    """Each second a read: six marks and the latest span 60 s, and what is older does not count."""
    kept = marks(*((float(second), 10.0 * min(second, 100), False) for second in range(200)))
    assert len(kept) <= 8
    assert 60.0 <= kept[-1].time_s - kept[0].time_s <= 84.0
    assert rate_of(kept, 0.1) == 0.0
    assert rate_of(marks((0.0, 0.0, False)), 0.1) is None


@pytest.mark.parametrize(
    ("reads", "kept"),
    [
        ((0, 15, 15), [0, 15]),  # a second look at one instant replaces the first
        ((0, 12, 20), [0, 12, 20]),
        ((0, 11.9, 20), [0, 20]),
        ((0, 1, 2), [0, 2]),
        ((0, 15, 30, 45, 60, 75), [15, 30, 45, 60, 75]),  # 15 is 60 s old, so 0 is not needed
        ((0, 15, 30, 45, 60, 74), [0, 15, 30, 45, 60, 74]),
        ((0, 15, 100), [15, 100]),
        ((0, 100), [0, 100]),
    ],
)
def test_which_reads_are_kept(reads, kept):
    """At least 12 s apart but for the latest, back to the youngest that is 60 s old, which is the first."""
    rows = marks(*((float(time_s), 10.0 * index, False) for index, time_s in enumerate(reads)))
    assert [mark.time_s for mark in rows] == kept
    assert rows[-1].generation_tokens == 10.0 * (len(reads) - 1)


@pytest.mark.parametrize(
    ("counters", "mark"),
    [
        ({"generation_tokens": 5.0, "prompt_tokens": 7.0}, Mark(9.0, 5.0, 7.0, True)),
        ({"prompt_tokens": 7.0}, Mark(9.0, 0.0, 7.0, True)),
        ({"generation_tokens": math.nan, "prompt_tokens": 7.0}, Mark(9.0, 0.0, 7.0, True)),
        ({"generation_tokens": 5.0, "prompt_tokens": -1.0}, Mark(9.0, 5.0, 0.0, True)),
        ({"generation_tokens": 5.0, "waiting": 0.0}, Mark(9.0, 5.0, 0.0, False)),
        ({"generation_tokens": 5.0, "waiting": None}, Mark(9.0, 5.0, 0.0, False)),
        ({"generation_tokens": math.inf}, None),
        ({}, None),
    ],
)
def test_the_counters_of_a_read(counters, mark):
    """Either counter will do; one that is no number counts as not told."""
    assert mark_of(serving("a", 1.0, **{"waiting": 0.5, **counters}), 9.0) == mark


@pytest.mark.parametrize(("seconds", "learned"), [(10.0, (40.0,)), (9.9, ())])
def test_a_rate_over_less_than_10_s_is_not_learned(seconds, learned):
    """It may be one batch."""
    state = AT_ONCE
    for now_s in (100.0, 100.0 + seconds):
        busy = serving("a", 5.0, waiting=2.0, generation_tokens=(now_s - 100.0) * 40)
        _, state = decide(parse_policy("work:learned"), fleet(busy, now_s=now_s), state)
    assert state.learned == pytest.approx(learned)


@pytest.mark.parametrize(("between", "now"), [(True, True), (True, False), (False, True), (False, False)])
def test_a_read_that_gives_way_leaves_whether_requests_waited(between, now):
    """Only where they waited at it and at the one after it did they wait all the time."""
    assert marks((0, 0, True), (5, 10, between), (10, 20, now))[-1].waiting is (between and now)


def test_the_rate_is_that_between_the_first_and_the_last_read():
    """600 generated and 600 prompt tokens in 60 s, whatever was between."""
    reads = (Mark(0.0, 100.0, 50.0, False), Mark(30.0, 600.0, 60.0, False), Mark(60.0, 700.0, 650.0, False))
    assert rate_of(reads, 0.1) == pytest.approx(11.0)


def test_a_counter_that_fell_begins_anew():
    """A restart: the rate is that since then."""
    kept = marks((0.0, 900.0, False), (15.0, 1800.0, False), (30.0, 30.0, False), (45.0, 60.0, False))
    assert rate_of(kept, 0.1) == 2.0


def test_the_capacity_is_learned_where_requests_wait():
    """The 95th percentile of what replicas carried while they had waiting requests; before, no recommendation."""
    decision, state = run("work:learned", [400.0, 500.0], waiting=3.0)
    assert state.learned == (400.0, 500.0) * 4
    assert decision.desired == 3  # 900 over 0.85 * 500
    decision, state = run("work:learned", [400.0, 500.0])
    assert (decision.desired, decision.reason, state.learned) == (2, "no_samples", ())
    assert decision.steps[0].words == "work: the capacity of a replica is not learned yet"
    assert run("work:learned+queue:4", [400.0, 500.0])[0].desired == 1


def test_a_rate_over_a_time_without_waiting_is_not_learned():
    """A minute that began idle is half of what the replica can do, for ever."""
    state = AT_ONCE
    for step, waiting in enumerate((0.0, 0.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0)):
        tokens = max(0.0, (step - 1) * 15 * 1000.0)
        replica = serving("a", 5.0, waiting=waiting, generation_tokens=tokens)
        _, state = decide(parse_policy("work:learned"), fleet(replica, now_s=15.0 * step), state)
    assert set(state.learned) == {1000.0}


def test_what_is_learned_is_bounded_and_fair():
    """A large fleet adds 16 at once, from its least to its largest."""
    rates = [float(rate) for rate in range(100, 300)]
    _, state = run("work:learned", rates, steps=2, waiting=1.0)
    assert (len(state.learned), state.learned[0], state.learned[-1]) == (16, 100.0, 299.0)
    _, state = run("work:learned", rates, steps=20, waiting=1.0)
    assert len(state.learned) == MOST_LEARNED


def test_the_guard_stops_a_fall_at_what_the_rest_can_carry():
    """The queue asks for 1; 2,000 tokens/s need 3 replicas at 0.85 of 1,000."""
    decision, _ = run("queue:24,guard=0.85,knee=1000", [500.0] * 4)
    assert (decision.desired, decision.hpa, decision.reason) == (3, 1, "guard")
    assert decision.steps[-1].words == "3 instead of 1: 2000 tokens/s need 3 at 0.85 of 1000 each"
    decision, _ = run("queue:24,guard=0.85,knee=1000", [900.0] * 4)
    assert (decision.desired, decision.reason) == (4, "guard")
    decision, _ = run("queue:24,guard=0.85,knee=1000", [10.0] * 4)
    assert (decision.desired, decision.reason) == (1, "metric")


def test_the_guard_never_raises():
    """Overload is the metric's business."""
    assert run("queue:24,guard=0.85,knee=10", [900.0] * 4)[0].desired == 4


def test_the_guard_takes_the_learned_knee_or_that_of_work():
    """Where it is not given."""
    assert run("queue:24,guard=0.85", [500.0] * 4, waiting=1.0)[0].desired == 4
    assert run("queue:24+work:2000,guard=0.5", [500.0] * 4)[0].desired == 2


def test_without_a_knee_the_guard_says_so_and_does_nothing():
    """Neither given nor learned; or nobody counts tokens."""
    decision, _ = run("queue:24,guard=0.85", [500.0] * 4)
    assert (decision.desired, decision.reason) == (1, "metric")
    assert decision.steps[-1].words == "1: the guard does nothing, the knee is not learned yet"
    policy = parse_policy("queue:24,guard=0.85,knee=9,downwindow=0")
    decision, _ = decide(policy, fleet(serving("a", 1.0), serving("b", 1.0)), AT_ONCE)
    assert decision.steps[-1].words == "1: the guard does nothing, no replica counts its tokens"


def test_the_guard_counts_a_replica_without_a_rate_as_full():
    """At the first look all of them, so that nothing falls before there is a rate."""
    assert run("queue:24,guard=0.85,knee=1000", [1.0] * 4, steps=1)[0].desired == 4
    assert run("queue:24,guard=0.85,knee=1000", [1.0] * 4, silent=1)[0].desired == 2
