"""Many small pages at once over one selector: plain HTTP to numeric addresses, in one thread.

Called by `reader`. A thousand reads through threads cost a thousand stacks, or wait in line behind those that hang;
here each costs a socket. What came is parsed by `infscale.scrape_http`, so that an answer means the same as in
`scrape.fetch`.
"""

from __future__ import annotations

import errno
import re
import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from infscale import __version__
from infscale.scrape import Page, ScrapeFailure, Target, Url, split_url
from infscale.scrape_http import MAX_HEAD_BYTES, read_body, read_head
from infscale.scrape_wire import Deadline, Wire, WireFault

MAX_OPEN = 512
"""Connections at a time: half of the 1,024 file descriptors that a process often may have."""

MAX_HELD_BYTES = 256 * 2**20
"""Of answers that are on their way, all together."""

_RECEIVE_BYTES = 64 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")

Answer = Page | ScrapeFailure


def takes(target: Target) -> bool:
    """Whether a page can be read here: nothing to resolve, no TLS, no token file."""
    url = split_url(target.url)
    numeric = ":" in url.host or _IPV4.fullmatch(url.host) is not None
    return url.scheme == "http" and numeric and target.token_file is None


@dataclass(slots=True, eq=False)
class _Talk:
    """One connection: what is asked, and what came so far."""

    index: int
    url: Url
    max_bytes: int
    connection: socket.socket
    opened_s: float
    request: bytes
    connected: bool = False
    received: bytearray = field(default_factory=bytearray)


class _Received(Wire):
    """An answer that came whole: the parser's view of it."""

    def __init__(self, deadline: Deadline, received: bytearray) -> None:
        super().__init__(deadline)
        self.connected = True
        self.buffer = received
        self._received = len(received)

    def receive(self) -> bool:
        """Nothing more comes."""
        return False


