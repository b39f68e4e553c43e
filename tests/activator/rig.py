"""Stand-in replicas, raw clients, and an activator in this process, for tests with real sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any

from infscale.activator.serve import Activator
from infscale.activator.settings import Settings

LONG_S = 30.0
"""A wait that a busy machine does not exceed."""

EVENT = b'data: {"choices": [{"text": "token"}]}\n\n'


@dataclass(frozen=True)
class Seen:
    """A request as it reached a replica; `at_s` is monotonic."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at_s: float


class Answer(BaseHTTPRequestHandler):
    """One connection to a `Replica`; what a replica's `behave` gets."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Replica

    def _any(self) -> None:
        self.close_connection = self.server.serial
        if self.path == self.server.health_path:
            self.server.probes += 1
            self.whole(b"ok" if self.server.ready else b"loading", status=200 if self.server.ready else 503)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        seen = Seen(self.command, self.path, dict(self.headers.items()), body, time.monotonic())
        self.server.seen.append(seen)
        self.server.behave(self)

    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_HEAD = do_PATCH = _any  # noqa: N815 (http.server's names)

    def whole(
        self, body: bytes = b"{}", *, status: int = 200, content_type: str = "application/json", **more: str
    ) -> None:
        """Answer with a length."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin_stream(self, content_type: str = "text/event-stream") -> None:
        """Begin a chunked answer."""
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, piece: bytes = EVENT) -> None:
        """Send a chunk; an empty one is the end."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def stream(self, events: int = 3) -> None:
        """Answer with a whole stream."""
        self.begin_stream()
        for _ in range(events):
            self.chunk()
        self.chunk(b"")

    def die(self, *, reset: bool = False) -> None:
        """End the connection in the middle of it."""
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR) if not reset else None
        self.connection.close()
        self.close_connection = True
        self.wfile = _Nowhere()  # type: ignore[assignment]  # what the base class flushes at the end

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Nowhere:
    closed = True

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Replica(ThreadingHTTPServer):
    """A replica with a health page, and a behaviour for all else.

    Attributes:
        ready: what the health page says.
        serial: serve one connection after the other, each for one request, in the order in which they came.
        seen: the requests so far, without probes.
        behave: answers a request.
        let_go: for behaviours that wait; set at the end at the latest.
        connections: accepted so far.
    """

    daemon_threads = False
    request_queue_size = 1024
    health_path = "/health"

    def __init__(
        self,
        behave: Callable[[Answer], object] = lambda answer: answer.whole(),
        *,
        ready: bool = True,
        serial: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.behave, self.ready, self.serial = behave, ready, serial
        self.seen: list[Seen] = []
        self.probes = self.connections = 0
        self.let_go = threading.Event()
        self._open: set[socket.socket] = set()
        super().__init__((host, port), Answer)
        self.port: int = self.server_address[1]
        self.url = f"http://{host}:{self.port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count and remember a connection."""
        self.connections += 1
        self._open.add(request)
        if self.serial:
            HTTPServer.process_request(self, request, client_address)
        else:
            super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The other side may leave at any time."""

    def close(self) -> None:
        """Stop listening, end every connection and wait for its thread."""
        self.let_go.set()
        self.shutdown()
        self.socket.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()
        self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def activator(upstream: str, **settings: Any) -> Iterator[Activator]:
    """An activator on a free port that probes twenty times a second."""
    quick = {"probe_interval_s": 0.05, "connect_timeout_s": 1.0, "drain_s": 0.2, "hold_s": LONG_S, **settings}
    found = Activator(Settings(upstream, listen_address="127.0.0.1:0", **quick))
    found.start()
    try:
        yield found
    finally:
        found.stop(0.0)


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.005)


def ready(found: Activator, count: int = 1) -> None:
    """Wait until so many replicas are ready."""
    until(lambda: found.endpoints.ready == count)


def holds(found: Activator, count: int) -> None:
    """Wait until so many requests are in line."""
    until(lambda: len(found.queue) == count and found.queue.pending == count)


def outcomes(found: Activator) -> dict[str, int]:
    """The outcomes of held requests that there were."""
    return {name: count for name, count in found.counters.totals().outcomes if count}


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


class Client:
    """One connection to an activator, of bytes."""

    def __init__(self, port: int, *, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(LONG_S)
        self.data = b""
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def post(self, body: bytes = b'{"stream": true}', path: str = "/v1/completions", *lines: str) -> None:
        """Send a request."""
        head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *lines, "", ""])
        self.send(head.encode() + body)

    def read_until(self, mark: bytes) -> bytes:
        """What came so far, up to and with a mark; what follows stays for the next call."""
        while mark not in self.data:
            piece = self.socket.recv(65536)
            assert piece, f"ended after {self.data!r}"
            self.data += piece
        found, _, rest = self.data.partition(mark)
        self.data = rest
        return found + mark

    def read_all(self) -> bytes:
        """Everything up to the end of the connection; ConnectionError where it is reset."""
        while piece := self.socket.recv(65536):
            self.data += piece
        found, self.data = self.data, b""
        return found

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """One whole answer: status, headers in lower case, body."""
        response = http.client.HTTPResponse(self.socket, method="POST")
        response.begin()
        body = response.read()
        found = response.status, {name.lower(): value for name, value in response.getheaders()}, body
        response.close()
        return found

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refused(port: int) -> bool:
    """Whether nobody listens there any more."""
    try:
        Client(port).close()
    except ConnectionError:
        return True
    return False


class Asker(threading.Thread):
    """A client that asks once, on a thread: its answer when it is there, and how long it took."""

    def __init__(
        self, port: int, path: str = "/v1/completions", body: bytes = b"{}", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self.status, self.headers, self.body = 0, dict[str, str](), b""
        self.took_s = self.done_s = 0.0
        self._request = port, path, body, headers or {}
        self.start()

    def run(self) -> None:
        """Ask."""
        port, path, body, headers = self._request
        began_s = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_S)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            self.status, self.headers = response.status, {k.lower(): v for k, v in response.getheaders()}
            self.body = response.read()
        finally:
            connection.close()
        self.done_s = time.monotonic()
        self.took_s = self.done_s - began_s

    def answered(self) -> Asker:
        """Wait for the answer."""
        self.join(LONG_S)
        assert not self.is_alive(), "no answer"
        return self

    @property
    def error(self) -> str:
        """The message of an error in the style of OpenAI's API."""
        message: str = json.loads(self.body)["error"]["message"]
        return message
