"""One client's connection: from bytes to requests and from answers to bytes, step by step, never waiting.

`server.Listener` owns it. One thread has it at a time: a worker while it can go on, the parking thread while it waits.
A step that cannot go on raises `NotReadyError`; what is done so far is kept, and `deadline` says how long the client
has. So a client that drips bytes, or reads its answer slowly, costs a few kB of memory but never a thread.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from selectors import EVENT_READ

from infscale.web.message import (
    MAX_HEAD_BYTES,
    MAX_REQUEST_LINE_BYTES,
    Head,
    Request,
    RequestError,
    Response,
    parse_head,
    render,
    text_response,
)
from infscale.web.stream import NotReadyError, PlainStream, Stream

Wrap = Callable[[socket.socket], Stream]
"""Makes a TLS stream of a socket."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_TLS_HANDSHAKE_RECORD = b"\x16"
_HEAD_END = re.compile(rb"\n\r?\n")  # a bare line feed ends a line too (RFC 9112 2.2): people type requests into nc
_FIRST_BYTE = re.compile(rb"[A-Za-z]")
_DISCARD_S = 2.0


@dataclass(frozen=True)
class Timeouts:
    """How long a client may take, seconds.

    Attributes:
        idle_s: between two requests, for a request's body, and to take an answer.
        head_s: from the first byte of a request (or of a TLS handshake) to the end of its head, in all.
    """

    idle_s: float = 30.0
    head_s: float = 10.0


