"""What the reads of one engine mean together: hold, stale, restart. Pure: time is an argument.

The sidecar and `infscale parse --interval` feed it each outcome; the View that it returns is what is published.
The states and what each shows are those of docs/states.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Union

from infscale.reading import FRESH, LOADING, MISCONFIGURED, OK, SATURATED, STALE, ReadFailure, Reading

HOLD_S = 900.0
"""A full engine may not answer for long (llama.cpp: 10 s and more for one prompt), but not for ever: 15 minutes."""

TERMINATING_HOLD_S = 30.0
"""Of an engine whose Pod is terminating: it ends soon, and then nothing is in flight."""

STALE_AFTER_S = 120.0
"""Far above the slowest counter (SGLang's, each 40 decode steps) and any single step of an engine that works."""


@dataclass(frozen=True)
class View:
    """What one replica shows at an instant: the table of states, applied.

    Attributes:
        state: one of `infscale.reading.STATES`.
        reading: the values to publish, or None where the state publishes none.
        read_at_s: when those values were read, Unix seconds; None without values.
        message: why, in one line; empty in `ok`.
        known: the last good reading (for `infscale_engine_info`, which keeps its values), or None.
        scrape_duration_s: how long the last read of the engine took, in seconds; None before the first.
        cpu_ratio: the engine's CPU over the Pod's request, from two reads; None when unknown.
    """

    state: str
    reading: Optional[Reading]
    read_at_s: Optional[float]
    message: str = ""
    known: Optional[Reading] = None
    scrape_duration_s: Optional[float] = None
    cpu_ratio: Optional[float] = None


class Watch:
    """The memory of one engine's reads.

    Args:
        stale_after_s: in flight above 0 and no counter moved for this long is `stale`.
        cpu_request: CPU cores that the engine's Pod requests, for `cpu_ratio`; None when not told.
    """

    def __init__(self, *, stale_after_s: float = STALE_AFTER_S, cpu_request: Optional[float] = None) -> None:
        self._stale_after_s = stale_after_s
        self._cpu_request = cpu_request
        self._good: Optional[Reading] = None  # the last reading, of this life of the engine or an earlier one
        self._good_at_s = 0.0
        self._stepped_at_s = 0.0
        self._holdable = False  # whether the last reading may stand in for a read that timed out
        self._gauges_seen = False  # since the engine's last restart
        self._still_since_s: Optional[float] = None  # in flight above 0 and no counter moved since then
        self._cpu: Optional[tuple[float, float]] = None  # (Unix seconds, CPU seconds) of the last read that had it

    def step(
        self, outcome: Union[Reading, ReadFailure], now_s: float, *, duration_s: float = 0.0, hold_s: float = HOLD_S
    ) -> View:
        """Takes one read's outcome and returns what is shown from now on.

        Args:
            outcome: what the read gave.
            now_s: Unix seconds.
            duration_s: how long the read took.
            hold_s: how long the last values stand in for reads that time out (shorter once the Pod is terminating).
        """
        if now_s < self._stepped_at_s:
            self._set_back(self._stepped_at_s - now_s)
        self._stepped_at_s = now_s
        view = self._failed(outcome, now_s, hold_s) if isinstance(outcome, ReadFailure) else self._read(outcome, now_s)
        return replace(view, known=self._good, scrape_duration_s=duration_s)

    def _read(self, reading: Reading, now_s: float) -> View:
        before = self._good
        if before is not None and restarted(before, reading):
            self._forget_life()
        if reading.state == FRESH and self._gauges_seen:
            message = "the engine's gauges were there before and are gone, though it did not restart"
            self._still_since_s = None
            self._holdable = False
            return View(MISCONFIGURED, None, None, message)
        cpu_ratio = self._cpu_ratio(reading, now_s)
        if reading.inflight > 0 and reading.live:
            if self._still_since_s is None or before is None or before.counters != reading.counters:
                self._still_since_s = now_s
        else:
            self._still_since_s = None
        self._good, self._good_at_s, self._holdable = reading, now_s, True
        self._gauges_seen = self._gauges_seen or reading.state != FRESH
        if self._still_since_s is not None and now_s - self._still_since_s >= self._stale_after_s:
            still_s = now_s - self._still_since_s
            message = (
                f"{reading.inflight:g} requests in flight, but no counter moved for {still_s:.0f} s: "
                "the engine hangs, or its clients left and it did not notice"
            )
            return View(STALE, reading, now_s, message, cpu_ratio=cpu_ratio)
        message = "" if reading.state == OK else _MESSAGES[reading.state]
        return View(reading.state, reading, now_s, message, cpu_ratio=cpu_ratio)

    def _failed(self, failure: ReadFailure, now_s: float, hold_s: float) -> View:
        state, message = failure.state, failure.message
        if failure.reason == "refused":
            if self._good is None:
                state = LOADING
            self._forget_life()
        if state != SATURATED:
            self._still_since_s = None
            return View(state, None, None, message)
        held = self._good
        if held is None or not self._holdable or held.inflight <= 0:
            return View(state, None, None, message)
        age_s = now_s - self._good_at_s
        if age_s > hold_s:
            return View(state, None, None, f"{message}; the last values are {age_s:.0f} s old and are shown no longer")
        return View(state, held, self._good_at_s, f"{message}; showing the values of {age_s:.0f} s ago")

    def _set_back(self, by_s: float) -> None:
        """The clock went back: ages go on from what they were, else a hung engine would be held for so much longer."""
        self._good_at_s -= by_s
        if self._still_since_s is not None:
            self._still_since_s -= by_s
        if self._cpu is not None:
            self._cpu = (self._cpu[0] - by_s, self._cpu[1])

    def _forget_life(self) -> None:
        """The engine's process is another one: what it showed before says nothing about it now."""
        self._holdable = False
        self._gauges_seen = False
        self._still_since_s = None
        self._cpu = None

    def _cpu_ratio(self, reading: Reading, now_s: float) -> Optional[float]:
        """CPU seconds per second between the last two reads, over the request."""
        last = self._cpu
        self._cpu = None if reading.cpu_s is None else (now_s, reading.cpu_s)
        if not self._cpu_request or last is None or reading.cpu_s is None:
            return None
        elapsed_s, used_s = now_s - last[0], reading.cpu_s - last[1]
        return used_s / elapsed_s / self._cpu_request if elapsed_s > 0 and used_s >= 0 else None


_MESSAGES = {
    FRESH: "the engine never served a request yet: its gauges appear with the first one",
    "asleep": "the engine says that it sleeps",
}


def restarted(before: Reading, after: Reading) -> bool:
    """Whether the engine's process is another one: another start time, or a counter that fell (or is gone at 0)."""
    starts = (before.start_time_s, after.start_time_s)
    # A process's start is computed from the boot time, which wobbles by some hundredths of a second.
    if starts[0] is not None and starts[1] is not None and abs(starts[0] - starts[1]) > 1.0:
        return True
    later = dict(after.counters)
    if after.state == FRESH:
        return any(value > 0 for _, value in before.counters)
    return any(name in later and later[name] < value for name, value in before.counters)
