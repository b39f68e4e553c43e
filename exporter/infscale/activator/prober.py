"""Finds out, round after round, which replicas there are and which are ready. One task of the activator's loop.

A name is resolved anew in each round, so a short TTL needs no care. A host that is an IP address is the one replica;
behind the address of a Service that is whichever kube-proxy chooses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from infscale.activator.endpoints import Endpoint, Endpoints
from infscale.activator.upstream import Upstream
from infscale.errors import SourceError

log = logging.getLogger(__name__)

RESOLVE_S = 2.0
"""For one look-up of the name."""

AT_ONCE = 32
"""Probes under way at the same time."""


class Prober:
    """The eyes of the activator.

    Args:
        endpoints: what it keeps up to date.
        upstream: probes one replica.
        addresses: looks the replicas' addresses up, within so many seconds; blocks, and raises SourceError.
        path: of the probe.
        interval_s: from one round to the next.
        on_ready: called at the end of a round in which one is ready.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        upstream: Upstream,
        addresses: Callable[[float], tuple[str, ...]],
        *,
        path: str,
        interval_s: float,
        on_ready: Callable[[], object],
    ) -> None:
        self._endpoints, self._upstream, self._addresses = endpoints, upstream, addresses
        self._path, self._interval_s, self._on_ready = path, interval_s, on_ready
        self._hurry = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._said = ""

    async def run(self) -> None:
        """Look, again and again."""
        while True:
            self._hurry.clear()
            await self.look()
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._hurry.wait()
            except TimeoutError:
                pass

    def hurry(self) -> None:
        """Look at once: somebody waits."""
        self._hurry.set()

    async def look(self) -> None:
        """One round."""
        await self._resolve()
        async with asyncio.TaskGroup() as group:
            for endpoint in self._endpoints:
                group.create_task(self._probe(endpoint))

    async def _resolve(self) -> None:
        try:
            self._endpoints.update(await asyncio.to_thread(self._addresses, RESOLVE_S))
            why_not = ""
        except SourceError as error:
            self._endpoints.keep_ready()
            why_not = str(error)
        if why_not != self._said:
            self._said = why_not
            level, what = (logging.WARNING, "no addresses") if why_not else (logging.INFO, "addresses known again")
            log.log(level, what, extra={"reason": why_not} if why_not else {})

    async def _probe(self, endpoint: Endpoint) -> None:
        async with self._slots:
            health, why = await self._upstream.probe(endpoint, self._path)
        self._endpoints.probed(endpoint, health, why)
        if endpoint.ready:
            self._on_ready()
