"""Time to first token: the quantile of what came between two looks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infscale.core.decision import Proposal
from infscale.core.demand import look
from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import AT_ONCE, Memory
from infscale.core.numbers import Tolerance
from infscale.core.replicas import Buckets, Phase, Replica
from infscale.core.scale_decision import ScaleDecision
from infscale.core.ttft import added, propose_ttft, worst_first
from tests.core.workload import fleet, serving

BOUNDS = (0.25, 0.5, 1.0, 2.5, math.inf)
OTHER = (0.1, 10.0, math.inf)
BEFORE = (100.0, 200.0, 300.0, 300.0, 300.0)
HALF_WAY = (110.0, 218.0, 320.0, 320.0, 320.0)
"""Added: 10, 18, 20, 20, 20. Rank 19 of 20 is half-way from 18 to 20: 0.75 s."""


def replica(name: str, *counts: tuple[float, ...], bounds: tuple[float, ...] = BOUNDS, **fields) -> Replica:
    """A serving replica with such histograms, all of one layout unless told."""
    return serving(name, 1.0, ttft=tuple(Buckets(bounds, one) for one in counts), **fields)


def looks(policy: str, *fleets: tuple[Replica, ...]) -> ScaleDecision:
    """The decision at the last of some looks, 15 s apart, at a count of as many replicas as are not leaving."""
    state, decision = AT_ONCE, None
    for step, replicas in enumerate(fleets):
        scale = parse_policy(f"{policy},max=50,downwindow=0,up=50/15")
        decision, state = decide(scale, fleet(*replicas, now_s=15.0 * step), state)
    assert decision is not None
    return decision


def four(counts: tuple[float, ...]) -> tuple[Replica, ...]:
    """Four replicas, one of which has this histogram and the others one that never changes."""
    return (replica("r0", counts), *(replica(f"r{n}", BEFORE) for n in range(1, 4)))


def test_half_way_through_the_bucket_up_to_one_second():
    """0.75 s over 0.5 s is a ratio of 1.5: 4 replicas become 6; over 1 s, 3."""
    decision = looks("ttft:0.5", four(BEFORE), four(HALF_WAY))
    assert (decision.desired, decision.reason) == (6, "metric")
    assert "ttft: 0.75 s over 0.5 s at a count of 4 is a ratio of 1.5, proposes 6" in decision.steps[0].words
    assert looks("ttft:1", four(BEFORE), four(HALF_WAY)).desired == 3
    assert looks("ttft:0.7", four(BEFORE), four(HALF_WAY)).reason == "tolerance"


def test_the_first_look_recommends_nothing():
    """There is nothing to take the difference from, and nothing falls."""
    decision = looks("ttft:0.5", four(HALF_WAY))
    assert (decision.desired, decision.reason) == (4, "no_samples")
    assert decision.steps[0].words == "ttft: no replica has a second read of its histogram"


def test_no_new_request_is_no_recommendation():
    """Alone the count stays; beside the queue, the queue decides, also down."""
    decision = looks("ttft:0.5", four(BEFORE), four(BEFORE))
    assert (decision.desired, decision.reason) == (4, "no_samples")
    assert [step.words for step in decision.steps] == [
        "ttft: no new request since the last read",
        "4 is held: no metric gives a recommendation",
    ]
    assert looks("ttft:0.5+queue:4", four(BEFORE), four(BEFORE)).desired == 1


def test_a_bucket_that_went_down_is_a_restart():
    """All of the counts are since then: 0.75 s again."""
    since = (10.0, 18.0, 20.0, 20.0, 20.0)
    assert looks("ttft:0.5", four(BEFORE), four(since)).desired == 6
    # Also where only the upper ones are below, as after more short requests than before.
    short = (110.0, 201.0, 202.0, 202.0, 202.0)
    layouts, telling = added(four(short)[:1], {"r0": Memory(ttft=four(BEFORE)[0].ttft)})
    assert (layouts[BOUNDS], telling) == (short, 1)


def test_only_a_replica_with_a_read_before_can_tell():
    """One that is new, one whose histograms are new and one that gives none are passed over, whatever their order."""
    seen = (replica("new", HALF_WAY), replica("marks", HALF_WAY), serving("none", 1.0), *four(HALF_WAY)[:1])
    before = {"marks": Memory(), "none": Memory(ttft=four(BEFORE)[0].ttft), "r0": Memory(ttft=four(BEFORE)[0].ttft)}
    assert added(seen, before) == ({BOUNDS: (10.0, 18.0, 20.0, 20.0, 20.0)}, 1)


def test_a_layout_that_is_new_counts_from_nothing():
    """A second model that was loaded since the last read."""
    both = replica("a", HALF_WAY), replica("a", (1.0, 4.0, 4.0), bounds=OTHER)
    now = serving("a", 1.0, ttft=(*both[0].ttft, *both[1].ttft))
    layouts, telling = added([now], {"a": Memory(ttft=replica("a", BEFORE).ttft)})
    assert (layouts, telling) == ({BOUNDS: (10.0, 18.0, 20.0, 20.0, 20.0), OTHER: (1.0, 4.0, 4.0)}, 1)


@pytest.mark.parametrize(
    ("seconds", "current", "starting", "proposal"),
    [
        (0.75, 4, 0, Proposal(6, False, "a ratio of 1.5, proposes 6", 750)),
        (0.75, 2, 1, Proposal(2, False, "a ratio of 1.5, proposes 2", 750)),  # one carries it all: two are enough
        (1.5, 2, 1, Proposal(3, False, "a ratio of 3, proposes 3", 1500)),
        (1.5, 1, 1, Proposal(3, False, "a ratio of 3, proposes 3", 1500)),  # asked for one less meanwhile
        (0.53, 4, 0, Proposal(4, True, "a ratio of 1.06, keeps 4 (within the tolerance)", 530)),
        (0.2, 4, 0, Proposal(2, False, "a ratio of 0.4, proposes 2", 200)),
    ],
)
def test_the_proposal_with_its_numbers(seconds, current, starting, proposal):
    """Count, tolerance, words and the value in thousandths; starting replicas do not multiply."""
    starts = [Replica(f"n{n}", Phase.STARTING) for n in range(starting)]
    view = look(fleet(serving("a"), *starts))
    words = f"ttft: {seconds} s over 0.5 s at a count of {current} is {proposal.words}"
    tolerance = Tolerance(0.1, 0.1)
    assert propose_ttft(seconds, 0.5, tolerance, current, view, 1) == replace(proposal, words=words)


def test_layouts_are_never_merged_and_the_worst_counts():
    """An engine with other buckets beside: each has its own quantile."""
    old = (replica("a", BEFORE), replica("b", (5.0, 5.0, 5.0), bounds=OTHER))
    new = (replica("a", HALF_WAY), replica("b", (5.0, 15.0, 15.0), bounds=OTHER))
    layouts, _ = added(new, {one.name: Memory(ttft=one.ttft) for one in old})
    assert worst_first(layouts, 0.95) == [pytest.approx(9.505), 0.75]
    assert looks("ttft:9.505", old, new).reason == "tolerance"


def test_replicas_of_one_layout_add_up():
    """Two models of one replica too."""
    old = (replica("a", BEFORE, BEFORE), replica("b", BEFORE))
    new = (replica("a", HALF_WAY, BEFORE), replica("b", HALF_WAY))
    layouts, telling = added(new, {one.name: Memory(ttft=one.ttft) for one in old})
    assert (layouts, telling) == ({BOUNDS: (20.0, 36.0, 40.0, 40.0, 40.0)}, 2)


def test_the_quantile_is_the_policys():
    """The median of the same requests is 0.25 s: half of 0.5 s."""
    assert looks("ttft:0.5,quantile=0.5", four(BEFORE), four(HALF_WAY)).desired == 2


def test_silent_replicas_dampen_a_fall_and_not_a_rise():
    """A silent one counts as at the target: (0.75 * 3 + 1) / 4 of 4; three of four silent hold a fall."""
    silent = tuple(Replica(f"s{n}", Phase.SILENT) for n in range(3))
    three = [four(counts)[:3] for counts in (BEFORE, HALF_WAY)]
    assert looks("ttft:1.5", *((*seen, silent[0]) for seen in three)).desired == 3
    assert looks("ttft:0.5", *((*seen, silent[0]) for seen in three)).desired == 6
    one = [four(counts)[:1] for counts in (BEFORE, HALF_WAY)]
    assert looks("ttft:1.5", *((*seen, *silent) for seen in one)).reason == "partial_samples"
    assert looks("ttft:0.5", *((*seen, *silent) for seen in one)).desired == 6


def test_a_replica_that_was_silent_is_compared_with_its_last_read():
    """What came meanwhile counts with the first read after it."""
    gone = tuple(Replica(f"r{n}", Phase.SILENT) for n in range(4))
    assert looks("ttft:0.5", four(BEFORE), gone, gone, four(HALF_WAY)).desired == 6
