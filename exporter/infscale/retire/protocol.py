"""The retirement's states, budgets and transitions: a record, what was seen and the time give the next record.

| state | leaves when | budget |
|---|---|---|
| Admitted | the target is chosen and frozen | |
| Withdrawing | requests cannot reach it any more | 30 s |
| Draining | two idle reads, at least 1 s apart, with the same counters, out of rotation at each | 240 s |
| Deleting | its deletion cost is the lowest, no sibling is unready, the scale is down by one, and it leaves | |
| Settling | it is gone | 30 s, only reported |
| Completed, Aborted | final | |

All of it has 300 s; a phase ends at the smaller of its own and the overall deadline, and a budget that is used up to
the instant is exhausted. From Deleting on nothing aborts. A target that never was ready goes from Withdrawing (or
Draining) to Deleting without reads.

Level-based: each pass begins at the record and looks anew; nothing is known from the pass before but what the record
says. Until the scale is patched, Deleting asks for the same proof at each pass as Draining did. Pure; `passes` looks,
keeps the record and does what a `Step` says. See docs/retire.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from infscale.retire.member import HELD, REFUSED
from infscale.retire.record import Cut, IdleRead, Record, State
from infscale.retire.rules import Reason, Rule
from infscale.retire.seen import Choice, Fleet, Presence, Seen

OVERALL_S = 300.0
BUDGETS_S: Mapping[State, float] = {State.WITHDRAWING: 30.0, State.DRAINING: 240.0, State.SETTLING: 30.0}
"""Of a phase alone; a state that is not here has the overall budget only."""

READS_APART_S = 1.0
"""At least between the two idle reads."""

SAME_START_S = 1.0
"""An engine's start is computed from the boot time and wobbles by some hundredths of a second."""

UNANSWERED_CUT_S = 30.0
"""So long the workload's controller may take to delete a Pod after the scale was patched; then the target itself is
deleted, with its UID as the precondition."""


class Act(Enum):
    """What is to be done once the record is written."""

    WRITE_COST = "write the deletion cost"
    SCALE_DOWN = "scale down by one"
    DELETE = "delete the target"
    PUT_BACK = "put the target back in rotation"


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from a look.

    Attributes:
        record: the next one.
        act: what to do once that is written.
        hold: what holds it back where it does not go on.
        cost: the deletion cost to write.
    """

    record: Record
    act: Act | None = None
    hold: Reason | None = None
    cost: int | None = None


def deadline_s(record: Record) -> float:
    """When the record's phase is over: the smaller of its own and the overall deadline."""
    overall_s = record.started_s + OVERALL_S
    own_s = BUDGETS_S.get(record.state)
    return overall_s if own_s is None else min(record.since_s + own_s, overall_s)


def advance(record: Record, seen: Seen, now_s: float) -> Step:
    """The step from a record, given what was seen, at `now_s` (Unix seconds, after the look)."""
    if record.state.final:
        return Step(record)
    exhausted = now_s >= deadline_s(record)
    if record.state is State.SETTLING:
        return _settling(record, seen, now_s, exhausted)
    step = _held(record, seen.fault) if seen.fault else _HANDLERS[record.state](record, seen, now_s)
    if exhausted and record.state.may_abort and step.record.state is not State.ABORTED:
        return abort(record, _exhausted(record, step), now_s)
    return step


def abort(record: Record, reason: Reason, now_s: float) -> Step:
    """End it without taking anything away; the target goes back in rotation."""
    ended = replace(record, state=State.ABORTED, since_s=now_s, idle=None, reason=str(reason))
    return Step(ended, Act.PUT_BACK if record.members else None, reason)


def _exhausted(record: Record, step: Step) -> Reason:
    """The budget that is over, and what held the retirement back to the end."""
    budget_s = deadline_s(record) - record.since_s
    cause = f"; last: {step.hold}" if step.hold else ""
    return Reason(Rule.BUDGET, f"{budget_s:.0f} s for {record.state.value} are over{cause}")


def _to(record: Record, state: State, now_s: float) -> Step:
    return Step(replace(record, state=state, since_s=now_s))


def _held(record: Record, reason: Reason, *, idle: IdleRead | None = None) -> Step:
    """It stays where it is; the first idle read counts no longer unless it is given again."""
    return Step(replace(record, idle=idle), hold=reason)


def _admitted(record: Record, seen: Seen, now_s: float) -> Step:
    choice = seen.choice or Choice(hold=Reason(Rule.NO_TARGET, "nobody looked"))
    if choice.refusal:
        return abort(record, choice.refusal, now_s)
    if not choice.members:
        return _held(record, choice.hold or Reason(Rule.NO_TARGET, "no replica can be chosen"))
    return _to(replace(record, members=choice.members), State.WITHDRAWING, now_s)


def _withdrawing(record: Record, seen: Seen, now_s: float) -> Step:
    if seen.presence is not Presence.HERE:
        return abort(record, _left(record, seen), now_s)
    if seen.never_ready:
        return _to(record, State.DELETING, now_s)
    if seen.in_rotation:
        return _held(record, seen.in_rotation)
    return _to(record, State.DRAINING, now_s)


def _draining(record: Record, seen: Seen, now_s: float) -> Step:
    if seen.presence is not Presence.HERE:
        return abort(record, _left(record, seen), now_s)
    if not seen.never_ready and seen.verdict and seen.verdict.kind == REFUSED:
        return abort(record, seen.verdict.reason, now_s)
    proved = _proof(record, seen, now_s)
    return proved if proved.hold else _to(proved.record, State.DELETING, now_s)


def _left(record: Record, seen: Seen) -> Reason:
    return Reason(Rule.TARGET_LEFT, f"pod {record.target} is {seen.presence.value}, and not by this retirement")


