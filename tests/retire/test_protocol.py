"""States, budgets and transitions, on values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infscale.retire.member import IDLE, Verdict, held, refused
from infscale.retire.protocol import (
    BUDGETS_S,
    OVERALL_S,
    UNANSWERED_CUT_S,
    Act,
    advance,
    deadline_s,
)
from infscale.retire.record import Cut, Frozen, IdleRead, Record, State
from infscale.retire.rules import Reason, Rule
from infscale.retire.seen import Choice, Fleet, Presence, Seen

T = 1_000.0
POD = Frozen("vllm-1", "uid-1", "engine", "containerd://a", "rs", "10.0.0.1")
IN_ROTATION = Reason(Rule.ENDPOINTS, "Service vllm still sends requests there")
BUSY = held(Rule.SERVING, "3 requests in flight", 3.0)
FALSE = refused(Rule.FALSE_CLAIM, "the sidecar says idle")
FLEET = Fleet(replicas=3, active=3, cost=-1, lowest_other=0)


def idle(counters: str = "c", *, read_at_s: float | None = None, started_at_s: float | None = 5.0) -> Verdict:
    """The verdict of an idle read."""
    return Verdict(IDLE, Reason(Rule.ONE_READ, "nothing is in flight"), 0.0, counters, read_at_s, started_at_s)


def record(state: State, **more: object) -> Record:
    """A record that entered its state when it was admitted."""
    members = () if state is State.ADMITTED else (POD,)
    return replace(Record("deployment ml/vllm", "uid", state, T, T, members), **more)  # type: ignore[arg-type]


FIRST = IdleRead(T, None, "c", 5.0)


def rule_of(hold: Reason | None) -> Rule | None:
    """The rule of a hold."""
    return hold.rule if hold else None


@pytest.mark.parametrize(
    ("before", "seen", "after"),
    [
        (record(State.ADMITTED), Seen(choice=Choice((POD,))), State.WITHDRAWING),
        (record(State.WITHDRAWING), Seen(), State.DRAINING),
        (record(State.WITHDRAWING), Seen(never_ready=True), State.DELETING),
        (record(State.DRAINING, idle=FIRST), Seen(verdict=idle()), State.DELETING),
        (record(State.DRAINING), Seen(never_ready=True), State.DELETING),
        (record(State.DELETING), Seen(presence=Presence.LEAVING), State.SETTLING),
        (record(State.DELETING), Seen(presence=Presence.GONE), State.SETTLING),
        (record(State.SETTLING), Seen(presence=Presence.GONE), State.COMPLETED),
        (record(State.ADMITTED), Seen(choice=Choice(refusal=IN_ROTATION)), State.ABORTED),
        (record(State.WITHDRAWING), Seen(presence=Presence.LEAVING), State.ABORTED),
        (record(State.WITHDRAWING), Seen(presence=Presence.GONE), State.ABORTED),
        (record(State.DRAINING), Seen(presence=Presence.LEAVING), State.ABORTED),
        (record(State.DRAINING), Seen(presence=Presence.GONE), State.ABORTED),
        (record(State.DRAINING), Seen(verdict=FALSE), State.ABORTED),
    ],
)
def test_goes_on(before, seen, after):
    """Each transition of the table, and each way into Aborted."""
    step = advance(before, seen, T + 2)

    assert step.record.state is after
    assert step.record.since_s == T + 2
    assert step.record.started_s == T


@pytest.mark.parametrize(
    ("before", "seen", "rule"),
    [
        (record(State.ADMITTED), Seen(choice=Choice(hold=IN_ROTATION)), Rule.ENDPOINTS),
        (record(State.WITHDRAWING), Seen(in_rotation=IN_ROTATION), Rule.ENDPOINTS),
        (record(State.DRAINING), Seen(verdict=BUSY), Rule.SERVING),
        (record(State.DRAINING), Seen(), Rule.READ_FAILED),
        (record(State.DRAINING), Seen(verdict=idle()), Rule.ONE_READ),
        (record(State.DRAINING, idle=FIRST), Seen(verdict=idle("d")), Rule.COUNTERS),
        (record(State.DRAINING, idle=FIRST), Seen(verdict=idle(started_at_s=9.0)), Rule.RESTARTED),
        (record(State.DRAINING, idle=FIRST), Seen(verdict=idle(), in_rotation=IN_ROTATION), Rule.ENDPOINTS),
        (record(State.DRAINING, idle=FIRST), Seen(fault=Reason(Rule.API, "down")), Rule.API),
        (record(State.DELETING, idle=FIRST), Seen(verdict=FALSE, fleet=FLEET), Rule.FALSE_CLAIM),
        (record(State.DELETING, idle=FIRST), Seen(verdict=BUSY, fleet=FLEET), Rule.SERVING),
        (record(State.DELETING, idle=FIRST), Seen(in_rotation=IN_ROTATION, fleet=FLEET), Rule.ENDPOINTS),
        (record(State.DELETING, idle=FIRST), Seen(verdict=idle()), Rule.UNSETTLED),
        (record(State.SETTLING), Seen(presence=Presence.LEAVING), Rule.TARGET_LEFT),
    ],
)
def test_holds(before, seen, rule):
    """What holds in each state: it stays, it does nothing, and the reason names the rule."""
    step = advance(before, seen, T + 2)

    assert step.record.state is before.state
    assert (step.act, rule_of(step.hold)) == (None, rule)


@pytest.mark.parametrize(
    ("apart_s", "read_apart_s", "on"),
    [(0.99, None, False), (1.0, None, True), (5.0, 0.99, False), (5.0, 0.0, False), (5.0, 1.0, True)],
)
def test_two_reads_are_a_second_apart(apart_s, read_apart_s, on):
    """Our reads, and the sidecar's own reads of the engine: a read that it shares is one."""
    at = None if read_apart_s is None else 50.0
    first = replace(FIRST, engine_read_at_s=at)
    second = idle(read_at_s=None if at is None else at + (read_apart_s or 0.0))
    step = advance(record(State.DRAINING, idle=first), Seen(verdict=second), T + apart_s)

    assert (step.record.state is State.DELETING) is on
    assert on or step.record.idle == first


