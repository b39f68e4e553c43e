"""The queue, on a driven clock: order, bounds, time-outs, and what is told of each request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.activator.counts import HOLD_BUCKETS_S, HoldCounters
from infscale.activator.endpoints import Endpoint
from infscale.activator.queue import HoldQueue, QueueFull, Ticket

ENDPOINT = Endpoint("10.0.0.1")


class Rig:
    """A queue, and who was called with what."""

    def __init__(self, max_requests: int = 10, max_bytes: int = 1000, hold_s: float = 300.0) -> None:
        self.ended_so: list[tuple[str, float | None]] = []
        self.called: list[tuple[str, Endpoint | None]] = []
        self.gone: set[str] = set()
        self.queue = HoldQueue(max_requests, max_bytes, hold_s, self)

    def ended(self, outcome: str, held_s: float | None) -> None:
        """A request is out of the queue."""
        self.ended_so.append((outcome, held_s))

    def held(self, name: str, now_s: float, size_bytes: int = 0) -> Ticket:
        """A request that was lined up."""
        ticket = self.queue.enter(size_bytes)
        self.line_up(ticket, name, now_s)
        return ticket

    def line_up(self, ticket: Ticket, name: str, now_s: float) -> None:
        """A request that is in the queue waits for its turn."""
        self.queue.line_up(ticket, now_s, lambda endpoint: self.call(name, endpoint))

    def call(self, name: str, endpoint: Endpoint | None) -> bool:
        """It is a request's turn; whether it is still there."""
        self.called.append((name, endpoint))
        return name not in self.gone


def test_in_the_order_in_which_they_lined_up():
    """First come, first called; each with a replica."""
    rig = Rig()
    for name in "abc":
        rig.held(name, 1.0)
    while rig.queue.first():
        assert rig.queue.call_first(ENDPOINT)
    assert rig.called == [("a", ENDPOINT), ("b", ENDPOINT), ("c", ENDPOINT)]


def test_called_in_vain_it_goes_back_to_its_place():
    """A replica that refuses costs a request neither its place nor the time that it has waited."""
    rig = Rig(hold_s=10.0)
    first = rig.held("a", 1.0)
    for name in "bc":
        rig.held(name, 2.0)
    rig.queue.call_first(ENDPOINT)
    rig.line_up(first, "a again", 8.0)
    assert rig.queue.next_due_s() == 11.0
    for _ in range(3):
        rig.queue.call_first(None)
    assert [name for name, _ in rig.called] == ["a", "a again", "b", "c"]


def test_held_until_the_time_out():
    """Each is called with nothing when its own time is over, and not before."""
    rig = Rig(hold_s=300.0)
    rig.held("a", 0.0)
    rig.held("b", 100.0)
    assert rig.queue.expire(299.9) == 0
    assert rig.queue.expire(300.0) == 1
    assert rig.called == [("a", None)]
    assert rig.queue.next_due_s() == 400.0
    assert rig.queue.expire(1000.0) == 1
    assert rig.queue.next_due_s() is None


def test_one_that_has_gone_takes_no_replica():
    """Who is called may have gone in the same moment: the caller learns it and calls the next."""
    rig = Rig()
    rig.gone = {"a"}
    rig.held("a", 0.0)
    rig.held("b", 0.0)
    assert not rig.queue.call_first(ENDPOINT)
    assert rig.queue.call_first(ENDPOINT)


def test_a_bound_of_requests():
    """One over the bound is refused, counted, and fits again once another is handed over."""
    rig = Rig(max_requests=2)
    first = rig.held("a", 0.0)
    rig.held("b", 0.0)
    with pytest.raises(QueueFull, match="2 requests are held already"):
        rig.queue.enter(0)
    assert rig.ended_so == [("full", None)]
    rig.queue.handed(first, 5.0)
    assert rig.queue.pending == 1
    rig.queue.enter(0)


