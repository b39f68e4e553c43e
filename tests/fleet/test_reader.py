"""Many pages at once under one deadline, over real sockets that answer in every way."""

from __future__ import annotations

import gzip
import resource
import socket
import time

import pytest

from infscale.core.replicas import Phase, Replica
from infscale.fleet import crowd as crowd_module
from infscale.fleet import reader as reader_module
from infscale.fleet.crowd import Crowd, takes
from infscale.fleet.reader import Ask, Reader
from infscale.fleet.sighting import Sighting
from infscale.scrape import Page, ScrapeFailure, Target
from infscale.scrape_wire import Deadline
from tests.fleet.peers import address, peers, peers_apart
from tests.raw_server import Call, RawServer

BODY = b'{"inflight": 1}'


def read(*targets: Target, budget_s: float = 20.0) -> list[Page | ScrapeFailure]:
    """The answers, in order."""
    reader = Reader()
    answers: dict[int, Page | ScrapeFailure] = {}

    def ask(index: int, target: Target) -> Ask:
        def understand(told: Page | ScrapeFailure) -> Sighting:
            assert index not in answers
            answers[index] = told
            return Sighting(Replica(str(index), Phase.SILENT))

        return Ask(target, understand)

    try:
        seen = reader.read([ask(*pair) for pair in enumerate(targets)], reader.deadline(budget_s))
    finally:
        reader.close()
    assert [sighting.replica.name for sighting in seen] == [str(index) for index in range(len(targets))]
    return [answers[index] for index in range(len(targets))]


def outcome(told: Page | ScrapeFailure) -> object:
    """The body, or the kind of failure."""
    return told.body if isinstance(told, Page) else told.kind


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
ZIPPED = gzip.compress(BODY)

ANSWERS = {
    "length": (lambda call: call.page(BODY), BODY),
    "length, kept open": (lambda call: (call.page(BODY), call.hang()), BODY),
    "a byte at a time": (lambda call: [call.send(bytes([b])) for b in b"HTTP/1.1 200 OK\r\n\r\n" + BODY], BODY),
    "until close": (lambda call: call.send(b"HTTP/1.0 200 OK\r\n\r\n", BODY), BODY),
    "chunked, kept open": (lambda call: (call.send(CHUNKED), call.hang()), b"abcde"),
    "gzip": (lambda call: call.page(ZIPPED, "Content-Encoding: gzip"), BODY),
    "status": (lambda call: call.page(b"no", status="503 Busy"), b"no"),
    "cut": (lambda call: call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", BODY), "reset"),
    "cut chunk": (lambda call: call.send(CHUNKED[:-8]), "reset"),
    "nothing": (lambda call: None, "reset"),
    "reset": (lambda call: call.reset(), "reset"),
    "no HTTP": (lambda call: call.send(b"SSH-2.0-OpenSSH\r\n"), "http"),
    "too large by length": (lambda call: call.page(b"x" * 2000), "too_large"),
    "too large without end": (lambda call: (call.send(OK + b"\r\n"), call.forever(b"x" * 4096)), "too_large"),
    "headers without end": (lambda call: (call.send(OK), call.forever(b"x: y\r\n" * 99)), "too_large"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_answers_mean_the_same_on_both_ways(name, host):
    """Every way of answering, and of failing, through the selector (an address) and through a thread (a name)."""
    does, expected = ANSWERS[name]
    with RawServer(does) as server:
        (told,) = read(Target(server.url(host=host), max_bytes=1000))
    assert outcome(told) == expected


def test_request_is_that_of_a_scrape():
    """Path, host, no compression, one answer for one connection."""
    with RawServer(lambda call: call.page(BODY)) as server:
        read(Target(server.url("/api/v1/reading"), accept="application/json"))
        (call,) = server.calls
    assert call.request.startswith(b"GET /api/v1/reading HTTP/1.1\r\n")
    assert call.header("Host") == f"127.0.0.1:{server.port}"
    assert call.header("Accept") == "application/json"
    assert call.header("Connection") == "close"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_refused(host):
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (told,) = read(Target(f"http://{host}:{port}/"))
    assert isinstance(told, ScrapeFailure)
    assert (told.kind, told.connected) == ("refused", False)
    assert told.message == f"{host}:{port}: connection refused: nothing listens there"


def test_ipv6():
    """An IPv6 address needs no resolver either."""
    with RawServer(lambda call: call.page(BODY), host="::1") as server:
        assert takes(Target(server.url(host="[::1]")))
        (told,) = read(Target(server.url(host="[::1]")))
    assert outcome(told) == BODY


def test_redirect_on_the_same_server_is_followed():
    """As engines do it that mount their metrics: /metrics to /metrics/; elsewhere nobody goes."""

    def does(call: Call) -> None:
        if call.path == "/metrics":
            call.page(b"", "Location: /metrics/", status="307 Temporary Redirect")
        elif call.path == "/metrics/":
            call.page(BODY)
        else:
            call.page(b"", "Location: http://127.0.0.2/", status="302 Found")

    with RawServer(does) as server:
        assert [outcome(told) for told in read(Target(server.url()), Target(server.url("/away")))] == [BODY, "http"]


def test_one_deadline_for_all():
    """Those that hang, drip or never take the connection end together at the deadline; the others have answered."""

    def drips(call: Call) -> None:
        call.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + b" " * 1000, 0.05)

    with (
        RawServer(lambda call: call.hang()) as hangs,
        RawServer(drips) as drip,
        RawServer(lambda c: c.page(BODY)) as well,
    ):
        targets = [
            Target(url) for server in (hangs, drip, well) for url in (server.url(), server.url(host="localhost"))
        ]
        before = time.monotonic()
        told = read(*targets, budget_s=0.5)
        took_s = time.monotonic() - before
    assert [outcome(one) for one in told] == ["timeout"] * 4 + [BODY] * 2
    assert all(one.connected for one in told[:4] if isinstance(one, ScrapeFailure))
    assert 0.4 < took_s < 10


def test_those_whose_turn_does_not_come():
    """With fewer connections than replicas that hang, the last of them were never asked, and their message says so."""
    with peers(lambda came_to: None) as port:
        answers: dict[int, Page | ScrapeFailure] = {}
        targets = [Target(f"http://{address(number)}:{port}/") for number in range(6)]
        Crowd(targets, Deadline(time.monotonic, 0.3), answers.__setitem__, max_open=4).run()
    messages = [told.message for _, told in sorted(answers.items()) if isinstance(told, ScrapeFailure)]
    assert ["too many others hang" in message for message in messages] == [False] * 4 + [True] * 2


def test_half_read_pages_are_bounded_together(monkeypatch):
    """Pages under way that together take too much are given up one by one, and the message says why."""
    monkeypatch.setattr(crowd_module, "MAX_HELD_BYTES", 2**20)

    def half(call):
        call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 800000\r\n\r\n" + b"x" * 400_000)
        call.hang()

    with RawServer(half) as server:
        told = read(*[Target(server.url(), max_bytes=2**20)] * 6, budget_s=2.0)
    failures = [(one.kind, one.message.partition(": ")[2]) for one in told if isinstance(one, ScrapeFailure)]
    given_up = ("too_large", "half-read pages take more than 1 MiB all together")
    assert failures.count(given_up) == 4
    assert [kind for kind, _ in failures if kind != "too_large"] == ["timeout"] * 2


def test_few_file_descriptors():
    """A process that may open few files reads everyone all the same, some at a time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with peers_apart() as port:
        taken = [socket.socket() for _ in range(8)]  # the highest descriptor in use, and some room
        limit = max(one.fileno() for one in taken) + 1
        for one in taken:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            found = read(*(Target(f"http://{address(number)}:{port}/") for number in range(60)))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [type(one) for one in found] == [Page] * 60


def test_what_goes_through_threads():
    """Names, TLS and token files; the rest needs none."""
    assert takes(Target("http://10.0.0.1:10047/api/v1/reading"))
    assert not takes(Target("http://replica-1:10047/"))
    assert not takes(Target("https://10.0.0.1:10047/"))
    assert not takes(Target("http://10.0.0.1:8000/", token_file="/token"))


def test_threads_are_bounded():
    """A hundred names are read by 64 threads at most, and none is left behind."""
    with RawServer(lambda call: call.page(BODY)) as server:
        told = read(*[Target(server.url(host="localhost"))] * 100)
    assert [outcome(one) for one in told] == [BODY] * 100
    assert reader_module.THREADS == 64
