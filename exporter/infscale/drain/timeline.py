"""What a drain does next: settle, read, wait, return. Pure: the time and the last verdict are arguments.

    timeline = Timeline(options.schedule)
    timeline.next(0.0)                  # Wait(5.0): settle
    timeline.next(5.0)                  # Read(2.0): with at most 2 s for all of it
    timeline.next(5.01, verdict)        # Wait(1.0), or Done("idle")

Called by `infscale.drain.run`. docs/drain.md has the table that it follows.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple, Union

from infscale.drain.options import Schedule
from infscale.drain.verdict import BUSY, HTTP, IDLE, REFUSED, TLS, UNMEASURED, Verdict, confirms
from infscale.reading import FRESH, Reading

DEADLINE, GONE, STALE = "deadline", "gone", "stale"
OUTCOMES = (IDLE, FRESH, DEADLINE, REFUSED, HTTP, TLS, GONE, STALE)
"""How a drain can end: the values of `outcome` in its report and in `infscale_drains_total`."""

INTERVAL_S = 1.0
"""From the end of one read to the next: engines render the page on the loop that serves requests (sglang#28163)."""

READ_S = 2.0
"""For a whole read: connection, TLS, headers, body and parsing."""

MARGIN_S = 0.1
"""The last read ends this long before the drain must have returned: time for the report, and for a slow machine."""


@dataclass(frozen=True)
class Wait:
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Read:
    """Read the engine; all of it takes at most `budget_s` seconds."""

    budget_s: float


@dataclass(frozen=True)
class Done:
    """Return; `outcome` is one of OUTCOMES."""

    outcome: str


Step = Union[Wait, Read, Done]


class Timeline:
    """The memory of one drain.

    Args:
        schedule: its instants.
        http_error_returns: return when the engine shows no gauges twice in a row, whoever is connected.
        stale_after_s: how long requests in flight may stand still while nobody is connected; None: for ever.
    """

    def __init__(
        self, schedule: Schedule, *, http_error_returns: bool = False, stale_after_s: Optional[float] = None
    ) -> None:
        self._schedule = schedule
        self._http_error_returns = http_error_returns
        self._stale_after_s = stale_after_s
        self._before: Optional[Verdict] = None
        self._idle: Optional[Verdict] = None  # the first of two idle reads
        self._answered = False
        self._still: Optional[Tuple[float, Reading]] = None  # since when nothing moved and nobody was connected

    def next(self, now_s: float, verdict: Optional[Verdict] = None) -> Step:
        """What to do now.

        Args:
            now_s: seconds since the drain's start.
            verdict: on the read that has just ended; None after a wait, and at the start.
        """
        schedule = self._schedule
        if verdict is not None:
            outcome = self._ends(verdict, now_s)
            self._before = verdict
            if outcome:
                return Done(outcome)
        left_s = schedule.last_read_s - now_s
        budget_s = min(READ_S, schedule.return_s - MARGIN_S - now_s)
        if left_s <= 0 or budget_s <= 0:
            return Done(DEADLINE)
        if verdict is not None:
            return Wait(min(INTERVAL_S, left_s))
        if now_s < schedule.settled_s:
            return Wait(schedule.settled_s - now_s)
        return Read(budget_s)

    def _ends(self, verdict: Verdict, now_s: float) -> str:
        """The outcome, where the verdict ends the drain; else empty."""
        self._answered = self._answered or verdict.answered
        stale = self._is_stale(verdict, now_s)
        idle, self._idle = self._idle, verdict if verdict.kind == IDLE else None
        if verdict.kind == IDLE:
            if idle is None or not confirms(idle, verdict):
                return ""
            return FRESH if verdict.reading is not None and verdict.reading.state == FRESH else IDLE
        if stale:
            return STALE
        if self._is_away(verdict):
            twice = self._before is not None and self._is_away(self._before)
            return (GONE if self._answered else REFUSED) if twice else ""
        if verdict.kind in UNMEASURED and self._before is not None and self._before.kind in UNMEASURED:
            connected = verdict.clients is not None and verdict.clients.established > 0
            return verdict.kind if self._http_error_returns or not connected else ""
        return ""

    def _is_away(self, verdict: Verdict) -> bool:
        """Nothing listens; or, of a leader that had answered, its name or its way is gone."""
        return verdict.kind == REFUSED or (verdict.unreached and self._answered)

    def _is_stale(self, verdict: Verdict, now_s: float) -> bool:
        """Requests in flight that nobody waits for: no client is connected and no counter moves (vllm#22545).

        Only where both can be seen. A prefill or decode engine's clients are other engines, which may use no TCP.
        """
        reading, clients = verdict.reading, verdict.clients
        if (
            self._stale_after_s is None
            or verdict.kind != BUSY
            or reading is None
            or not reading.live
            or reading.role
            or clients is None
            or clients.established
        ):
            self._still = None
            return False
        if self._still is None or verdict.restarted or self._still[1].counters != reading.counters:
            self._still = (now_s, reading)
        return now_s - self._still[0] >= self._stale_after_s
