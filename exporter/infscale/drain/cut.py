"""How many requests the end of an engine cut off after a drain that could not wait for them.

A request in flight when the drain's time is up is not cut yet: SGLang, and vLLM with a shutdown time-out, go on after
SIGTERM until the grace period is over. So the engine is watched until it has ended: by its page as long as it answers,
and by its clients' connections once it does not (a web server that is told to stop closes its port first, and goes on
with what it has). An engine that nobody ended cut nothing.

Called by `infscale.drain.ledger`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from infscale.drain.connections import Clients
from infscale.reading import ReadFailure, Reading
from infscale.watch import restarted

INTERVAL_S = 0.5
"""Between two looks. Requests that finish after the last one are counted as cut; there are at most so many."""

AFTER_GRACE_S = 5.0
"""The kill at the end of the grace period, and the kernel's closing of the port, take a moment."""

READ_S = 0.5
"""For one read. A page that takes longer tells less than the connections do meanwhile."""

_EARLY_S = 1.0
"""An engine that went on, and ended so long before the kill or longer, was done with its requests."""

_ABORT_S = 0.4
"""Clients that are still connected so long after the page has gone are being served, and not cut off."""

_ABORTED = ("abort", "error")  # vLLM's words, in `finished_reason`, for what did not come to its end


@dataclass(frozen=True)
class Watched:
    """The engine that is watched.

    Attributes:
        read: one read, in at most so many seconds.
        look: its clients' connections, whether it still listens or not; None where they cannot be seen.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    read: Callable[[float], Reading | ReadFailure]
    look: Callable[[], Clients | None]
    clock: Callable[[], float]
    sleep: Callable[[float], object]


def requests_cut(watched: Watched, inflight: float, grace_end_s: float, before: Reading | None = None) -> float:
    """Watch the engine until it has ended; how many of its requests did not come to their end.

    Args:
        watched: the engine.
        inflight: at the last read of the drain.
        grace_end_s: when it is killed at the latest, on the clock.
        before: the last read of the drain, where it is known.
    """
    aborted, dark_since_s, went_on = 0.0, math.inf, False
    last_two = (inflight, inflight)  # a look in the middle of an abort sees a part of the connections
    while (now_s := watched.clock()) < grace_end_s + AFTER_GRACE_S:
        found = watched.read(READ_S)
        if isinstance(found, ReadFailure):
            clients, dark_since_s = watched.look(), min(dark_since_s, now_s)
            if clients is not None and clients.established:
                went_on = watched.clock() - dark_since_s >= _ABORT_S
                last_two = (last_two[1], min(last_two[1], clients.established))
            elif found.reason == "refused":
                finished = went_on and now_s < grace_end_s - _EARLY_S
                return aborted if finished else aborted + max(last_two)
        elif before is not None and restarted(before, found):
            return aborted + max(last_two)
        else:
            aborted += 0.0 if before is None else _aborted(before, found)
            before, dark_since_s, went_on = found, math.inf, False
            last_two = (found.inflight, found.inflight)
            if not found.inflight and not aborted:
                return 0.0
        watched.sleep(INTERVAL_S)
    return 0.0


def _aborted(before: Reading, after: Reading) -> float:
    """Requests that left between two reads and did not finish; 0 where the engine does not count finished ones."""
    finished, finished_before = _finished(after), _finished(before)
    if finished is None or finished_before is None:
        return 0.0
    return max(0.0, before.inflight - after.inflight - (finished - finished_before))


def _finished(reading: Reading) -> float | None:
    counts = [count for model in reading.models for word, count in model.finished if word not in _ABORTED]
    return sum(counts) if counts else None