@pytest.mark.parametrize("between", [Seen(verdict=BUSY), Seen(in_rotation=IN_ROTATION), Seen(verdict=FALSE)])
def test_idle_reads_are_consecutive(between):
    """Whatever comes between two idle reads begins the count anew."""
    step = advance(record(State.DELETING, idle=FIRST), replace(between, fleet=FLEET), T + 1)

    assert step.record.idle is None


def test_counters_that_moved_begin_the_count_anew():
    """Idle with other counters is the first idle read, not the second."""
    step = advance(record(State.DRAINING, idle=FIRST), Seen(verdict=idle("d")), T + 2)
    again = advance(step.record, Seen(verdict=idle("d")), T + 4)

    assert step.record.idle == IdleRead(T + 2, None, "d", 5.0)
    assert again.record.state is State.DELETING


BUSY_SEEN = {
    State.ADMITTED: Seen(choice=Choice(hold=Reason(Rule.UNSETTLED, "rolls out"))),
    State.WITHDRAWING: Seen(in_rotation=IN_ROTATION),
    State.DRAINING: Seen(verdict=BUSY),
}


@pytest.mark.parametrize(("state", "budget_s"), [(State.ADMITTED, 300), (State.WITHDRAWING, 30), (State.DRAINING, 240)])
def test_a_budget_that_is_used_up_aborts(state, budget_s):
    """At the instant of its end a phase is exhausted, a moment before it is not; the reason tells what held it."""
    late = advance(record(state), BUSY_SEEN[state], T + budget_s)
    before = advance(record(state), BUSY_SEEN[state], T + budget_s - 0.001)

    assert before.record.state is state
    assert late.record.state is State.ABORTED
    assert rule_of(late.hold) is Rule.BUDGET
    assert f"{budget_s} s for {state.value} are over" in late.record.reason
    assert str(before.hold) in late.record.reason


@pytest.mark.parametrize(
    ("state", "well"),
    [
        (State.ADMITTED, Seen(choice=Choice((POD,)))),
        (State.WITHDRAWING, Seen()),
        (State.DRAINING, Seen(verdict=idle())),
    ],
)
def test_equality_is_exhausted_even_if_all_is_well(state, well):
    """What would go on at the very end of its budget is too late."""
    at_s = T + BUDGETS_S.get(state, OVERALL_S)

    assert advance(record(state, idle=FIRST), well, at_s).record.state is State.ABORTED


def test_the_overall_budget_ends_a_phase_that_has_its_own_left():
    """Withdrawing entered 280 s after the admission has 20 s."""
    late = record(State.WITHDRAWING, since_s=T + 280)

    assert deadline_s(late) == T + 300
    assert advance(late, BUSY_SEEN[State.WITHDRAWING], T + 299).record.state is State.WITHDRAWING
    assert advance(late, BUSY_SEEN[State.WITHDRAWING], T + 300).record.state is State.ABORTED


