"""The demo's balancer: each connection goes to the replica with the fewest, bytes go through as they come.

It stands for a Service, which balances connections too. Connections are requests here: the load opens one for each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

_PIECE_BYTES = 64 * 1024
_CONNECT_S = 5.0
_NOBODY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Balancer:
    """A TCP balancer on the loopback address.

    Attributes:
        port: where it listens, once it was started.
    """

    def __init__(self) -> None:
        self.port = 0
        self._under_way: dict[int, int] = {}  # port of a replica: connections
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Cut what is under way, and end."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(self, port: int) -> None:
        """Send new connections to a replica too."""
        self._under_way[port] = 0

    def remove(self, port: int) -> None:
        """Send no new connection to a replica; those it has go on."""
        self._under_way.pop(port, None)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried: set[int] = set()
        try:
            while (port := self._fewest(tried)) is not None:
                with self._counted(port), contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(_CONNECT_S):
                        replica = await asyncio.open_connection("127.0.0.1", port)
                    await _through((reader, writer), replica)
                    return
                tried.add(port)
            writer.write(_NOBODY)
        finally:
            writer.close()

    def _fewest(self, tried: set[int]) -> int | None:
        left = [port for port in self._under_way if port not in tried]
        return min(left, key=lambda port: self._under_way[port], default=None)

    @contextlib.contextmanager
    def _counted(self, port: int) -> Iterator[None]:
        self._under_way[port] += 1
        try:
            yield
        finally:
            if port in self._under_way:
                self._under_way[port] -= 1


async def _through(client: Streams, replica: Streams) -> None:
    """Copy both ways until one side ends; never raises for what the sides do."""
    ways = {asyncio.ensure_future(_copy(client[0], replica[1])), asyncio.ensure_future(_copy(replica[0], client[1]))}
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        replica[1].transport.abort()  # a client that left gives its slot back at once


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE_BYTES):
            writer.write(data)
            await writer.drain()
