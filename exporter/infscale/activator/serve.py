"""The activator as a part of a process: its loop on a thread, from the listening socket to a graceful stop.

`infscale.cli.activator` makes one and gives it to `infscale.serving`, whose listeners for metrics and probes run on
threads of their own and show it until it has stopped. Stopping: whoever is held or under way is served to a bound; then
the held get 503, streams end.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from aiohttp import web
from aiohttp.http import HttpProcessingError

from infscale.activator.addresses import addresses_of
from infscale.activator.counts import HoldCounters
from infscale.activator.endpoints import Endpoints
from infscale.activator.limits import TurnedAway, connections_for
from infscale.activator.prober import Prober
from infscale.activator.proxy import Proxy, Rules
from infscale.activator.queue import HoldQueue
from infscale.activator.refusal import SERVER
from infscale.activator.release import Releaser
from infscale.activator.settings import Settings, upstream_url
from infscale.activator.upstream import Upstream
from infscale.web.bind import listen

log = logging.getLogger(__name__)

IDLE_S = 75.0
"""For a client that sends nothing, or half a head: more than the 60 s of most load balancers, who then end it first."""

_BACKLOG = 1024
_LOOK_S = 0.05
_LAST_WORDS_S = 1.0
"""For the 503 of those who are still held at the end."""


class Activator:
    """One activator. Made on any thread; what is on the loop stays there.

    Args:
        settings: what it is told.

    Attributes:
        on_held: called on the loop's thread when a request has to wait.
        port: where it listens.

    Raises:
        UsageError: the upstream is none, a file cannot be used, or nothing can listen on the address.
    """

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self.settings = settings
        self.on_held: Callable[[], object] = lambda: None
        self.counters = HoldCounters()
        self.endpoints = Endpoints()
        self.queue = HoldQueue(settings.max_held, settings.max_held_bytes, settings.hold_s, self.counters)
        self._socket = listen(settings.listen_address, "--listen-address")
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="activator", daemon=True)
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._drained = True
        self._proxy: Proxy | None = None

    @property
    def under_way(self) -> int:
        """Requests that are held or being answered."""
        return self._proxy.under_way if self._proxy is not None else 0

    def waiting(self) -> bool:
        """Whether somebody waits and no replica is ready. Any thread."""
        return self.queue.pending > 0 and self.endpoints.ready == 0

    def start(self) -> None:
        """Begin to answer; it does so when this returns."""
        self._thread.start()
        self._started.result()
        log.info("activator listening", extra={"address": self.settings.listen_address, "requests_port": self.port})

    def abandon(self) -> None:
        """Give the port back, if it never was started."""
        if not self._thread.is_alive():
            self._socket.close()

    def stop(self, _drain_s: float) -> bool:
        """Take no more, and serve what is held and under way, for at most the `drain_s` of the settings.

        Returns:
            True when everything was answered.
        """
        if not self._thread.is_alive():
            self.abandon()
            return True
        self._started.result().call_soon_threadsafe(self._stop.set)
        self._thread.join()
        return self._drained

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            upstream = Upstream(self.settings)
            work, server, self._proxy = self._parts(upstream)
            bound = connections_for(self.settings.max_connections)
            clients = _client_log()
            listening = await loop.create_server(
                lambda: _client(server, clients) if len(server.connections) < bound else TurnedAway(),
                sock=self._socket,
                backlog=_BACKLOG,
            )
        except BaseException as error:
            self._started.set_exception(error)
            raise
        tasks = [loop.create_task(_again(run)) for run in work]
        self._started.set_result(loop)
        await self._stop.wait()
        loop.remove_reader(self._socket)
        await asyncio.sleep(0)  # a connection that was just accepted gets its transport, which needs the open server
        listening.close()
        self._drained = await self._drain(server, self._proxy)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await upstream.close()
        await asyncio.sleep(_LOOK_S)  # closed connections say goodbye in the loop's next turns

    def _parts(self, upstream: Upstream) -> tuple[list[Callable[[], Awaitable[None]]], web.Server, Proxy]:
        """What runs all the time, the server, and what it answers with."""
        settings = self.settings
        releaser = Releaser(self.queue, self.endpoints)
        prober = Prober(
            self.endpoints,
            upstream,
            addresses_of(upstream_url(settings.upstream).host, settings.dns_server),
            path=settings.health_path,
            interval_s=settings.probe_interval_s,
            on_ready=releaser.news,
        )

        def held() -> None:
            """Hurry the probes for the first request in line, and wake the workload."""
            if len(self.queue) == 1:  # the others wait for the same
                prober.hurry()
            self.on_held()

        # A body that fits in no empty queue is too large for good: 413, and not 503 for ever.
        rules = Rules(min(settings.max_body_bytes, settings.max_held_bytes), settings.keep_alive_s)
        proxy = Proxy(self.queue, self.endpoints, upstream, releaser, rules, held)
        return [releaser.run, prober.run], web.Server(proxy.handle, handler_cancellation=True), proxy

    async def _drain(self, server: web.Server, proxy: Proxy) -> bool:
        """Serve what is left; whether all of it was served in time."""
        proxy.stopping = "the activator is stopping and no replica is ready, try again"
        server.pre_shutdown()  # idle connections end now, others after their answer
        drained = await _until(lambda: not proxy.under_way, self.settings.drain_s)
        if not drained:
            log.warning("stopping with requests left", extra={"held": len(self.queue), "under_way": proxy.under_way})
            self.queue.expire(math.inf)
            await _until(lambda: not proxy.under_way, _LAST_WORDS_S)
        await server.shutdown(_LOOK_S)
        return drained


class _Client(web.RequestHandler):
    """One client's connection. What aiohttp answers itself, to what is no request, goes out in our name too."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that could not be read."""
        answer = super().handle_error(request, status, exc, message)
        answer.headers["Server"] = SERVER
        return answer


def _client(server: web.Server, log_of_clients: logging.Logger) -> _Client:
    return _Client(
        server,
        loop=asyncio.get_running_loop(),
        keepalive_timeout=IDLE_S,
        access_log=None,  # type: ignore[arg-type]  # None turns it off
        auto_decompress=False,
        logger=log_of_clients,
    )


async def _until(holds: Callable[[], bool], within_s: float) -> bool:
    """Whether something holds within a time."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while not holds() and loop.time() < end_s:
        await asyncio.sleep(_LOOK_S)
    return holds()


async def _again(run: Callable[[], Awaitable[None]]) -> None:
    """Run what never ends; a bug in it must not leave the clients waiting for ever."""
    while True:
        try:
            await run()
        except Exception:
            log.exception("activator failed: this is a bug in infscale")
            await asyncio.sleep(1.0)


def _client_log() -> logging.Logger:
    """Where aiohttp logs; what a client did wrong is told to the client, and is no news here."""
    clients = logging.getLogger("infscale.activator.clients")
    clients.addFilter(_no_bad_requests)
    return clients


def _no_bad_requests(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