def test_a_bound_of_bytes():
    """Announced bytes count at once, others as they come; they are free when the request leaves, not when sent."""
    rig = Rig(max_bytes=100)
    big = rig.held("a", 0.0, 60)
    with pytest.raises(QueueFull, match="60 bytes are held already, of 100 at most"):
        rig.queue.enter(41)
    small = rig.queue.enter(0)
    rig.queue.grow(small, 40)
    with pytest.raises(QueueFull):
        rig.queue.grow(small, 1)
    rig.queue.handed(big, 1.0)
    assert rig.queue.bytes == 100
    rig.queue.leave(big, 2.0)
    rig.queue.leave(small, 2.0)
    assert (rig.queue.bytes, rig.queue.pending, len(rig.queue)) == (0, 0, 0)
    assert rig.ended_so == [("full", None), ("full", None), ("released", 1.0)]


def test_what_is_told_of_each():
    """Each held request ends once, with how long it was held; one that never had to wait is none."""
    rig = Rig()
    handed, left, late, quick = rig.held("a", 10.0), rig.held("b", 11.0), rig.held("c", 12.0), rig.queue.enter(0)
    rig.queue.handed(handed, 20.0)
    rig.queue.leave(handed, 25.0)
    rig.queue.leave(left, 21.0)
    rig.queue.leave(left, 30.0)
    rig.queue.leave(late, 22.0, "timed_out")
    rig.queue.handed(quick, 20.0)
    rig.queue.leave(quick, 20.0)
    assert rig.ended_so == [("released", 10.0), ("left", 10.0), ("timed_out", 10.0)]


def test_leaving_the_line():
    """Whoever goes is called no more, and nobody else loses a place."""
    rig = Rig()
    tickets = {name: rig.held(name, 0.0) for name in "abc"}
    rig.queue.leave(tickets["b"], 1.0)
    assert len(rig.queue) == 2
    rig.queue.expire(1000.0)
    assert [name for name, _ in rig.called] == ["a", "c"]


@given(st.lists(st.tuples(st.sampled_from(["enter", "call", "back", "hand", "leave"]), st.integers(0, 30))))
def test_any_course_keeps_the_bounds_and_the_books(course):
    """Whatever happens, the bounds hold, the order is that of arrival, and nothing is left at the end."""
    rig = Rig(max_requests=4, max_bytes=60)
    line: list[Ticket] = []
    out: list[Ticket] = []
    for number, (what, size) in enumerate(course):
        if what == "enter":
            try:
                line.append(rig.held(str(number), float(number), size))
            except QueueFull:
                assert rig.queue.pending == 4 or rig.queue.bytes + size > 60
        elif what == "call" and line:
            assert rig.queue.first() is line[0]
            rig.queue.call_first(ENDPOINT)
            out.append(line.pop(0))
        elif what == "back" and out:
            again = out.pop(size % len(out))
            rig.line_up(again, "again", float(number))
            line = sorted([*line, again], key=lambda ticket: ticket.since_s or 0.0)
        elif what == "hand" and out:
            done = out.pop(size % len(out))
            rig.queue.handed(done, float(number))
            rig.queue.leave(done, float(number))
        elif what == "leave" and line:
            rig.queue.leave(line.pop(size % len(line)), float(number))
        assert rig.queue.pending == len(line) + len(out) <= 4
        assert rig.queue.bytes == sum(ticket.size_bytes for ticket in (*line, *out)) <= 60
        assert len(rig.queue) == len(line)
    for ticket in (*line, *out):
        rig.queue.leave(ticket, 1e6)
    assert (rig.queue.pending, rig.queue.bytes, len(rig.queue)) == (0, 0, 0)


def test_counters_start_at_0_and_add_up():
    """Every outcome is there from the start; a refused request has no duration."""
    counters = HoldCounters()
    assert dict(counters.totals().outcomes) == dict.fromkeys(("released", "timed_out", "full", "left", "stopped"), 0)
    counters.ended("released", 0.05)
    counters.ended("released", 45.0)
    counters.ended("full", None)
    totals = counters.totals()
    assert (dict(totals.outcomes)["released"], dict(totals.outcomes)["full"]) == (2, 1)
    assert totals.sum_s == 45.05
    assert dict(totals.buckets) == {bound: 1 if bound < 60 else 2 for bound in HOLD_BUCKETS_S}
