"""Serves a recorded run as the engine served it, failures included, over real sockets.

`infscale replay`, the demo and the tests use it. The port is bound for as long as a Replay lives, and listened on only
while the recorded engine answered: a socket that is bound and does not listen refuses connections, and nobody else can
take the port meanwhile.

Two ways to go through the lines of a recording:

* by time (the default): a GET is answered as the line in force, the last one whose time has come. While lines are
  `refused`, nothing listens and open connections are cut.
* by step: each GET of /metrics takes the next line, whatever the time. A refused GET cannot be seen, so before a run of
  refused lines the listener closes, ahead of the answer to the last GET; it opens again after their recorded time (over
  the speed, REFUSED_LIMIT_S at most), and the first line after them is the next.

Pages and HTTP errors are answered at once, whatever latency was recorded. A `timeout` line holds the connection without
an answer for its recorded latency (over the speed) and closes it; a `reset` line resets it once the request was read.
After the last line, which stays for the usual time between lines, the listener closes for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import cast

from infscale.errors import InfscaleError, UsageError
from infscale.recording import REFUSED, TIMEOUT, Line, Recording
from infscale.replay_http import IDLE_LIMIT_S, REQUEST_LIMIT_BYTES, bound, cannot_listen, read_request, reset, send

REFUSED_LIMIT_S = 1.0
"""By step, the longest that refused lines keep the listener closed; a loading engine is refused for minutes."""

POLL_S = 0.05
"""By time, the longest sleep: a clock that is driven by a test is seen this soon."""
CONNECTION_LIMIT = 128


class Replay:
    """A recorded engine on a port. The address holds from the start; connections are refused until `start`.

    Args:
        recording: what to serve.
        host: the address to bind.
        port: the port; 0 takes a free one.
        speed: recorded seconds that pass per second, above 0.
        start_phase: begin with the first line of this phase; empty begins with the first line.
        step: go by GETs instead of time.
        clock: seconds from any origin, for the replay by time.

    Raises:
        UsageError: a speed that is none, an unknown phase, an address that cannot be bound.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        speed: float = 1.0,
        start_phase: str = "",
        step: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < speed < math.inf:
            raise UsageError(f"the speed is {speed}; expected recorded seconds a second, a number above 0")
        self.recording, self.speed, self.step = recording, speed, step
        self.line: Line | None = None
        """The line that the last GET was answered as."""
        self.gets = 0
        """GETs of /metrics so far."""
        self._clock = clock
        self._next = self._first = recording.first_of(start_phase)
        self._began: float | None = None
        self._socket = bound(host, port)
        self._where: tuple[str, int] = self._socket.getsockname()[:2]
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._closed, self._stopping = asyncio.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._fault: InfscaleError | None = None

    @property
    def address(self) -> str:
        """`host:port`, as a URL spells it."""
        host, port = self._where
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def url(self) -> str:
        """The URL of the metrics page."""
        return f"http://{self.address}/metrics"

    @property
    def now_s(self) -> float:
        """The recorded time that it is in the replay by time, Unix seconds."""
        passed_s = 0.0 if self._began is None else self._clock() - self._began
        return self.recording.lines[self._first].t_s + passed_s * self.speed

    @property
    def recorded_s(self) -> float:
        """Recorded seconds from the first line served to the end."""
        return self.recording.end_s - self.recording.lines[self._first].t_s

    def start(self) -> None:
        """Begin: time starts to pass, and the listener opens unless the first line is refused.

        Raises:
            UsageError: somebody else listens on the port.
        """
        self._began = self._clock()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._fault:
            self.stop()
            raise self._fault

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the recording; False when the time ran out first.

        Raises:
            SourceError: a page could no longer be read, or the port was lost.
        """
        if self._thread:
            self._thread.join(timeout_s)
        if self._fault:
            raise self._fault
        return self._thread is None or not self._thread.is_alive()

    def stop(self) -> None:
        """Close the listener and every connection, and give the port back. May be called again."""
        if self._thread and self._loop:
            with contextlib.suppress(RuntimeError):  # the loop is over already
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        self._socket.close()

    def __enter__(self) -> Replay:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Everything below runs on the replay's own thread.

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except InfscaleError as error:
            self._fault = self._fault or error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        ends = {
            asyncio.create_task(self._go_by_step() if self.step else self._go_by_time()),
            asyncio.create_task(self._stopping.wait()),
        }
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._close()
            for task in ends:
                task.cancel()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*ends, *self._connections, return_exceptions=True)

    async def _go_by_time(self) -> None:
        recording = self.recording
        while (now_s := self.now_s) < recording.end_s:
            index = recording.index_at(now_s)
            if recording.lines[index].failure == REFUSED:
                self._close()
            else:
                await self._open()
            self._started.set()
            following_s = recording.lines[index + 1].t_s if index + 1 < len(recording.lines) else recording.end_s
            # At least a millisecond: at a high speed many lines pass in one sleep, which is no harm.
            await asyncio.sleep(min(POLL_S, max(0.001, (following_s - now_s) / self.speed)))

    async def _go_by_step(self) -> None:
        lines = self.recording.lines
        while True:
            refused_from = self._next
            while self._next < len(lines) and lines[self._next].failure == REFUSED:
                self._next += 1
            if self._next == len(lines):
                break
            if self._next > refused_from:
                self._started.set()
                refused_s = lines[self._next].t_s - lines[refused_from].t_s
                await asyncio.sleep(min(REFUSED_LIMIT_S, refused_s / self.speed))
            await self._open()
            self._started.set()
            self._closed.clear()
            await self._closed.wait()
        self._started.set()
        if self._connections:
            await asyncio.wait(self._connections)  # the last answer

    async def _open(self) -> None:
        if self._server:
            return
        try:
            self._server = await asyncio.start_server(self._connected, sock=self._socket, limit=REQUEST_LIMIT_BYTES)
        except OSError as error:
            raise cannot_listen(self.address, error) from error

    def _close(self, keep: asyncio.Task[None] | None = None) -> None:
        """Refuse connections, and cut the open ones but `keep`; the port stays bound."""
        if not self._server:
            return
        self._server.close()
        self._server = None
        self._socket = bound(*self._where)
        self._closed.set()
        for connection in self._connections - {keep}:
            connection.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side has enough."""
        me = cast("asyncio.Task[None]", asyncio.current_task())
        if len(self._connections) >= CONNECTION_LIMIT or not self._server:
            writer.transport.abort()
            return
        self._connections.add(me)
        try:
            while await self._exchange(reader, writer, me):
                pass
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), IDLE_LIMIT_S)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # a client that went away, fell silent or sent no HTTP
        except InfscaleError as error:
            self._fault = error
            self._stopping.set()
        finally:
            self._connections.discard(me)
            writer.transport.abort()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, me: asyncio.Task[None]
    ) -> bool:
        """Read a request and answer it; whether the connection stays open."""
        request = await read_request(reader)
        if request.refused:
            status, text = request.refused
            await send(writer, status, (("Content-Type", "text/plain; charset=utf-8"),), text.encode(), close=True)
            return False
        line = self._take(me) if request.method == "GET" else self.recording.lines[self._index()]
        if line.failure == TIMEOUT:
            with contextlib.suppress(TimeoutError):  # the client's patience ends it too
                await asyncio.wait_for(reader.read(1), line.latency_s / self.speed)
            return False
        if line.failure:  # refused only where the time of a refused line came while the request was under way
            reset(writer)
            return False
        body = self.recording.page(line)
        close = request.wants_close or line.closes or not self._server
        await send(writer, line.status, line.headers, body, close=close, head=request.method == "HEAD")
        return not close

    def _index(self) -> int:
        """The index of the line that a GET would be answered as now."""
        if self.step:
            return min(self._next, len(self.recording.lines) - 1)
        return max(self._first, self.recording.index_at(self.now_s))

    def _take(self, me: asyncio.Task[None]) -> Line:
        """The line that this GET is answered as."""
        lines = self.recording.lines
        line = lines[self._index()]
        self.line, self.gets = line, self.gets + 1
        if self.step:
            self._next += 1
            if self._next >= len(lines) or lines[self._next].failure == REFUSED:
                self._close(keep=me)
        return line
