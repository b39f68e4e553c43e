"""A client of bytes: what a listener answers to exactly these, and when it ends the connection."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from dataclasses import dataclass

from tests.sidecar_process import LONG_S


@dataclass(frozen=True)
class Said:
    """Everything that a listener said on one connection, up to its end."""

    data: bytes

    @property
    def status(self) -> int:
        """Of the first answer; 0 where the connection was closed without one."""
        return int(self.data.split(b" ")[1]) if self.data else 0

    @property
    def statuses(self) -> list[int]:
        """Of each answer."""
        return [int(status) for status in re.findall(rb"HTTP/\d\.\d (\d{3}) ", self.data)]

    @property
    def body(self) -> bytes:
        """Of a single answer."""
        return self.data.partition(b"\r\n\r\n")[2]


def say(
    address: tuple[str, int],
    data: bytes,
    *,
    tls: ssl.SSLContext | None = None,
    half_close: bool = True,
    to_end: bool = True,
) -> Said:
    """Send bytes on a connection of their own and read to its end.

    Args:
        address: of the listener.
        data: what to send.
        tls: the client's side of TLS.
        half_close: say that nothing more comes; else the listener has to end the connection by itself.
        to_end: read to the end of the connection; else to that of the first answer's head.
    """
    said = b""
    with contextlib.suppress(ConnectionError), contextlib.ExitStack() as stack:
        connection: socket.socket = stack.enter_context(socket.create_connection(address, timeout=LONG_S))
        if tls is not None:
            connection = stack.enter_context(tls.wrap_socket(connection, server_hostname="localhost"))
        connection.sendall(data)
        if half_close and tls is None:
            connection.shutdown(socket.SHUT_WR)
        while (to_end or b"\r\n\r\n" not in said) and (piece := connection.recv(65536)):
            said += piece
    return Said(said)


def request(method: str, target: str, *lines: str, body: bytes = b"") -> bytes:
    """A request after whose answer the connection ends."""
    head = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body
