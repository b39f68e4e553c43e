"""The clients of the engines beside a sidecar, looked at again and again: when was one last seen, since when is looked.

A Service that leaves a replica out ends no connection: a keep-alive client may send its next request to an engine that
nobody routes to any more. So a retirement waits until none was seen for a while. The sidecar looks at each reading, and
each second while it is withdrawn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infscale.drain.connections import Clients

GAP_S = 3.0
"""After a longer pause between two looks what was seen before proves nothing: looking begins anew."""


@dataclass(frozen=True)
class ClientsSeen:
    """What `/api/v1/reading` says of the clients. Times are Unix seconds.

    Attributes:
        established: connections now, idle keep-alive ones included.
        queued: how many of them hold bytes that one side has not taken yet.
        last_seen_at: when at least one was there last; None when none was since `looked_since`.
        looked_since: since when it was looked without a gap.
        looked_at: this look: the present instant on the same clock, whatever the caller's clock says.
    """

    established: int
    queued: int
    last_seen_at: float | None
    looked_since: float
    looked_at: float


class ClientWatch:
    """The memory of these looks. From any thread.

    Args:
        looks: one for each engine, as `infscale.drain.connections.Connections`; at least one.
        clock: monotonic seconds.
        wall_clock: Unix seconds, for what is shown.
    """

    def __init__(
        self,
        looks: Sequence[Callable[[], Clients | None]],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._looks, self._clock, self._wall_clock = tuple(looks), clock, wall_clock
        self._lock = threading.Lock()
        self._since_s = self._last_look_s = 0.0
        self._last_seen_s: float | None = None
        self._looking = False

    def look(self) -> ClientsSeen | None:
        """One look; None where an engine's connections cannot be seen, and then nothing is remembered."""
        with self._lock:
            found = [look() for look in self._looks]
            now_s = self._clock()
            clients = [each for each in found if each is not None]
            if len(clients) < len(found):
                self._looking = False
                return None
            if not self._looking or now_s - self._last_look_s > GAP_S:
                self._looking, self._since_s, self._last_seen_s = True, now_s, None
            self._last_look_s = now_s
            established = sum(each.established for each in clients)
            if established:
                self._last_seen_s = now_s
            ahead_s = self._wall_clock() - now_s
            return ClientsSeen(
                established,
                sum(each.queued for each in clients),
                None if self._last_seen_s is None else round(ahead_s + self._last_seen_s, 3),
                round(ahead_s + self._since_s, 3),
                round(ahead_s + now_s, 3),
            )
