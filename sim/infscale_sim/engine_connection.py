"""One client's connection to the stand-in engine, on asyncio: requests in, whole answers or streams out.

`infscale.web` reads heads and writes answers; its server has a thread per answer under way and no streams, so hundreds
of slow streams are served here, by one thread. `engine_server` gives each connection its handler.

Bounds: a request's head and body in time and size, the time between two requests, the bytes that a slow reader leaves
behind (its stream is then told in larger pieces), and the time for which it takes none at all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from infscale.web.message import MAX_HEAD_BYTES, Head, Request, RequestError, Response, parse_head, render

REQUEST_S = 30.0
"""For one whole request, from its first byte."""
IDLE_S = 75.0
"""Between two requests, and for a reader that takes nothing."""
_SLOW_BYTES = 64 * 1024
_HEAD_END = re.compile(rb"\r?\n\r?\n")

Handler = Callable[[Request, "Connection"], None]
"""Answers a request through the connection, now or later."""


class Connection(asyncio.Protocol):
    """One connection; one request at a time, further ones wait in the buffer.

    Attributes:
        gone: set by the owner of the answer under way; called once if the client leaves before its end.
    """

    def __init__(self, handler: Handler, opened: Callable[[Connection], bool], closed: Callable[[Connection], None]):
        self._handler, self._opened, self._closed = handler, opened, closed
        self.gone: Callable[[], None] | None = None
        self._transport: asyncio.Transport
        self._buffer = bytearray()
        self._head: Head | None = None
        self._busy = self._over = False
        self._timer: asyncio.TimerHandle | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (what a stream server gives)
        self._transport = transport
        transport.set_write_buffer_limits(high=_SLOW_BYTES)
        if self._opened(self):
            self._allow(IDLE_S)
        else:
            self._refuse(503, "too many connections")

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        if self._over:
            return
        if not self._buffer and not self._busy:
            self._allow(REQUEST_S)
        self._buffer += data
        if self._busy:
            if len(self._buffer) > MAX_HEAD_BYTES:  # a client that sends on and on while it is answered
                self._transport.abort()
            return
        self._next_request()

    def eof_received(self) -> None:
        """The client ended its side: it has left, as every HTTP server for engines takes it."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever is answering."""
        self._cancel_timer()
        self._closed(self)
        if self.gone is not None:
            self.gone()

    def pause_writing(self) -> None:
        """A reader that takes nothing for IDLE_S is cut."""
        self._allow(IDLE_S)

    def resume_writing(self) -> None:
        """It reads again: the answer goes on, or what comes after it has its time anew."""
        if self._busy and not self._over:
            self._cancel_timer()
        else:
            self._allow(IDLE_S)

    # for the handler

    @property
    def slow(self) -> bool:
        """Whether much of what was sent is still unread; a stream then waits, and tells more in one piece."""
        return self._transport.get_write_buffer_size() > _SLOW_BYTES

    @property
    def unsent(self) -> bool:
        """Whether any of what was sent is still here."""
        return self._transport.get_write_buffer_size() > 0

    def answer(self, response: Response) -> None:
        """Answer the request in one piece."""
        head = self._head
        close = head is None or not head.keep_alive or self._over
        http_10, head_only = head is not None and head.http_10, self._method == "HEAD"
        self._transport.write(render(response, head_only=head_only, http_10=http_10, close=close))
        self._end_answer(close=close)

    def begin_stream(self) -> None:
        """Answer the request with a stream of server-sent events."""
        head = self._head
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream; charset=utf-8", "Cache-Control: no-cache"]
        if head is not None and head.http_10:
            lines.append("Connection: close")
        else:
            lines.append("Transfer-Encoding: chunked")
            if head is not None and not head.keep_alive:
                lines.append("Connection: close")
        self._transport.write("\r\n".join([*lines, "", ""]).encode())

    def send(self, data: bytes) -> None:
        """Send a piece of the stream."""
        if self._head is None or self._head.http_10:
            self._transport.write(data)
        else:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """End the stream."""
        if self._head is not None and not self._head.http_10:
            self._transport.write(b"0\r\n\r\n")
        self._end_answer(close=self._head is None or self._head.http_10 or not self._head.keep_alive)

    def cut(self) -> None:
        """End the connection at once, whatever is under way: what an engine that aborts does."""
        self._transport.abort()

    # inside

    @property
    def _method(self) -> str:
        return self._head.method if self._head else ""

    def _next_request(self) -> None:
        """Read a request if it is complete, and have it answered."""
        try:
            request = self._take_request()
        except RequestError as error:
            self._refuse(error.status, str(error))
            return
        if request is None:
            return
        self._cancel_timer()
        self._busy = True
        self._handler(request, self)

    def _take_request(self) -> Request | None:
        if self._head is None:
            match = _HEAD_END.search(self._buffer)
            if match is None or match.start() > MAX_HEAD_BYTES:
                if len(self._buffer) > MAX_HEAD_BYTES:
                    raise RequestError(431, f"the request's head is larger than {MAX_HEAD_BYTES} bytes")
                return None
            text = bytes(self._buffer[: match.start()])
            del self._buffer[: match.end()]
            self._head = parse_head(text)
            if self._head.expects_continue and len(self._buffer) < self._head.length:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = self._head
        if len(self._buffer) < head.length:
            return None
        body = bytes(self._buffer[: head.length])
        del self._buffer[: head.length]
        client = self._transport.get_extra_info("peername")
        return Request(head.method, head.path, head.raw_query, head.headers, body, str(client[0]) if client else "")

    def _end_answer(self, *, close: bool) -> None:
        self.gone = None
        if close:
            self._over = True
            self._allow(IDLE_S)  # to take what is left
            self._transport.close()
            return
        self._busy, self._head = False, None
        self._allow(IDLE_S)
        if self._buffer:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self._busy and not self._over:
            self._next_request()

    def _refuse(self, status: int, message: str) -> None:
        """Answer what is no request, and end."""
        self._over = True
        self.answer(Response(status, f"{message}\n".encode()))

    def _allow(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._transport.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
