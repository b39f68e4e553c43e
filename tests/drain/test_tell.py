"""Where the report goes: never waited for, never an error."""

from __future__ import annotations

import os
import time

import pytest

from infscale.drain.tell import POST_S, append, post
from tests.drain.hooked import NOWHERE
from tests.raw_server import Call, raw_server


def test_appends_a_line(tmp_path):
    """The line comes after what is in the file."""
    log = tmp_path / "log"
    log.write_text("before\n")

    assert append(str(log), "line\n")
    assert log.read_text() == "before\nline\n"


@pytest.mark.parametrize("path", ["", "/nowhere/log", "/"])
def test_nowhere_to_write(path):
    """Without a file, or with one that cannot be opened, there is no line and no error."""
    assert not append(path, "line\n")


def test_a_full_pipe_is_not_waited_for():
    """A log that nobody empties gets no line, and the hook goes on at once; the log's own descriptor stays blocking."""
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        while True:
            try:
                os.write(writer, b"x" * 65536)
            except BlockingIOError:
                break
        os.set_blocking(writer, True)

        told = append(f"/proc/self/fd/{writer}", "line\n")
        blocking = os.get_blocking(writer)
    finally:
        os.close(reader)
        os.close(writer)

    assert (told, blocking) == (False, True)


def test_a_pipe_without_a_reader_is_not_waited_for(tmp_path):
    """A named pipe that nobody reads gets no line."""
    os.mkfifo(tmp_path / "log")

    assert not append(str(tmp_path / "log"), "line\n")


@pytest.mark.parametrize(
    ("status", "taken"),
    [("204 No Content", True), ("200 OK", True), ("300 Multiple Choices", False), ("404 Not Found", False)],
)
def test_posts_json(status, taken):
    """A report is posted with its length; any 2xx means that it was taken."""

    def answer(call: Call) -> None:
        while not call.request.endswith(b"}"):
            call.request += call.connection.recv(65536)
        call.page(b"", status=status)

    with raw_server(answer) as server:
        told = post(server.url("/drain/report"), '{"outcome": "idle"}')

        (call,) = server.calls
    assert told == taken
    assert call.request.decode().split("\r\n") == [
        "POST /drain/report HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "Content-Type: application/json",
        "Content-Length: 19",
        "Connection: close",
        "",
        '{"outcome": "idle"}',
    ]


@pytest.mark.parametrize("url", ["", "what", f"{NOWHERE}/drain/report"])
def test_no_sidecar(url):
    """Without a sidecar nothing is told, and it is no error."""
    assert not post(url, "{}")


def test_a_sidecar_that_hangs_is_not_waited_for():
    """A sidecar that does not answer costs 0.3 s."""
    with raw_server(Call.hang) as server:
        began = time.monotonic()
        told = post(server.url(), "{}")
        spent_s = time.monotonic() - began

    assert not told
    assert POST_S <= spent_s < 10 * POST_S
