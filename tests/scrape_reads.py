"""Reads of servers of raw bytes, and what is asserted of each failure: for the tests of `infscale.scrape`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from infscale.reading import FAILURES
from infscale.scrape import ScrapeFailure, Target, fetch
from tests.raw_server import Call, raw_server
from tests.test_imports import PYTHONS

PAGE = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3.0\n"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
EXPORTER = Path(__file__).parent.parent / "exporter"
OLDEST_PYTHON = next(iter(PYTHONS.values()))


def read(answer, *, timeout_s=20.0, read_request=True, **target):
    """One read of a server that does `answer` (a function, or bytes to send before it closes)."""
    if isinstance(answer, bytes):
        data = answer

        def answer(call: Call) -> None:
            call.send(data)

    with raw_server(answer, read_request=read_request) as server:
        return fetch(Target(server.url(), timeout_s=timeout_s, **target))


def failed(answer, kind, *, says, connected=True):
    """Asserts a failure of a kind whose one line names the server and says this."""
    assert isinstance(answer, ScrapeFailure), answer
    assert (answer.kind, answer.connected) == (kind, connected), answer
    assert says in answer.message
    assert answer.message.isprintable()
    assert answer.message.startswith(("127.0.0.1:", "localhost:", "[::1]:"))
    assert answer.kind in FAILURES
    assert answer.duration_s >= 0


def run_python(code, *arguments):
    """What a bare interpreter of the oldest Python here prints, without site packages and with warnings as errors."""
    done = subprocess.run(
        [OLDEST_PYTHON, "-I", "-S", "-B", "-W", "error", "-c", code, str(EXPORTER), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout
