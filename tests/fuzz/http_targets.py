"""What reads HTTP: an engine's answer, and requests to the sidecar's two listeners and to the activator.

The listeners are the real ones with the real paths. Their connections are driven on this thread, without the parking
thread, so that a fuzzer sees what an input reaches; the activator and the read of an answer take real connections.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import gettempdir

from infscale.core.grammar import parse_policy
from infscale.drain.endpoint import DrainEndpoint
from infscale.drain.ledger import Beside
from infscale.drain.mark import TerminationMark
from infscale.drain.options import DrainOptions
from infscale.engines import PROFILES
from infscale.evaluator import Evaluator
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings, WorkloadName
from infscale.metrics.collectors import Settings
from infscale.metrics.drains import DrainCounters
from infscale.reading import ReadFailure
from infscale.scrape import Page, ScrapeFailure, Target, fetch
from infscale.serving import kubelet_routes
from infscale.sidecar import Engine, EngineSettings, PodAround, Sidecar
from infscale.web.connection import Connection, Timeouts
from infscale.web.message import MAX_BODY_BYTES, RequestError, parse_head
from infscale.web.routes import Router
from infscale.web.server import Listener
from infscale.withdraw import WithdrawEndpoint

WORDS = (
    "GET POST DELETE HEAD PUT OPTIONS CONNECT / /metrics /api/v1/reading /api/v1/load /withdraw?lease=60 /drain/report"
    " /-/ready HTTP/1.1 HTTP/1.0 Host: Content-Length: Transfer-Encoding: chunked Connection: close keep-alive Upgrade:"
    " Expect: 100-continue Authorization: Basic Bearer X-Infscale-Token: Accept: application/openmetrics-text"
    " Accept-Encoding: gzip;q=0 http://h/ \\r\\n \\r\\n\\r\\n \\n 0 %2e%2e ../ * ;ext=1 X-HTTP-Method-Override:"
)
MOST_BYTES = 4 << 20
"""Of the answers to one input: pages of some kB to at most a few hundred pipelined requests."""


class _Answers:
    """Listens, and gives each connection the same bytes, whatever it asks."""

    def __init__(self) -> None:
        self.data = b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                connection.recv(65536)
                connection.sendall(self.data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass


@cache
def _answers() -> _Answers:
    return _Answers()


def answer(data: bytes) -> None:
    """An engine answers with these bytes: a page within its bounds, or a failure whose text is one line."""
    server = _answers()
    server.data = data
    found = fetch(Target(f"http://127.0.0.1:{server.port}/metrics", timeout_s=20.0))
    if isinstance(found, Page):
        assert 200 <= found.status <= 999
        assert len(found.body) <= 8 << 20
        return
    assert isinstance(found, ScrapeFailure)
    assert found.kind != "timeout", found.message
    assert found.message.isprintable(), found.message
    assert len(found.message) < 1000, found.message


@cache
def main_listener() -> Listener:
    """Every path of a sidecar that evaluates, and `/withdraw`; the engine's port is closed."""
    engine = Engine(Target("http://127.0.0.1:1/metrics"), EngineSettings(min_interval_s=3600.0))
    pod = PodAround()
    sidecar = Sidecar([engine], Settings(), pod=pod)
    settings = FleetSettings(workload=WorkloadName("ml", "vllm"), spec_replicas=1)
    source = parse_source("static:http://127.0.0.1:1", settings, cluster=no_cluster)
    evaluator = Evaluator(source, parse_policy("queue:24"))
    evaluator.evaluate()
    router = sidecar.routes(evaluator)
    token = Path(gettempdir()) / "infscale-fuzz-token"
    token.write_text("token")
    WithdrawEndpoint(pod.withdrawal, str(token), look_s=3600.0).add_routes(router)
    return Listener("127.0.0.1:0", router)


def no_cluster():
    """No source here asks a cluster."""
    raise AssertionError


@cache
def kubelet_listener() -> Listener:
    """Every path of the kubelet listener but `/drain`: that takes six seconds, and looks at nothing of a request."""
    url = "http://127.0.0.1:1/metrics"
    refuses = ReadFailure("unreachable", "refused", "nothing listens there")
    beside = Beside(DrainOptions(url), tuple(PROFILES.values()), lambda: None, lambda _timeout_s: refuses)
    router = kubelet_routes(lambda: True)
    paths = Router()
    DrainEndpoint([beside], TerminationMark(), DrainCounters(), clock=_no_time).add_routes(paths)
    router.add("/drain/report", paths.dispatch, methods=("POST",))
    return Listener("127.0.0.1:0", router)


def _no_time() -> float:
    return 0.0


def main(data: bytes) -> None:
    """Requests to the main listener."""
    serve(main_listener(), data)


def kubelet(data: bytes) -> None:
    """Requests to the kubelet listener."""
    serve(kubelet_listener(), data)


def serve(listener: Listener, data: bytes) -> bytes:
    """A connection on which these bytes come, and the end; what is answered."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        listener._serve(Connection(theirs, "127.0.0.1", Timeouts()))
        theirs.close()
        ours.settimeout(5)
        said = b""
        while piece := ours.recv(1 << 20):
            said += piece
    assert b" 500 " not in said[:4096].partition(b"\r\n")[0], said[:300]
    assert not said or said.startswith(b"HTTP/1.1 "), said[:100]
    return said


class Strict:
    """A replica that reads as strictly as our own listeners, and remembers what it could not read.

    Attributes:
        seen: the heads of the requests, without probes.
        faults: what was no request: something came through that the activator should have refused.
        late: how many requests the input before had: of one whose client has left, what was sent on is read later.
    """

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.faults: list[str] = []
        self.late = 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Take no more."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            buffer = b""
            while True:
                while b"\r\n\r\n" not in buffer:
                    piece = connection.recv(65536)
                    if not piece:
                        self._expect(not buffer, f"half a request: {buffer[:200]!r}")
                        return
                    buffer += piece
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                length = self._length(head)
                while len(buffer) < length:
                    if not (piece := connection.recv(65536)):
                        return  # the client is gone, and its request with it
                    buffer += piece
                buffer = buffer[length:]
                if b" /health HTTP" not in head.partition(b"\r\n")[0] or b"X-Fuzz" in head:
                    self.seen.append(head)
                body = b"" if head.startswith(b"HEAD ") else b"{}"
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + body)

    def _length(self, head: bytes) -> int:
        self._expect(head.count(b"\n") == head.count(b"\r\n"), f"a bare line feed: {head!r}")
        try:
            read = parse_head(head)
        except RequestError as error:
            if error.status in (413, 414, 417, 431):  # our own bounds and wishes, not the form
                return 0
            self._expect(False, f"{error}: {head!r}")
            return 0
        return min(read.length, MAX_BODY_BYTES)

    def _expect(self, holds: bool, words: str) -> None:
        if not holds:
            self.faults.append(words)


@cache
def _activator() -> tuple[Strict, int, Callable[[], int]]:
    from infscale.activator.serve import Activator
    from infscale.activator.settings import Settings as ActivatorSettings

    replica = Strict()
    settings = ActivatorSettings(
        f"http://127.0.0.1:{replica.port}", listen_address="127.0.0.1:0", probe_interval_s=0.2, hold_s=5.0
    )
    found = Activator(settings)
    found.start()
    while not found.endpoints.ready:
        time.sleep(0.01)
    return replica, found.port, lambda: found.under_way


_QUIET_S = 0.02
"""An activator that has said nothing for so long, and has nothing under way, waits for more bytes."""

_QUIET_ROUNDS = 5
"""With something under way it may wait for the rest of a body, which does not come."""


def activator(data: bytes) -> None:
    """Requests to the activator: what reaches the replica is whole requests, and never more of them than came.

    The client does not end its side: that would cancel its requests.
    """
    replica, port, under_way = _activator()
    replica.seen.clear()
    said = b""
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(data)
        client.settimeout(_QUIET_S)
        quiet = 0
        while quiet < _QUIET_ROUNDS:
            try:
                if not (piece := client.recv(1 << 20)):
                    break
                said += piece
            except TimeoutError:
                quiet = quiet + 1 if under_way() else _QUIET_ROUNDS
    requests = data.count(b"HTTP/1.")
    most, replica.late = requests + replica.late, requests
    end_s = time.monotonic() + 20
    while under_way():  # what its client has left is cancelled at once
        assert time.monotonic() < end_s, "a request outlives its client"
        time.sleep(0.001)
    assert not replica.faults, replica.faults
    assert not said or said.startswith(b"HTTP/"), said[:100]
    assert len(replica.seen) <= most, replica.seen