def _proof(record: Record, seen: Seen, now_s: float) -> Step:
    """Whether it is proven now that nothing is lost with the target; the step is held where it is not."""
    if seen.never_ready:
        return Step(record)
    if seen.in_rotation:
        return _held(record, seen.in_rotation)
    verdict = seen.verdict
    if verdict is None or verdict.kind in (HELD, REFUSED):
        return _held(record, verdict.reason if verdict else Reason(Rule.READ_FAILED, "no read was made"))
    first = record.idle
    this = IdleRead(now_s, verdict.engine_read_at_s, verdict.counters, verdict.started_at_s)
    if first is None:
        return _held(record, Reason(Rule.ONE_READ, "idle once; a second read has to confirm it"), idle=this)
    if not _same_start(first, this):
        return _held(record, Reason(Rule.RESTARTED, "the engine's process is another than at the first idle read"))
    if first.counters != this.counters:
        why = "idle, but its counters moved since the first idle read: a request came and went"
        return _held(record, Reason(Rule.COUNTERS, why), idle=this)
    if _apart_s(first, this) < READS_APART_S:
        why = f"two idle reads within {READS_APART_S:g} s are one"
        return _held(record, Reason(Rule.ONE_READ, why), idle=first)
    return Step(record)


def _same_start(first: IdleRead, second: IdleRead) -> bool:
    if first.started_at_s is None or second.started_at_s is None:
        return first.started_at_s == second.started_at_s
    return abs(first.started_at_s - second.started_at_s) <= SAME_START_S


def _apart_s(first: IdleRead, second: IdleRead) -> float:
    """Between our two reads, and between the sidecar's two reads of the engine: a shared read is one read."""
    apart_s = second.at_s - first.at_s
    if first.engine_read_at_s is None or second.engine_read_at_s is None:
        return apart_s
    return min(apart_s, second.engine_read_at_s - first.engine_read_at_s)


def _deleting(record: Record, seen: Seen, now_s: float) -> Step:
    if seen.presence is not Presence.HERE:
        why = "" if record.cut else str(_left(record, seen))
        return _to(replace(record, reason=why), State.SETTLING, now_s)
    fleet = seen.fleet
    if fleet is None:
        return _held(record, Reason(Rule.UNSETTLED, "nobody looked at the workload"), idle=record.idle)
    if record.cut and (record.cut.done or fleet.replicas != record.cut.before):
        return _after_the_cut(record, record.cut, fleet, seen, now_s)
    proved = _proof(record, seen, now_s)
    if proved.hold:
        return proved
    if fleet.trouble:
        return _held(record, fleet.trouble, idle=record.idle)
    if fleet.steered and (step := _steer(record, fleet)):
        return step
    # One that was written before was not done: the time that the controller has for it begins with this patch.
    return Step(replace(record, cut=Cut(fleet.replicas, fleet.replicas - 1, now_s)), Act.SCALE_DOWN)


def _steer(record: Record, fleet: Fleet) -> Step | None:
    """Make the target's deletion cost the lowest; None once the API server shows that it is."""
    others = 0 if fleet.lowest_other is None else fleet.lowest_other
    present = fleet.cost if fleet.foreign_cost is None else fleet.foreign_cost
    if (present is not None and present < others) or fleet.lowest_other is None:
        return None
    if fleet.foreign_cost is not None:
        why = f"another writes it on pod {record.target} ({fleet.foreign_cost}), and it is not the lowest ({others} is)"
        return _held(record, Reason(Rule.COST, f"{why}: it is left alone"), idle=record.idle)
    cost = min(others, 0) - 1
    if cost < -(2**31):
        why = f"a sibling of pod {record.target} has the lowest that there is: nothing is below it"
        return _held(record, Reason(Rule.COST, why), idle=record.idle)
    return Step(record, Act.WRITE_COST, Reason(Rule.COST, f"{cost} is written; waiting for its echo"), cost)


def _after_the_cut(record: Record, cut: Cut, fleet: Fleet, seen: Seen, now_s: float) -> Step:
    """The scale is down, and the target is still here: its controller has not acted, or acted otherwise."""
    if fleet.replicas >= cut.before:
        why = f"another writer set the replicas to {fleet.replicas} meanwhile: once more from there"
        return Step(replace(record, cut=None), hold=Reason(Rule.SCALE, why))
    if fleet.active <= fleet.replicas:
        why = f"another replica left in its place: pod {record.target} stays, and is back in rotation"
        ended = replace(record, state=State.COMPLETED, since_s=now_s, reason=str(Reason(Rule.SCALE, why)))
        return Step(ended, Act.PUT_BACK)
    waiting = Reason(Rule.SCALE, f"{cut.before} to {cut.after} is written; waiting for the controller")
    if now_s - cut.at_s < UNANSWERED_CUT_S:
        return _held(record, waiting, idle=record.idle)
    proved = _proof(record, seen, now_s)
    return proved if proved.hold else Step(record, Act.DELETE, waiting)


def _settling(record: Record, seen: Seen, now_s: float, exhausted: bool) -> Step:
    ended = replace(record, state=State.COMPLETED, since_s=now_s)
    if not seen.fault and seen.presence is Presence.GONE:
        return Step(ended)
    if exhausted:
        why = Reason(Rule.BUDGET, f"pod {record.target} is still terminating: its grace period is its own")
        return Step(replace(ended, reason=str(why)), hold=why)
    return Step(record, hold=seen.fault or Reason(Rule.TARGET_LEFT, f"pod {record.target} is terminating"))


_HANDLERS: Mapping[State, Callable[[Record, Seen, float], Step]] = {
    State.ADMITTED: _admitted,
    State.WITHDRAWING: _withdrawing,
    State.DRAINING: _draining,
    State.DELETING: _deleting,
}
