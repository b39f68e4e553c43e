"""One bounded read of one page: limits of size and of time."""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import threading
import time

import pytest

from infscale.scrape import ScrapeFailure, Target, fetch
from tests.raw_server import Call, raw_server
from tests.scrape_reads import CHUNKED, OK, failed, read, run_python


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 1001\r\n\r\n",
        OK + b"Content-Length: 999999999999999999\r\n\r\n",
        OK + b"\r\n" + b"a" * 1001,
        CHUNKED + b"3e8\r\n" + b"a" * 1000 + b"\r\n1\r\n",
        CHUNKED + b"3e9\r\n",
        CHUNKED + b"ffffffffffffffff\r\n",
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"a" * 1001, mtime=0),
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(random.Random(0).randbytes(1001), mtime=0),
    ],
)
def test_one_byte_too_many_is_too_large(answer):
    """The limit holds for announced and sent bytes, in chunks too, before and after decompression."""
    failed(read(answer, max_bytes=1000), "too_large", says="larger than 1000 bytes")


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 1000\r\n\r\n" + b"a" * 1000,
        OK + b"\r\n" + b"a" * 1000,
        CHUNKED + b"3e7\r\n" + b"a" * 999 + b"\r\n1\r\na\r\n0\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"a" * 1000, mtime=0),
    ],
)
def test_a_page_of_exactly_the_limit_is_read(answer):
    """The limit itself is no error."""
    assert read(answer, max_bytes=1000).body == b"a" * 1000


@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Header: " + b"a" * 990 + b"\r\n"),
        (b"HTTP/1.1 200 ", b"a" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 40),
        (OK + b"\r\n", b"a" * 65536),
        (CHUNKED, b"10\r\n" + b"a" * 16 + b"\r\n"),
        (CHUNKED, b"1;" + b"x" * 100 + b"\r\na\r\n"),
    ],
)
def test_an_endless_answer_ends_at_the_limit(start, endless):
    """Headers, interim answers, bodies and chunks without end stop at their limit."""

    def answer(call: Call) -> None:
        call.send(start)
        call.forever(endless)

    failed(read(answer, max_bytes=20_000), "too_large", says="bytes")


def bomb(call: Call) -> None:
    """Sends 50 kB that are 50 MB."""
    call.send(OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(50 * 2**20), compresslevel=1))


def huge(call: Call) -> None:
    """Sends a page of 50 MB."""
    call.send(OK + b"Content-Type: text/plain\r\n\r\n")
    for _ in range(800):
        call.send(b"vllm:num_requests_running 1\n" * 2340)


@pytest.mark.parametrize("answer", [bomb, huge])
def test_a_huge_page_takes_bounded_memory(answer):
    """A page of 50 MB, compressed or as it is, stops at 8 MiB, and takes less than 30 MB meanwhile."""
    with raw_server(answer) as server:
        code = (
            "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
            "from infscale.scrape import Target, fetch\n"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "page = fetch(Target(sys.argv[2], timeout_s=20))\n"
            "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "print(page.kind, page.message, (after - before) // 1024, sep='|')\n"
        )
        said = run_python(code, server.url())

    kind, message, grown_mb = said.split("|")
    assert kind == "too_large"
    assert "larger than 8388608 bytes" in message
    assert int(grown_mb) < 30


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda call: call.hang(), "waiting for the headers (0 bytes came)"),
        (lambda call: call.drip(OK + b"X: " + b"a" * 900, 0.05), "waiting for the headers ("),
        (lambda call: (call.send(OK), call.hang()), "waiting for the headers (17 bytes came)"),
        (lambda call: (call.send(OK + b"\r\nabc"), call.hang()), "waiting for the body (22 bytes came)"),
        (lambda call: (call.send(OK + b"Content-Length: 900\r\n\r\n"), call.hang()), "waiting for the body"),
        (lambda call: (call.send(OK + b"\r\n"), call.drip(b"a" * 900, 0.05)), "waiting for the body"),
        (lambda call: (call.send(CHUNKED), call.drip(b"1\r\na\r\n" * 200, 0.05)), "waiting for the body"),
        (lambda call: call.drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 50, 0.01), "waiting for the headers"),
    ],
)
def test_one_deadline_for_the_whole_read(answer, says):
    """Servers that hang or drip are left when the time of the whole read is over, not that of one byte."""
    before = time.monotonic()

    answer = read(answer, timeout_s=0.3)

    failed(answer, "timeout", says=says)
    assert "timed out after 0.3 s" in answer.message
    assert 0.25 < answer.duration_s < 4
    assert time.monotonic() - before < 10


def test_the_time_out_of_one_read_may_differ():
    """`timeout_s` of the call holds instead of the target's; none left is a time-out without a connection."""
    with raw_server(lambda call: call.hang()) as server:
        target = Target(server.url(), timeout_s=30)

        failed(fetch(target, timeout_s=0.1), "timeout", says="after 0.1 s")
        failed(fetch(target, timeout_s=0.0), "timeout", says="127.0.0.1", connected=False)


def test_the_deadline_goes_by_the_clock_that_is_given():
    """A clock that jumps over the deadline ends a read between two bytes."""
    now = [0.0]

    def answer(call: Call) -> None:
        call.send(OK)
        now[0] = 3.0
        call.send(b"X: y\r\n")
        call.hang()

    with raw_server(answer) as server:
        page = fetch(Target(server.url()), clock=lambda: now[0])

    failed(page, "timeout", says="after 2 s")
    assert page.duration_s == 3.0


def test_a_full_accept_queue_is_a_time_out_without_a_connection():
    """The kernel lets a connection wait when the queue is full: no refusal, and not connected."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        time.sleep(0.05)

        page = fetch(Target(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics", timeout_s=0.4))

    failed(page, "timeout", says="waiting for the connection", connected=False)


def test_a_name_that_is_not_resolved_in_time(monkeypatch):
    """A resolver that hangs is left at the deadline, and gathers one thread, however often it is asked."""
    release = threading.Event()

    def hang(host, *args, flags=0, **kwargs):
        if flags:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        release.wait(20)
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    before = threading.active_count()
    answers = [fetch(Target("http://slow.example/metrics", timeout_s=0.1)) for _ in range(5)]
    threads = threading.active_count() - before
    release.set()

    for answer in answers:
        assert isinstance(answer, ScrapeFailure), answer
        assert (answer.kind, answer.connected) == ("timeout", False)
        assert "waiting for the address of slow.example" in answer.message
    assert threads == 1
