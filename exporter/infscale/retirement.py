"""Scaling down through the retirement protocol: the seam between a decision and `infscale.retire`.

`infscale.applier` asks for one replica less (`down`) or for all to stay (`keep`) after each decision, 15 s apart; the
protocol wants a look each second. So its passes run in a thread here, or, where a command is to end with its result,
in the caller's (`background=False`). What is killed goes on where it was: the record is the protocol's own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from infscale.errors import InfscaleError
from infscale.retire.passes import Progress, Retirer
from infscale.retire.protocol import OVERALL_S

log = logging.getLogger(__name__)

PASS_S = 1.0
"""From the end of one pass to the start of the next: two idle reads are at least so far apart."""

RETRY_AFTER_S = OVERALL_S
"""After one that was aborted, before another begins: what held it for its whole budget needs some time to change."""


@dataclass(frozen=True)
class _Order:
    """What is asked for: one replica less, or (with the reason) all of them."""

    keep: str = ""


class Retirement:
    """Takes replicas of one workload away, one after the other, while that is what is decided.

    Args:
        retirer: the protocol.
        retry: begin another after one that was aborted, RETRY_AFTER_S later; else a person has to look first.
        background: run the passes in a thread.
        clock, wall_clock: monotonic and Unix seconds.
        wait: waits for seconds; None: really, but for a stop.
    """

    def __init__(
        self,
        retirer: Retirer,
        *,
        retry: bool = False,
        background: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._retirer, self._retry, self._background = retirer, retry, background
        self._clock, self._wall_clock = clock, wall_clock
        self._order: _Order | None = None
        self._last: Progress | None = None
        self._alone = False  # whether no other process can have begun what this one has not seen
        self._aborted_s: float | None = None
        self._wake, self._ended = threading.Event(), threading.Event()
        self._wait = wait or self._ended.wait
        self._thread: threading.Thread | None = None

    def down(self) -> str:
        """One replica is to leave; returns where that is, in one line."""
        if self._waits():
            return f"{_words(self._last)}; another try {RETRY_AFTER_S:.0f} s after it"
        self._put(_Order())
        return _words(self._last)

    def keep(self, why: str) -> None:
        """All replicas are wanted: a retirement that nothing was taken away for yet is called off.

        At first, and after a pause, also one of the process before this one.
        """
        if not self._alone or (self._order is not None and not self._order.keep):
            self._put(_Order(keep=why))

    def pause(self) -> None:
        """Do nothing more for now: another process writes this workload, and goes on at the record."""
        self._order, self._alone = None, False

    def stop(self) -> None:
        """End the passes; a replica that is withdrawn is back by itself when its lease is over."""
        self._ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_LONGEST_PASS_S)

    def _waits(self) -> bool:
        """Whether the last one was aborted too short a while ago."""
        return self._retry and self._aborted_s is not None and self._clock() < self._aborted_s + RETRY_AFTER_S

    def _put(self, order: _Order) -> None:
        self._order, self._alone = order, True
        if not self._background:
            self._run_to_the_end(order)
            return
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="retirement", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            order = self._order
            if order is None:
                self._wake.wait()
                self._wake.clear()
            else:
                self._pass(order)
                self._wait(PASS_S)

    def _run_to_the_end(self, order: _Order) -> None:
        """Passes until it is over, or its budget is; one pass where all are to stay, and nothing can be seen."""
        begin_s = self._clock()
        while self._order is order and not self._ended.is_set():
            progress = self._pass(order)
            if order.keep and progress.state is None:
                self.pause()
                return
            if progress.exhausted or self._clock() >= begin_s + OVERALL_S:
                return
            self._wait(PASS_S)

    def _pass(self, order: _Order) -> Progress:
        """One pass; an order that is carried out is no order any more."""
        now_s = self._wall_clock()
        try:
            progress = self._retirer.cancel(order.keep, now_s) if order.keep else None
            if progress is None or not (progress.final or progress.state is None):
                progress = self._retirer.step(now_s)  # from Deleting on it goes on, wanted or not
        except InfscaleError as error:
            log.warning("no replica is retired", extra={"reason": str(error)})
            progress = Progress(None, reason=str(error), final=True)
        self._last = progress
        nothing_there = progress.state is None and progress.rule is None  # where the API fails nobody knows
        if progress.final or (order.keep and nothing_there):
            self._over(order, progress)
        return progress

    def _over(self, order: _Order, progress: Progress) -> None:
        """Ready for the next one."""
        called_off = bool(order.keep)
        self._aborted_s = None if progress.done or called_off else self._clock()
        self._retirer.again(retry=self._retry or called_off)
        if self._order is order:
            self._order = None


_LONGEST_PASS_S = 15.0
"""Each call of a pass is bounded; one that waits for an API server that hangs ends with the process."""


def _words(progress: Progress | None) -> str:
    if progress is None:
        return "retirement: begins"
    state = progress.state.value if progress.state else "not begun"
    pod = f" of pod {progress.target}" if progress.target else ""
    return f"retirement{pod}: {state}" + (f": {progress.reason}" if progress.reason else "")