def test_an_abort_puts_the_target_back():
    """Aborted keeps the Pod and takes it back in rotation; without a target there is nothing to put back."""
    with_target = advance(record(State.DRAINING), Seen(verdict=FALSE), T)
    without = advance(record(State.ADMITTED), Seen(choice=Choice(refusal=IN_ROTATION)), T)

    assert with_target.act is Act.PUT_BACK
    assert without.act is None


def test_deleting_steers_before_it_scales():
    """First the lowest deletion cost is written, then its echo is waited for, then the scale goes down by one."""
    before = record(State.DELETING, idle=FIRST)
    unwritten = Seen(verdict=idle(), fleet=replace(FLEET, cost=None))
    write = advance(before, unwritten, T + 2)
    scale = advance(write.record, Seen(verdict=idle(), fleet=FLEET), T + 3)

    assert (write.act, write.cost, rule_of(write.hold)) == (Act.WRITE_COST, -1, Rule.COST)
    assert (scale.act, scale.record.cut) == (Act.SCALE_DOWN, Cut(3, 2, T + 3))


@pytest.mark.parametrize(
    ("fleet", "act", "cost"),
    [
        (replace(FLEET, cost=None, lowest_other=-7), Act.WRITE_COST, -8),
        (replace(FLEET, cost=-1, lowest_other=-1), Act.WRITE_COST, -2),
        (replace(FLEET, cost=None, lowest_other=100), Act.WRITE_COST, -1),
        (replace(FLEET, cost=None, lowest_other=None, replicas=1, active=1), Act.SCALE_DOWN, None),
        (replace(FLEET, cost=None, foreign_cost=-5, lowest_other=0), Act.SCALE_DOWN, None),
        (replace(FLEET, cost=None, foreign_cost=50, lowest_other=0), None, None),
        (replace(FLEET, cost=None, lowest_other=-(2**31)), None, None),
        (replace(FLEET, cost=None, steered=False), Act.SCALE_DOWN, None),
    ],
)
def test_deletion_cost(fleet, act, cost):
    """Below every sibling's; a foreign cost is left alone, and will do only where it is the lowest as it is."""
    step = advance(record(State.DELETING, idle=FIRST), Seen(verdict=idle(), fleet=fleet), T + 2)

    assert (step.act, step.cost) == (act, cost)
    assert act is not None or rule_of(step.hold) is Rule.COST


def test_deleting_waits_for_siblings():
    """A sibling that is pending or unready holds the scale."""
    trouble = Reason(Rule.SIBLINGS, "vllm-2")
    step = advance(
        record(State.DELETING, idle=FIRST), Seen(verdict=idle(), fleet=replace(FLEET, trouble=trouble)), T + 2
    )

    assert (step.act, step.hold) == (None, trouble)


CUT = Cut(3, 2, T)


@pytest.mark.parametrize(
    ("cut", "replicas", "acts", "after"),
    [
        (CUT, 3, Act.SCALE_DOWN, Cut(3, 2, T + 2)),  # it was decided, and not done
        (CUT, 2, None, CUT),  # it was done, and nobody wrote that down
        (replace(CUT, done=True), 2, None, replace(CUT, done=True)),
    ],
)
def test_the_scale_is_never_patched_twice(cut, replicas, acts, after):
    """A controller that was killed around the patch sees by the count whether it was made."""
    fleet = replace(FLEET, replicas=replicas)
    step = advance(record(State.DELETING, idle=FIRST, cut=cut), Seen(verdict=idle(), fleet=fleet), T + 2)

    assert step.act is acts
    assert step.record.cut == after


def test_a_controller_that_does_not_act_is_helped():
    """The scale is down for 30 s and no Pod left: the target is deleted, if it is proven idle still."""
    fleet, cut = replace(FLEET, replicas=2), replace(CUT, done=True)
    before = record(State.DELETING, idle=FIRST, cut=cut)
    waits = advance(before, Seen(verdict=idle(), fleet=fleet), T + UNANSWERED_CUT_S - 1)
    helps = advance(before, Seen(verdict=idle(), fleet=fleet), T + UNANSWERED_CUT_S)
    busy = advance(before, Seen(verdict=BUSY, fleet=fleet), T + UNANSWERED_CUT_S)

    assert (waits.act, helps.act, busy.act) == (None, Act.DELETE, None)


