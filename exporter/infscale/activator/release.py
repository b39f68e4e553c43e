"""Calls the requests in line: the first one goes to the least busy replica as soon as one is ready. One task.

Each is called when the one before it has its connection and was sent, so that a replica sees them in their order; who
takes longer for that is overtaken, so that nobody waits for a replica that has just gone.
"""

from __future__ import annotations

import asyncio

from infscale.activator.endpoints import Endpoints
from infscale.activator.queue import HoldQueue

PATIENCE_S = 0.05
"""For one connection, before the next request is called: some 50 round trips within a cluster."""

GAP_S = 0.001
"""Between two: a server that reads each connection on a thread of its own gets them in their order too. The last of
1,000 waits for a second more, of which the replica has use for each millisecond."""


class Releaser:
    """The one who calls."""

    def __init__(self, queue: HoldQueue, endpoints: Endpoints) -> None:
        self._queue, self._endpoints = queue, endpoints
        self._news = asyncio.Event()
        self._settled = asyncio.Event()

    def news(self) -> None:
        """A replica is ready, or somebody lined up."""
        self._news.set()

    def settled(self) -> None:
        """The one that was called has its connection, or is gone, or back in line."""
        self._settled.set()

    async def run(self) -> None:
        """Call, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            self._queue.expire(loop.time())
            await self._call()
            due_s = self._queue.next_due_s()
            try:
                async with asyncio.timeout_at(due_s):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _call(self) -> None:
        while self._queue.first() is not None and (endpoint := self._endpoints.take()) is not None:
            self._settled.clear()
            if not self._queue.call_first(endpoint):
                self._endpoints.give_back(endpoint)
                continue
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._settled.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(GAP_S)