class Connection:
    """The state of one connection.

    Attributes:
        client: the peer's IP address.
        fd: the socket's descriptor, the same from start to end.
        deadline: on time.monotonic, when the client's time for what it is doing ends.
    """

    def __init__(self, sock: socket.socket, client: str, timeouts: Timeouts) -> None:
        self.client = client
        self.fd = sock.fileno()
        self._sock = sock
        self._timeouts = timeouts
        self._stream: Stream = PlainStream(sock)
        self._encrypted = False
        self._begun = False
        self._buffer = bytearray()
        self._searched = 0
        self._head: Head | None = None
        self._out = memoryview(b"")
        self._closing = False
        self._discarding = False
        self._allow(timeouts.idle_s)

    @property
    def idle(self) -> bool:
        """Whether nothing of a request has come and nothing of an answer is left to send."""
        return not (self._buffer or self._head or self._out)

    @property
    def held_bytes(self) -> int:
        """How much of a request has come, and how much of an answer is left."""
        return len(self._buffer) + len(self._out)

    @property
    def handshaking(self) -> bool:
        """Whether a TLS handshake has begun and not ended."""
        return self._encrypted and not self._begun

    def begin(self, wrap: Wrap | None) -> None:
        """Make the stream, encrypted if `wrap` is given, and finish its handshake.

        Raises:
            RequestError: the client speaks plain HTTP where TLS is wanted; it can be answered.
            NotReadyError, OSError: as every step.
        """
        if self._begun:
            return
        if wrap is not None and not self._encrypted:
            if not self._speaks_tls():
                self._begun = True
                raise RequestError(400, "this port speaks HTTPS; ask with https://")
            self._stream, self._encrypted = wrap(self._sock), True
            self._allow(self._timeouts.head_s)
        self._stream.handshake()
        self._begun = True
        self._allow(self._timeouts.idle_s)

    def receive(self) -> bool:
        """Read what has arrived; False when the connection is at its end."""
        data = self._stream.receive()
        if self._discarding:
            return bool(data) and time.monotonic() < self.deadline
        if self.idle:
            self._allow(self._timeouts.head_s)
        self._buffer += data
        return bool(data)

    def next_request(self) -> tuple[Head, Request] | None:
        """Return the next complete request, or None while bytes are missing; RequestError for one that is wrong."""
        if self._discarding:
            return None
        if self._head is None:
            text = self._take_head()
            if text is None:
                return None
            self._head = parse_head(text)
            self._allow(self._timeouts.idle_s)
            if self._head.expects_continue and len(self._buffer) < self._head.length:
                self._out = memoryview(_CONTINUE)
                self.flush()
        head = self._head
        if len(self._buffer) < head.length:
            return None
        body = bytes(self._buffer[: head.length])
        del self._buffer[: head.length]
        self._head = None
        return head, Request(head.method, head.path, head.raw_query, head.headers, body, self.client)

    def answer(self, head: Head, response: Response, headers: Mapping[str, str], *, close: bool) -> None:
        """Have `response` ready to be flushed; ValueError when its headers cannot be sent.

        Args:
            head: of the request that `next_request` returned.
            response: the answer to it.
            headers: fields for every answer.
            close: end the connection afterwards, even if the client would keep it.
        """
        close = close or not head.keep_alive
        data = render(response, head_only=head.method == "HEAD", http_10=head.http_10, close=close, headers=headers)
        self._out, self._closing = memoryview(data), close
        self._allow(self._timeouts.idle_s)

    def refuse(self, error: RequestError) -> None:
        """Answer a request that could not be understood, and end: where the next one begins is not known."""
        self._out = memoryview(render(text_response(error.status, str(error)), close=True))
        self._closing = self._discarding = True
        self._head = None
        self._buffer.clear()
        self._allow(_DISCARD_S)

    def flush(self) -> bool:
        """Send what is left of the answer; False when the connection is then at its end."""
        if not self._out:
            return True
        while self._out:
            self._out = self._out[self._stream.send(self._out) :]
        if self._discarding:
            # Closing with unread bytes would send RST, which can destroy the answer before the client has read it.
            self._stream.end()
        elif self._closing:
            return False
        elif self._head is None:
            self._allow(self._timeouts.head_s if self._buffer else self._timeouts.idle_s)
        return True

    def expire(self) -> None:
        """Close a connection whose deadline has passed; a client in the middle of a request is told with 408."""
        if self._begun and not (self.idle or self._out or self._discarding):
            late = text_response(408, "the request did not arrive in time")
            with contextlib.suppress(OSError, NotReadyError):
                self._stream.send(memoryview(render(late, close=True)))
        self.close()

    def close(self) -> None:
        """Close the socket; never fails."""
        self._stream.close()

    def _allow(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds

    def _speaks_tls(self) -> bool:
        """Look at the first byte, leaving it where it is."""
        try:
            first = self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            raise NotReadyError(EVENT_READ) from None
        if not first:
            raise ConnectionResetError("closed before the first byte")
        return first == _TLS_HANDSHAKE_RECORD

    def _take_head(self) -> bytes | None:
        """Take a complete head out of the buffer, or return None; RequestError when it is too large or no HTTP."""
        if self._buffer.startswith((b"\r", b"\n")):
            self._buffer = self._buffer.lstrip(b"\r\n")  # empty lines before a request are skipped (9112 2.2)
        buffer = self._buffer
        if not buffer:
            return None
        if not _FIRST_BYTE.match(buffer):
            speaks_tls = buffer.startswith(_TLS_HANDSHAKE_RECORD)
            raise RequestError(400, f"this is {'TLS, and the port speaks plain HTTP' if speaks_tls else 'not HTTP'}")
        found = _HEAD_END.search(buffer, max(0, self._searched - 2))
        size = found.start() if found else len(buffer)
        if buffer.find(b"\n", 0, MAX_REQUEST_LINE_BYTES + 2) < 0 and size > MAX_REQUEST_LINE_BYTES:
            raise RequestError(414, f"the request line is longer than {MAX_REQUEST_LINE_BYTES} bytes")
        if size > MAX_HEAD_BYTES:
            raise RequestError(431, f"the request's head is larger than {MAX_HEAD_BYTES} bytes")
        if found is None:
            self._searched = size
            return None
        if 0 < buffer.count(b"\r\n", 0, found.end()) < buffer.count(b"\n", 0, found.end()):
            # People end every line with a line feed alone. One among CRLFs is what a proxy took for a part of a value.
            raise RequestError(400, "the lines of the request's head end in two ways, with CRLF and with a line feed")
        head = bytes(buffer[:size]).removesuffix(b"\r")
        del buffer[: found.end()]
        self._searched = 0
        return head
