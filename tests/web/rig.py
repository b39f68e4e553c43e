"""A listener to test and a client that sends exactly the bytes it is told to."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

from infscale.web.connection import Timeouts
from infscale.web.message import Request, Response, text_response
from infscale.web.routes import Router
from infscale.web.server import Limits, Listener
from infscale.web.webconfig import WebConfig

PAGE = b"".join(b'vllm_like_metric{engine="0",model_name="m",n="%d"} 1.0\n' % n for n in range(400))


@dataclass(frozen=True)
class Answer:
    """One answer off the wire; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection to a listener."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None, timeout_s: float = 10) -> None:
        raw = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = tls.wrap_socket(raw, server_hostname="localhost") if tls else raw
        self._file = self.sock.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def answer(self, *, head_only: bool = False) -> Answer:
        """Read one answer."""
        status_line = self._file.readline()
        assert status_line, "the server closed the connection without an answer"
        headers = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        length = 0 if head_only else int(headers.get("content-length", "0"))
        return Answer(int(status_line.split()[1]), headers, self._file.read(length))

    def get(self, path: str = "/metrics", *lines: str, method: str = "GET") -> Answer:
        """Ask for a path with further header lines."""
        head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines])
        self.send(head.encode() + b"\r\n\r\n")
        return self.answer(head_only=method == "HEAD")

    def at_end(self) -> bool:
        """Wait for the server to close the connection; False if it sends something instead."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True


@dataclass
class Gate:
    """A handler that waits until it is opened, and says when somebody is in it."""

    inside: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    open: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: Request) -> Response:
        """Answer once the gate is open."""
        self.inside.release()
        self.open.wait(20)
        return text_response(200, "through")

    def wait_inside(self) -> None:
        """Wait until one more request is in the handler."""
        assert self.inside.acquire(timeout=10)


def echo(request: Request) -> Response:
    """Answer with what was understood of the request."""
    return text_response(200, f"{request.method} {request.path} {request.query} {len(request.body)} {request.client}")


def broken(request: Request) -> Response:
    """Fail."""
    raise RuntimeError("secret of the handler")


@contextlib.contextmanager
def listening(
    gate: Gate | None = None,
    *,
    address: str = "127.0.0.1:0",
    web_config: WebConfig | None = None,
    timeouts: Timeouts | None = None,
    max_requests: int = 40,
    max_connections: int = 512,
) -> Iterator[Listener]:
    """Run a listener with /metrics, /echo, /broken and /gate, and stop it at the end."""
    router = Router()
    router.add("/metrics", lambda _: Response(200, PAGE))
    router.add("/echo", echo, methods=("GET", "POST"))
    router.add("/broken", broken)
    router.add("/bad-header", lambda _: Response(headers={"X-Split": "a\r\nSet-Cookie: b"}))
    router.add("/gate", gate or Gate())
    limits = Limits(max_requests, max_connections, timeouts or Timeouts())
    listener = Listener(address, router, web_config=web_config, limits=limits)
    listener.start()
    try:
        yield listener
    finally:
        if gate:
            gate.open.set()
        listener.stop(5)


def eventually(what: Callable[[], bool], within_s: float = 10) -> bool:
    """Wait until something is so; False if it does not come to be."""
    until = time.monotonic() + within_s
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
