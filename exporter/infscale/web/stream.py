"""Bytes in and out of one client's socket without ever waiting for it: plain here, TLS in `tls.py`.

`connection.py` uses them. What cannot go on at once raises `NotReadyError`; who catches it parks the connection until
the socket is ready. Everything else that goes wrong with a peer is an OSError.
"""

from __future__ import annotations

import contextlib
import socket
from selectors import EVENT_READ, EVENT_WRITE
from typing import Protocol

RECEIVE_BYTES = 65536


class NotReadyError(Exception):
    """The socket has to become readable or writable first.

    Attributes:
        event: `selectors.EVENT_READ` or `EVENT_WRITE`.
    """

    def __init__(self, event: int) -> None:
        self.event = event
        super().__init__("the socket is not ready")


class Stream(Protocol):
    """What a connection needs of its transport."""

    def handshake(self) -> None:
        """Go on with the handshake; return when it is complete."""

    def receive(self) -> bytes:
        """Return what has arrived, at most RECEIVE_BYTES; empty when the peer has ended its side."""

    def send(self, data: memoryview) -> int:
        """Send some of `data`; return how many bytes went out."""

    def end(self) -> None:
        """Say that nothing more will be sent; receiving stays possible."""

    def close(self) -> None:
        """Close the socket; never fails."""


class PlainStream:
    """A stream over a plain socket, which it makes non-blocking."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    def handshake(self) -> None:
        """There is none."""

    def receive(self) -> bytes:
        """Return what has arrived."""
        try:
            return self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            raise NotReadyError(EVENT_READ) from None

    def send(self, data: memoryview) -> int:
        """Send what the socket's buffer takes."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            raise NotReadyError(EVENT_WRITE) from None

    def end(self) -> None:
        """Send FIN."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self._sock.close()
