"""The requests that an activator has taken and not handed to a replica: in order, and bounded in number and bytes.

The proxy enters a request at its head, lines it up once its body is there, and tells when it was handed over or left.
Nothing here reads a clock or waits: times are monotonic seconds, given by the caller. Used on the loop's thread; the
numbers may be read from any.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from infscale.activator.endpoints import Endpoint


class QueueFull(Exception):
    """One more request, or its bytes, would be over a bound; the text says which."""


class Counter(Protocol):
    """Learns what became of held requests."""

    def ended(self, outcome: str, held_s: float | None) -> None:
        """One has ended so, after so many seconds; None: it never got into the queue."""
        ...


class Ticket:
    """One request in the queue.

    Attributes:
        size_bytes: of its body, as far as it counts against the bound.
        since_s: when it was first lined up; None before.
    """

    __slots__ = ("_call", "_number", "_pending", "since_s", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.since_s: float | None = None
        self._number = 0
        self._pending = True
        self._call: Callable[[Endpoint | None], bool] = lambda _endpoint: False

    def call(self, endpoint: Endpoint | None) -> bool:
        """Tell it that it is its turn, with its replica, or None for none; false where it has just gone."""
        return self._call(endpoint)


class HoldQueue:
    """The queue of one activator.

    Args:
        max_requests: pending at once.
        max_bytes: of their bodies together.
        hold_s: how long one is held at most.
        counter: told of each request that was lined up, when it ends, and of those that found the queue full.
    """

    def __init__(self, max_requests: int, max_bytes: int, hold_s: float, counter: Counter) -> None:
        self.max_requests, self.max_bytes, self.hold_s = max_requests, max_bytes, hold_s
        self.pending = 0
        self.bytes = 0
        self._counter = counter
        self._line: OrderedDict[int, Ticket] = OrderedDict()
        self._last_number = 0

    def __len__(self) -> int:
        """How many are in line; a pending one whose body is still coming is not."""
        return len(self._line)

    def enter(self, size_bytes: int) -> Ticket:
        """Take a request in, with the bytes that it announces.

        Raises:
            QueueFull: there is no room for it.
        """
        if self.pending >= self.max_requests:
            self._counter.ended("full", None)
            raise QueueFull(f"{self.max_requests} requests are held already")
        self._make_room(size_bytes)
        self.pending += 1
        return Ticket(size_bytes)

    def grow(self, ticket: Ticket, size_bytes: int) -> None:
        """Count more bytes of a body that did not announce its length.

        Raises:
            QueueFull: there is no room for them.
        """
        self._make_room(size_bytes)
        ticket.size_bytes += size_bytes

    def line_up(self, ticket: Ticket, now_s: float, call: Callable[[Endpoint | None], bool]) -> None:
        """Put a request at the end of the line; one that was called in vain, back where it was.

        Args:
            ticket: the request.
            now_s: now.
            call: see `Ticket.call`.
        """
        ticket._call = call
        again = ticket.since_s is not None
        if not again:
            self._last_number += 1
            ticket._number, ticket.since_s = self._last_number, now_s
        self._line[ticket._number] = ticket
        if again:
            self._line = OrderedDict(sorted(self._line.items()))

    def first(self) -> Ticket | None:
        """The one that has waited longest; it stays in line until `call_first`."""
        return next(iter(self._line.values()), None)

    def call_first(self, endpoint: Endpoint | None) -> bool:
        """Take the first out of the line and call it; false where it has just gone."""
        _, ticket = self._line.popitem(last=False)
        return ticket.call(endpoint)

    def expire(self, now_s: float) -> int:
        """Call those with nothing that have been held for `hold_s`; how many."""
        expired = 0
        while (due_s := self.next_due_s()) is not None and due_s <= now_s:
            self.call_first(None)
            expired += 1
        return expired

    def next_due_s(self) -> float | None:
        """When the first has been held for too long; None where nobody is in line."""
        since_s = self.oldest_s()
        return None if since_s is None else since_s + self.hold_s

    def oldest_s(self) -> float | None:
        """When the first in line was lined up; None where nobody is."""
        ticket = self.first()
        return None if ticket is None else ticket.since_s

    def handed(self, ticket: Ticket, now_s: float) -> None:
        """A replica has it now: no longer pending. Its body counts until it leaves."""
        self._end(ticket, "released", now_s)

    def leave(self, ticket: Ticket, now_s: float, outcome: str = "left") -> None:
        """It is gone, with its body; a second time does nothing.

        Args:
            ticket: the request.
            now_s: now.
            outcome: why, of one that was not handed over.
        """
        self._line.pop(ticket._number, None)
        self._end(ticket, outcome, now_s)
        self.bytes -= ticket.size_bytes
        ticket.size_bytes = 0

    def _end(self, ticket: Ticket, outcome: str, now_s: float) -> None:
        if not ticket._pending:
            return
        ticket._pending = False
        self.pending -= 1
        if ticket.since_s is not None:
            self._counter.ended(outcome, now_s - ticket.since_s)

    def _make_room(self, size_bytes: int) -> None:
        if self.bytes + size_bytes > self.max_bytes:
            self._counter.ended("full", None)
            raise QueueFull(f"requests with {self.bytes} bytes are held already, of {self.max_bytes} at most")
        self.bytes += size_bytes