def test_another_that_left_in_its_place_ends_it():
    """The count is down and the target is still here: it stays, and goes back in rotation."""
    fleet, cut = replace(FLEET, replicas=2, active=2), replace(CUT, done=True)
    step = advance(record(State.DELETING, idle=FIRST, cut=cut), Seen(verdict=idle(), fleet=fleet), T + 2)

    assert (step.record.state, step.act) == (State.COMPLETED, Act.PUT_BACK)
    assert "another replica left in its place" in step.record.reason


def test_another_writer_that_scales_up_meanwhile():
    """The count is back where it was: the patch is undone, and the next pass decides anew."""
    cut = replace(CUT, done=True)
    step = advance(record(State.DELETING, idle=FIRST, cut=cut), Seen(verdict=idle(), fleet=FLEET), T + 2)

    assert (step.act, step.record.cut, rule_of(step.hold)) == (None, None, Rule.SCALE)


@pytest.mark.parametrize("state", [State.DELETING, State.SETTLING])
@pytest.mark.parametrize("seen", [Seen(verdict=BUSY, fleet=FLEET), Seen(fault=Reason(Rule.API, "down")), Seen()])
def test_nothing_aborts_from_deleting_on(state, seen):
    """However late it is."""
    assert advance(record(state), seen, T + 10_000).record.state is not State.ABORTED


def test_settling_only_reports_its_budget():
    """A Pod that is still terminating after 30 s is reported, and the retirement is complete."""
    leaving = Seen(presence=Presence.LEAVING)
    before = advance(record(State.SETTLING), leaving, T + 29.9)
    late = advance(record(State.SETTLING), leaving, T + 30)

    assert before.record.state is State.SETTLING
    assert late.record.state is State.COMPLETED
    assert "still terminating" in late.record.reason


@pytest.mark.parametrize("state", [State.COMPLETED, State.ABORTED])
def test_final_is_final(state):
    """Nothing follows."""
    before = record(state)

    assert advance(before, Seen(verdict=idle(), fleet=FLEET), T + 5).record == before


HOLDS = st.sampled_from(
    [BUSY, FALSE, held(Rule.INCOMPLETE, "x"), held(Rule.READ_FAILED, "x"), held(Rule.RESTARTED, "x")]
)
VERDICTS = st.one_of(st.none(), HOLDS, st.sampled_from([idle(), idle("d"), idle(started_at_s=99.0)]))
FLEETS = st.builds(
    Fleet,
    replicas=st.integers(1, 4),
    active=st.integers(1, 4),
    trouble=st.sampled_from([None, None, Reason(Rule.SIBLINGS, "x")]),
    steered=st.booleans(),
    cost=st.sampled_from([None, -1, -2]),
    foreign_cost=st.sampled_from([None, None, 5]),
    lowest_other=st.sampled_from([None, 0, -1]),
)
SEEN = st.builds(
    Seen,
    fault=st.sampled_from([None, None, None, Reason(Rule.API, "down")]),
    choice=st.just(Choice((POD,))),
    presence=st.sampled_from([Presence.HERE] * 8 + [Presence.LEAVING, Presence.GONE]),
    never_ready=st.sampled_from([False] * 6 + [True]),
    in_rotation=st.sampled_from([None, None, None, IN_ROTATION]),
    verdict=VERDICTS,
    fleet=FLEETS,
)


@settings(max_examples=150)
@given(st.lists(st.tuples(SEEN, st.sampled_from([0.4, 1.0, 1.5, 20.0])), min_size=5, max_size=25))
def test_nothing_is_taken_away_without_a_proof(looks):
    """Over any run of looks: a scale or a delete only on an idle read that confirms an earlier one, or never ready."""
    now_s, at = T, record(State.ADMITTED)
    proofs: list[tuple[float, str]] = []  # idle reads in a row, since the last look that was none
    for seen, pause_s in looks:
        now_s += pause_s
        before, step = at, advance(at, seen, now_s)
        good = seen.verdict is not None and seen.verdict.kind == IDLE and not seen.in_rotation and not seen.fault
        if before.state in (State.DRAINING, State.DELETING) and not seen.never_ready:
            proofs = [*proofs, (now_s, seen.verdict.counters)] if good and seen.verdict else []
        if step.act in (Act.SCALE_DOWN, Act.DELETE):
            same = [at_s for at_s, counters in proofs if counters == proofs[-1][1]]
            assert seen.never_ready or (good and same[-1] - same[0] >= 1.0)
            assert seen.presence is Presence.HERE
            assert step.act is Act.DELETE or (seen.fleet and not seen.fleet.trouble)
        assert before.state.may_abort or before.state.final or step.record.state is not State.ABORTED
        assert step.record.started_s == T
        at = step.record
