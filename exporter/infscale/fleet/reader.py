"""All replicas of a workload read at once, under one deadline: `crowd` for what it takes, a few threads for the rest.

Called by `survey`. An answer is understood when it comes and then dropped, so that a thousand pages are never held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from infscale.fleet.crowd import Answer, Crowd, not_read, takes
from infscale.fleet.sighting import Sighting
from infscale.scrape import Page, Target, fetch
from infscale.scrape_wire import Deadline

THREADS = 64
"""For names that must be resolved, TLS, token files and redirects."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One page to read, and what its answer means. `understand` may be called in any thread, once."""

    target: Target
    understand: Callable[[Answer], Sighting]


class Reader:
    """Reads pages; keeps its threads between reads.

    Args:
        clock: monotonic seconds.
        threads: at most.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, threads: int = THREADS) -> None:
        self._clock, self._threads = clock, threads
        self._pool: ThreadPoolExecutor | None = None

    def deadline(self, budget_s: float) -> Deadline:
        """A deadline on this reader's clock."""
        return Deadline(self._clock, budget_s)

    def read(self, asks: Sequence[Ask], deadline: Deadline) -> list[Sighting]:
        """What each answer means, in the order asked; it takes no longer than the deadline, and a moment."""
        found: dict[int, Sighting] = {}
        threaded: dict[int, Future[Sighting]] = {}
        crowd = [index for index, ask in enumerate(asks) if takes(ask.target)]
        for index in sorted(set(range(len(asks))).difference(crowd)):
            threaded[index] = self._submit(asks[index], deadline)

        def answered(position: int, answer: Answer) -> None:
            """What the crowd was answered; who is sent elsewhere is read by a thread."""
            index = crowd[position]
            if isinstance(answer, Page) and 300 <= answer.status < 400:
                threaded[index] = self._submit(asks[index], deadline)  # fetch knows which redirects to follow
            else:
                found[index] = asks[index].understand(answer)

        Crowd([asks[index].target for index in crowd], deadline, answered).run()
        found |= {index: future.result() for index, future in threaded.items()}
        return [found[index] for index in range(len(asks))]

    def close(self) -> None:
        """Ends its threads, once the reads under way have ended."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _submit(self, ask: Ask, deadline: Deadline) -> Future[Sighting]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "fleet")
        return self._pool.submit(_fetched, ask, deadline)


def _fetched(ask: Ask, deadline: Deadline) -> Sighting:
    left_s = deadline.left_s()
    return ask.understand(not_read(ask.target, deadline) if left_s <= 0 else fetch(ask.target, timeout_s=left_s))
