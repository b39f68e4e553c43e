"""A connection taken step by step: nothing depends on how the network cuts a request."""

from __future__ import annotations

import socket

import pytest

from infscale.web.connection import Connection, Timeouts
from infscale.web.message import RequestError
from infscale.web.stream import NotReadyError

TWO = b"\r\nPOST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxyGET /b HTTP/1.1\nHost: h\n\n"


@pytest.mark.parametrize("cut", range(1, len(TWO)))
def test_requests_cut_anywhere(cut):
    """Two pipelined requests are read the same wherever the first packet ends."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        connection = Connection(theirs, "client", Timeouts())
        connection.begin(None)
        paths = []
        for part in (TWO[:cut], TWO[cut:]):
            mine.sendall(part)
            assert connection.receive()
            while received := connection.next_request():
                paths.append((received[1].path, received[1].body))
        assert paths == [("/a", b"xy"), ("/b", b"")]
        assert connection.idle
        with pytest.raises(NotReadyError):
            connection.receive()
        connection.close()


def test_head_is_refused_as_soon_as_it_is_too_long():
    """A head without an end is refused at 64 kB, not gathered."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        connection = Connection(theirs, "client", Timeouts())
        connection.begin(None)
        mine.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(RequestError, match="larger than 65536 bytes"):  # noqa: PT012 (which chunk is too much)
            for _ in range(9):
                mine.sendall(b"A: " + b"b" * 8192)
                connection.receive()
                assert connection.next_request() is None
        connection.close()
