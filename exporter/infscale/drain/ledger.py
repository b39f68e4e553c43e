"""What is written down of each drain, of both forms: a line in the sidecar's log, the metrics, and who was cut off.

Called by `infscale.drain.endpoint`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from infscale.drain.connections import Connections
from infscale.drain.cut import Watched, requests_cut
from infscale.drain.options import DrainOptions
from infscale.drain.report import DrainReport
from infscale.drain.timeline import GONE
from infscale.drain.verdict import IDLE, REFUSED
from infscale.engines.profile import Profile
from infscale.metrics.drains import DrainCounters
from infscale.reading import FRESH, ReadFailure, Reading
from infscale.scrape_url import split_url

log = logging.getLogger(__name__)

_MAX_WATCHED = 64
"""Engines that are looked after at once: more than a Pod has, however many reports say that they were left busy."""

_LONGEST_RESERVE_S = 120.0  # whatever a report says; SGLang's prefill and decode roles need 20 s


@dataclass(frozen=True)
class Beside:
    """An engine beside the sidecar.

    Attributes:
        options: how it is drained.
        profiles: the engines to look for.
        profile: the engine, where it was told or found by now.
        read: one read, in at most so many seconds.
    """

    options: DrainOptions
    profiles: tuple[Profile, ...]
    profile: Callable[[], Profile | None]
    read: Callable[[float], Reading | ReadFailure]


@dataclass(frozen=True)
class Left:
    """What a drain left in one engine: requests in flight at its last read, and that read where it is known."""

    engine: Beside
    inflight: float
    reading: Reading | None = None


class Ledger:
    """Keeps the books of one Pod's drains. Any thread.

    Args:
        counters: what adds up over the drains.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        counters: DrainCounters,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._counters, self._clock, self._sleep = counters, clock, sleep
        self._room = threading.BoundedSemaphore(_MAX_WATCHED)

    def began(self, form: str, client: str) -> None:
        """A drain was asked for."""
        log.info("drain asked for", extra={"form": form, "client": client})

    def turned_away(self, client: str) -> None:
        """A caller got no place, or lost it; where that is kubelet, the engine is ended without a drain."""
        log.warning("drain refused: all places are taken", extra={"client": client})

    def ended(self, report: DrainReport, form: str, left: Sequence[Left]) -> None:
        """A drain has ended; whoever it could not wait for is looked after from now on, on threads.

        Args:
            report: what came of it.
            form: `httpGet` or `exec`.
            left: what it left in each engine.
        """
        self._counters.ended(report.outcome, report.seconds)
        fields = {key: value for key, value in asdict(report).items() if value not in (None, "")}
        level = logging.INFO if report.outcome in (IDLE, FRESH) else logging.WARNING
        log.log(level, "drain ended", extra={"form": form, **fields})
        if report.outcome in (IDLE, FRESH, REFUSED, GONE) or report.inflight == 0:
            return
        reserve_s = min(max(report.grace_s - report.deadline_s, 0.0), _LONGEST_RESERVE_S)
        grace_end_s = self._clock() + reserve_s
        for one in left:
            if not self._room.acquire(blocking=False):
                log.warning("not looked after: too many drains at once", extra={"url": one.engine.options.url})
                return
            arguments = (one, report.outcome, grace_end_s)
            threading.Thread(target=self._look_after, args=arguments, name="drain-cut", daemon=True).start()

    def _look_after(self, left: Left, outcome: str, grace_end_s: float) -> None:
        try:
            self._count_cut(left, outcome, grace_end_s)
        finally:
            self._room.release()

    def _count_cut(self, left: Left, outcome: str, grace_end_s: float) -> None:
        port = split_url(left.engine.options.page_url).port
        watched = Watched(left.engine.read, Connections(port, closed_too=True), self._clock, self._sleep)
        cut = requests_cut(watched, left.inflight, grace_end_s, left.reading)
        if cut:
            self._counters.cut(outcome, cut)
            log.warning("requests cut", extra={"requests": cut, "url": left.engine.options.url, "outcome": outcome})
