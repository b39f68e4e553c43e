"""The stand-in engine as a process: listens, serves, and ends on SIGTERM in the way of the engine it stands for.

What engines do on SIGTERM: vLLM aborts what is under way unless `--shutdown-timeout` is set, then it drains for as long
and refuses new requests (vllm/config/vllm.py); SGLang drains without limit and goes on accepting
(srt/managers/tokenizer_manager.py); llama.cpp aborts, and in some builds hangs: /health 200, /metrics without answer,
streams without a token (ggml-org/llama.cpp#18237). A second signal ends each at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from dataclasses import dataclass

from infscale_sim.engine_connection import Connection
from infscale_sim.engine_server import Engine, Settings

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 8192
_BACKLOG = 128
"""Of connections that wait to be accepted; asyncio accepts as many at once before it looks at the limit."""
_OTHER_FILES = _BACKLOG + 64
_FLUSH_S = 5.0

ABORT, DRAIN, HANG = "abort", "drain", "hang"


@dataclass(frozen=True)
class Ending:
    """What SIGTERM does.

    Attributes:
        way: `abort`, `drain` or `hang`.
        drain_s: most time for `drain`; None: no limit.
    """

    way: str
    drain_s: float | None = None


def run(settings: Settings, ending: Ending, listener: socket.socket) -> int:
    """Serve on a listening socket until a signal; return the exit code."""
    return asyncio.run(_Process(settings, ending).serve(listener))


def max_connections() -> int:
    """Return how many connections there may be: MAX_CONNECTIONS, or fewer where the process may open fewer files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + _OTHER_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(MAX_CONNECTIONS, soft - _OTHER_FILES))


class _Process:
    """The engine's life; everything on the loop's thread."""

    def __init__(self, settings: Settings, ending: Ending) -> None:
        self._settings, self._ending = settings, ending
        self._connections: set[Connection] = set()
        self._limit = max_connections()
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()

    async def serve(self, listener: socket.socket) -> int:
        """Serve, end as told, return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        engine = Engine(self._settings, loop)
        server = await loop.create_server(
            lambda: Connection(engine.handle, self._open, self._connections.discard), sock=listener, backlog=_BACKLOG
        )
        host, port = listener.getsockname()[:2]
        log.info("listening", extra={"address": host, "port": port, "dialect": self._settings.dialect.name})
        try:
            return await self._until_end(engine)
        finally:
            server.close()
            for connection in list(self._connections):
                connection.cut()
            await asyncio.sleep(0)  # for the connections' last callbacks

    def _open(self, connection: Connection) -> bool:
        self._connections.add(connection)
        return len(self._connections) <= self._limit

    async def _until_end(self, engine: Engine) -> int:
        first = await self._signals.get()
        way = ABORT if first == signal.SIGINT else self._ending.way
        log.info("stopping", extra={"signal": first.name, "way": way})
        if way == ABORT:
            return 0
        again = asyncio.create_task(self._signals.get())
        if way == HANG:
            engine.hang()
            return 128 + await again
        drained = asyncio.create_task(self._drain(engine))
        done, pending = await asyncio.wait({again, drained}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return 128 + again.result() if again in done else 0

    async def _drain(self, engine: Engine) -> None:
        """Wait until every request has its answer and every answer is with its client, within the limit."""
        engine.draining = True
        try:
            async with asyncio.timeout(self._ending.drain_s):
                await engine.emptied.wait()
        except TimeoutError:
            log.warning("requests were still under way", extra={"drain_s": self._ending.drain_s})
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                while any(connection.unsent for connection in self._connections):
                    await asyncio.sleep(0.01)