class Crowd:
    """Reads of pages, started as connections come free.

    Args:
        targets: what to read; all of them such that `takes` says yes.
        deadline: for all of them together.
        answered: called once for each, with its index and its answer, as soon as it is there.
        max_open: connections at a time.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        deadline: Deadline,
        answered: Callable[[int, Answer], None],
        *,
        max_open: int = MAX_OPEN,
    ) -> None:
        self._targets, self._deadline, self._answered, self._max_open = targets, deadline, answered, max_open
        self._waiting = deque(range(len(targets)))
        self._open: set[_Talk] = set()
        self._held_bytes = 0

    def run(self) -> None:
        """Read them all; each that has not answered by the deadline has timed out."""
        with selectors.DefaultSelector() as self._selector:
            try:
                while (self._open or self._waiting) and self._deadline.left_s() > 0:
                    self._admit()
                    for key, _ in self._selector.select(self._deadline.left_s()):
                        self._advance(key.data)
                for talk in list(self._open):
                    what = f"an answer ({len(talk.received)} bytes came)" if talk.connected else "the connection"
                    self._fail(talk, "timeout", f"timed out after {self._deadline.budget_s:g} s, waiting for {what}")
            finally:
                for talk in self._open:
                    talk.connection.close()
        for index in self._waiting:
            self._answered(index, not_read(self._targets[index], self._deadline))

    def _admit(self) -> None:
        while self._waiting and len(self._open) < self._max_open:
            index = self._waiting.popleft()
            try:
                self._start(index)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE) and self._open:
                    self._waiting.appendleft(index)  # as many as this process may have; when one closes, the next
                    return
                place = split_url(self._targets[index].url).place
                message = f"{place}: cannot connect: {error.strerror or error}"
                self._answered(index, ScrapeFailure("reset", message, False, 0.0))

    def _start(self, index: int) -> None:
        """Begin a connection; one that fails at once is told by the selector like one that fails later."""
        target = self._targets[index]
        url = split_url(target.url)
        family = socket.AF_INET6 if ":" in url.host else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            code = connection.connect_ex((url.host, url.port))
            if code not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
                raise OSError(code, errno.errorcode.get(code, str(code)))
            talk = _Talk(index, url, target.max_bytes, connection, self._deadline.spent_s(), _request(target, url))
            self._selector.register(connection, selectors.EVENT_WRITE, talk)
        except BaseException:
            connection.close()
            raise
        self._open.add(talk)

    def _advance(self, talk: _Talk) -> None:
        try:
            if not talk.connected and not self._connect(talk):
                return
            if talk.request:
                self._send(talk)
            else:
                self._receive(talk)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(talk, "reset", f"the connection was reset, waiting for an answer: {error.strerror or error}")

    def _connect(self, talk: _Talk) -> bool:
        code = talk.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # A port that nobody listens on, out of the kernel's own range, can connect to itself.
        to_itself = not code and talk.connection.getsockname()[:2] == (talk.url.host, talk.url.port)
        if code == errno.ECONNREFUSED or to_itself:
            self._fail(talk, "refused", "connection refused: nothing listens there")
        elif code:
            self._fail(talk, "reset", f"cannot connect: {errno.errorcode.get(code, str(code))}")
        else:
            talk.connected = True
        return talk.connected

    def _send(self, talk: _Talk) -> None:
        talk.request = talk.request[talk.connection.send(talk.request) :]
        if not talk.request:
            self._selector.modify(talk.connection, selectors.EVENT_READ, talk)

    def _receive(self, talk: _Talk) -> None:
        data = talk.connection.recv(_RECEIVE_BYTES)
        talk.received += data
        self._held_bytes += len(data)
        if not data or _whole(talk.received):
            self._finish(talk, self._parsed(talk))
        elif len(talk.received) > talk.max_bytes + MAX_HEAD_BYTES:
            self._fail(talk, "too_large", f"the page is larger than {talk.max_bytes} bytes")
        elif self._held_bytes > MAX_HELD_BYTES:
            self._fail(talk, "too_large", f"half-read pages take more than {MAX_HELD_BYTES >> 20} MiB all together")

    def _parsed(self, talk: _Talk) -> Answer:
        took_s = self._deadline.spent_s() - talk.opened_s
        came = len(talk.received)
        wire = _Received(self._deadline, talk.received)
        try:
            head = read_head(wire)
            body = read_body(wire, head, talk.max_bytes)
        except WireFault as fault:
            return ScrapeFailure(fault.kind, f"{talk.url.place}: {fault.message}", True, took_s)
        finally:
            self._held_bytes -= came
            talk.received = bytearray()
        return Page(head.status, head.headers.get("content-type", ""), body, took_s)

    def _fail(self, talk: _Talk, kind: str, message: str) -> None:
        took_s = self._deadline.spent_s() - talk.opened_s
        self._held_bytes -= len(talk.received)
        self._finish(talk, ScrapeFailure(kind, f"{talk.url.place}: {message}", talk.connected, took_s))

    def _finish(self, talk: _Talk, answer: Answer) -> None:
        self._selector.unregister(talk.connection)
        talk.connection.close()
        self._open.discard(talk)
        self._answered(talk.index, answer)


def not_read(target: Target, deadline: Deadline) -> ScrapeFailure:
    """The answer of one whose turn did not come."""
    why = f"its turn did not come within {deadline.budget_s:g} s: too many others hang"
    return ScrapeFailure("timeout", f"{split_url(target.url).place}: {why}", False, 0.0)


def _request(target: Target, url: Url) -> bytes:
    lines = (
        f"GET {url.path} HTTP/1.1",
        f"Host: {url.host_header}",
        f"User-Agent: infscale/{__version__}",
        f"Accept: {target.accept}",
        "Accept-Encoding: identity",
        "Connection: close",
    )
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _whole(received: bytearray) -> bool:
    """Whether an answer has come to its end, where it tells its length; else only the end of the stream tells."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return False
    length = _LENGTH.search(received, 0, end + 2)
    if length is not None:
        return len(received) >= end + 4 + int(length[1])
    return received.endswith(b"\r\n0\r\n\r\n") and _CHUNKED.search(received, 0, end + 2) is not None
