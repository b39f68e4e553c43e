"""Who waits for a drain: callers join the one that runs, and none is let go sooner than a drain of its own would.

Kubelet asks when it ends a container, and anybody who reaches the port may ask as well, at any time. So a caller joins
what runs, and when that ends too early for it (the time was up for whoever asked first, or the engine was idle before
requests had settled that were routed just before its own delete) the reads go on for it, with its own deadline. The
places are shared out among addresses, so that nobody who takes them all keeps kubelet out.

Used by `infscale.drain.endpoint`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from infscale.drain.options import Schedule
from infscale.drain.report import DrainReport
from infscale.drain.timeline import DEADLINE, INTERVAL_S

log = logging.getLogger(__name__)

MAX_CALLERS = 16
"""Containers of a Pod, with room; each waiting caller holds a thread of the listener."""

TOGETHER_S = 2.0
"""The hooks of one Pod start within this time, so that their callers share one drain from its start to its end."""

_LATE_S = 10.0
"""A caller gives up this long after a drain should have ended; it never has to."""


@dataclass(eq=False)
class _Caller:
    """One that waits; the report is None if the drain failed."""

    client: str
    arrived_s: float
    done: threading.Event = field(default_factory=threading.Event)
    report: DrainReport | None = None
    turned_away: bool = False


class WaitingRoom:
    """The callers of one Pod's drain. Any thread.

    Args:
        run: one drain, that began at the given second of `clock`; blocks until it has ended.
        schedule: of each caller's own drain.
        clock: monotonic seconds.
    """

    def __init__(self, run: Callable[[float], DrainReport], schedule: Schedule, clock: Callable[[], float]) -> None:
        self._run, self._schedule, self._clock = run, schedule, clock
        self._lock = threading.Lock()
        self._callers: list[_Caller] = []
        self._running = False

    @property
    def running(self) -> bool:
        """Whether a drain is under way."""
        return self._running

    def wait(self, client: str) -> DrainReport | None:
        """Join the drain that runs, or begin one, and wait for its end; None if it failed.

        Args:
            client: the caller's address.

        Raises:
            TooManyError: MAX_CALLERS wait, and this one's address has as many places as any; or it lost its place.
        """
        caller = _Caller(client, self._clock())
        with self._lock:
            if len(self._callers) >= MAX_CALLERS:
                self._make_room(client)
            self._callers.append(caller)
            first, self._running = not self._running, True
        if first:
            threading.Thread(target=self._work, name="drain", daemon=True).start()
        caller.done.wait(self._schedule.return_s + _LATE_S)
        if caller.turned_away:
            raise TooManyError
        return caller.report

    def _make_room(self, client: str) -> None:
        """Turn away the last caller of the address that has most places, if it then has no fewer than `client`.

        So an address that has one place keeps it, and one that has none gets one as long as fewer than MAX_CALLERS
        addresses ask.

        Raises:
            TooManyError: no address has so many.
        """
        places = Counter(caller.client for caller in self._callers)
        ((greedy, most),) = places.most_common(1)
        if most < places[client] + 2:
            raise TooManyError
        last = next(caller for caller in reversed(self._callers) if caller.client == greedy)
        self._callers.remove(last)
        last.turned_away = True
        last.done.set()

    def _work(self) -> None:
        """Drain until nobody waits any more."""
        while True:
            with self._lock:
                start_s = min(caller.arrived_s for caller in self._callers)
            report: DrainReport | None = None
            try:
                report = self._run(start_s)
            except Exception:
                log.exception("drain failed")
            with self._lock:
                done = [caller for caller in self._callers if report is None or self._suffices(caller, start_s, report)]
                self._callers = [caller for caller in self._callers if caller not in done]
                self._running = bool(self._callers)
                for caller in done:
                    caller.report = report
                    caller.done.set()
                if not self._callers:
                    return

    def _suffices(self, caller: _Caller, start_s: float, report: DrainReport) -> bool:
        """Whether a drain that has just ended is as good as the caller's own would have been."""
        if caller.arrived_s - start_s <= TOGETHER_S:
            return True
        waited_s = self._clock() - caller.arrived_s
        if report.outcome == DEADLINE:
            return waited_s >= self._schedule.last_read_s
        return waited_s >= self._schedule.settled_s + INTERVAL_S


class TooManyError(Exception):
    """As many callers wait as may, and this one has no claim to a place."""
