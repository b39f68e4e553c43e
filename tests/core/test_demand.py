"""Every mixture of replicas on small fleets, against the formula: a hole never lowers the count nor raises it alone."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from infscale import reading
from infscale.core import demand
from infscale.core.demand import Demand, demand_of, fill, look
from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import AT_ONCE, ScaleState
from infscale.core.replicas import Held, Phase, Replica
from infscale.core.scaling import MetricName
from tests.core.workload import asked, fleet, serving

TARGET = 4.0
POLICY = parse_policy("queue:4,min=1,max=100,downwindow=0,up=100/15,down=100%/15")

KINDS = {
    "idle": serving("", 0.0),
    "busy": serving("", 4.0),
    "overloaded": serving("", 9.0),
    "saturated": serving("", 6.0, state="saturated"),
    "stale": serving("", 1.0, state="stale"),
    "silent": Replica("", Phase.SILENT, state="unreachable"),
    "starting": Replica("", Phase.STARTING, state="loading"),
    "draining": Replica("", Phase.DRAINING, inflight=30.0, running=30.0, waiting=0.0),
}
FLEETS = [kinds for size in range(1, 5) for kinds in combinations_with_replacement(KINDS, size)]


def named(kinds: tuple[str, ...]) -> tuple[Replica, ...]:
    """Such replicas, each with a name of its own."""
    fields = ("phase", "running", "waiting", "inflight", "state")
    return tuple(
        Replica(f"r{n}", **{field: getattr(KINDS[kind], field) for field in fields}) for n, kind in enumerate(kinds)
    )


def hpa(requests: float, current: int) -> int:
    """What the HPA makes of a sum at a count, written down once more: the tolerance of 10 %, else the ceiling."""
    if current and 0.9 <= requests / (TARGET * current) <= 1.1:
        return current
    return math.ceil(requests / TARGET)


def expected(kinds: tuple[str, ...], held: float) -> tuple[float | None, int]:
    """Demand and count by the formula, from the kinds alone."""
    values = {"idle": 0.0, "busy": 4.0, "overloaded": 9.0, "saturated": 6.0, "stale": 1.0}
    given = [values[kind] for kind in kinds if kind in values]
    silent = kinds.count("silent")
    should = len(given) + silent
    current = max(1, len(kinds) - kinds.count("draining"))
    known = sum(given)
    full = TARGET * should
    demand = known if not silent or known >= full else min(known + TARGET * silent, full)
    if not given or len(given) < 0.5 * should:
        count = max(current, hpa(known + held, current) if given or held else 0)
    else:
        count = hpa(demand + held, current)
        if "stale" in kinds:
            count = max(current, count)
    return demand + held if should or held else None, max(1, count)


@pytest.mark.parametrize("held", [0.0, 3.0, 50.0])
def test_every_mixture_of_up_to_four_replicas(held):
    """The demand and the count are those of the formula."""
    for kinds in FLEETS:
        current = max(1, len(kinds) - kinds.count("draining"))
        decision, _ = decide(POLICY, fleet(*named(kinds), spec=current, held=Held(held)), AT_ONCE)
        assert (decision.demand, decision.desired) == expected(kinds, held), kinds


def test_a_replica_that_falls_silent_never_lowers_the_count():
    """Not below what it would be with its value, if that was at most the target; and not above either.

    Beside starting replicas it can: all expected ones at their target are fewer than the count, and that is the most
    that the formula fills in. The window holds such a fall.
    """
    for kinds in FLEETS:
        if "starting" in kinds:
            continue
        for position, kind in enumerate(kinds):
            if kind not in ("idle", "busy"):
                continue
            hole = (*kinds[:position], "silent", *kinds[position + 1 :])
            current = max(1, len(kinds) - kinds.count("draining"))
            whole, _ = decide(POLICY, fleet(*named(kinds), spec=current), AT_ONCE)
            holed, _ = decide(POLICY, fleet(*named(hole), spec=current), AT_ONCE)
            assert asked(holed) >= min(asked(whole), current), (kinds, hole)
            assert asked(holed) <= max(asked(whole), current), (kinds, hole)


def test_with_nothing_measured_nothing_falls():
    """Only silent, starting and draining replicas: the count stays, and says so."""
    for kinds in combinations_with_replacement(("silent", "starting", "draining"), 4):
        decision, _ = decide(POLICY, fleet(*named(kinds), spec=4), AT_ONCE)
        assert (decision.desired, decision.reason, decision.inflight) == (4, "no_samples", None), kinds


@pytest.mark.parametrize(
    ("known", "missing", "expected", "filled"),
    [
        (10.0, 0, 4, 10.0),
        (10.0, 1, 4, 14.0),
        (14.0, 1, 4, 16.0),
        (16.0, 1, 4, 16.0),
        (40.0, 3, 4, 40.0),
        (0.0, 4, 4, 16.0),
        (0.0, 0, 0, 0.0),
    ],
)
def test_filling(known, missing, expected, filled):
    """A silent replica counts as at its target, all together up to all at theirs."""
    assert fill(known, missing, TARGET, expected) == filled


def test_what_is_no_number_is_no_value():
    """NaN, infinite, negative, absent and impossibly large values are holes, not loads."""
    replicas = [serving(f"r{n}", value) for n, value in enumerate((math.nan, math.inf, -1.0, 1e308, 2.0**53, 7.0))]
    demand = demand_of(MetricName.QUEUE, TARGET, look(fleet(*replicas)))
    assert demand == Demand(MetricName.QUEUE, known=7.0, given=1, expected=6, target=TARGET, held=0.0)
    decision, _ = decide(POLICY, fleet(*replicas[:5]), AT_ONCE)
    assert (decision.desired, decision.reason) == (5, "no_samples")


@pytest.mark.parametrize(
    "policy", ["queue:4", "hpa:queue:4", "kv:80", "cpu:80", "work:100", "queue:1e308", "queue:4+ttft:1"]
)
def test_no_sum_leaves_float64(policy):
    """Values near the end of float64, each finite: the count is held, and no sum of them is infinite or an error."""
    huge = dict.fromkeys(("waiting", "kv", "cpu_ratio", "generation_tokens", "prompt_tokens"), 1e308)
    replicas = [serving("a", 1e308, **huge), serving("b", 1e308, **huge), Replica("c", Phase.SILENT)]
    state = ScaleState()
    for now_s in (0.0, 15.0, 30.0):
        look_at = fleet(*replicas, now_s=now_s, held=Held(1e308))
        decision, state = decide(parse_policy(f"{policy},min=1,max=9"), look_at, state)
        assert (decision.desired, decision.inflight) == (3, None)


@pytest.mark.parametrize(("metric", "requests"), [("queue", 17.0), ("waiting", 9.0), ("running", 8.0)])
def test_held_requests_count_in_queue_and_waiting(metric, requests):
    """A held request waits; it does not run."""
    policy = parse_policy(f"{metric}:4,max=100")
    look_at = fleet(serving("a", 8.0, running=5.0, waiting=3.0), serving("b", 4.0, running=3.0, waiting=1.0))
    decision, _ = decide(policy, replace(look_at, held=Held(5.0)), AT_ONCE)
    assert (decision.demand, decision.inflight) == (requests, 17.0)


def test_the_coverage_is_the_policys():
    """One of three is below a half; with coverage=0.3 it is enough, with coverage=0 one value still has to be there."""
    replicas = named(("idle", "silent", "silent"))
    for text, desired in (("", 3), (",coverage=0.3", 2), (",coverage=0", 2)):
        policy = parse_policy("queue:4,max=100,downwindow=0" + text)
        assert decide(policy, fleet(*replicas), AT_ONCE)[0].desired == desired
    policy = parse_policy("queue:4,max=100,downwindow=0,coverage=0")
    decision, _ = decide(policy, fleet(*named(("silent", "starting", "starting"))), AT_ONCE)
    assert (decision.desired, decision.reason) == (3, "no_samples")


def test_a_source_that_failed_changes_nothing_but_for_held_requests():
    """What was known before is not counted; what the activator says is."""
    replicas = named(("idle", "idle", "idle"))
    decision, _ = decide(POLICY, fleet(*replicas, failure="prometheus: refused"), AT_ONCE)
    assert (decision.desired, decision.reason, decision.coverage, decision.demand) == (3, "no_samples", 0.0, None)
    assert "prometheus: refused" in decision.steps[-1].words
    decision, _ = decide(POLICY, fleet(*replicas, failure="prometheus: refused", held=Held(20.0)), AT_ONCE)
    assert decision.desired == 5


def test_an_activator_that_does_not_answer_lets_nothing_fall():
    """What it holds is missing from the demand; a rise still goes."""
    decision, _ = decide(POLICY, fleet(*named(("idle", "idle")), held=Held(None)), AT_ONCE)
    assert (decision.desired, decision.reason) == (2, "partial_samples")
    decision, _ = decide(POLICY, fleet(*named(("overloaded", "overloaded")), held=Held(None)), AT_ONCE)
    assert decision.desired == 5


def test_without_a_count_nothing_is_recommended():
    """The sums are there, a recommendation is not, and the note says why."""
    look_at = fleet(*named(("busy", "silent")))
    decision, state = decide(POLICY, replace(look_at, spec_replicas=None), ScaleState())
    assert (decision.desired, decision.current, decision.hpa, decision.direction) == (None, None, None, "none")
    assert (decision.inflight, decision.demand, decision.coverage) == (4.0, 8.0, 0.5)
    assert "replica count was not read" in decision.note
    assert state.hpa.recommendations is None


def test_the_status_count_is_what_the_tolerance_looks_at():
    """The HPA's A: 8 requests at a target of 4 are just right for the two that are there, whatever is asked for."""
    replicas = named(("busy", "busy"))
    assert decide(POLICY, fleet(*replicas, spec=3, status_replicas=2), AT_ONCE)[0].desired == 2
    assert decide(POLICY, fleet(*named(("busy", "busy", "starting")), status_replicas=3), AT_ONCE)[0].desired == 2
    surge = fleet(serving("a", 80.0), spec=20, status_replicas=22)
    assert decide(POLICY, surge, AT_ONCE)[0].desired == 22


def test_a_hole_raises_nothing_while_replicas_leave():
    """Three asked for, four still there, one of them silent: filled in, all four would look needed."""
    replicas = named(("busy", "busy", "busy", "silent"))
    decision, _ = decide(POLICY, fleet(*replicas, spec=3, status_replicas=4), AT_ONCE)
    assert (decision.demand, decision.desired) == (16.0, 3)


def test_the_steps_say_what_was_filled_in():
    """The HPA's proposal first, then what the layer made of it, with the numbers."""
    decision, _ = decide(POLICY, fleet(*named(("idle", "busy", "busy", "silent"))), AT_ONCE)
    assert [step.name for step in decision.steps] == ["metrics", "fill", "stabilise", "limit"]
    assert decision.steps[1].words == (
        "3 instead of 2: 1 replicas without a value count as at their target: "
        "queue: 12 over 4 per replica at a count of 4 is a ratio of 0.75, proposes 3"
    )
    assert (decision.hpa, decision.desired, decision.reason) == (2, 3, "partial_samples")


def test_a_page_and_a_decision_draw_the_line_at_the_same_number():
    """What is a count on a page is one in a decision; the core imports nothing, so the number stands there twice."""
    assert demand.COUNT_LIMIT == reading.COUNT_LIMIT
