"""The few lines of HTTP and sockets that a replayed engine needs. Used by `infscale.replay`."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import struct
from dataclasses import dataclass

from infscale.errors import UsageError

IDLE_LIMIT_S = 30.0
"""The longest wait for a request on a connection, and for a client to take its answer."""

REQUEST_LIMIT_BYTES = 16 << 10

_OWN_HEADERS = {"content-length", "transfer-encoding", "content-encoding", "connection"}
"""Fields that belong to the transfer and not to the page: the body goes out whole, with its length."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 seconds."""


def bound(host: str, port: int) -> socket.socket:
    """A socket that holds an address without listening."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise cannot_listen(f"{host}:{port}", error) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # past the last listener's closed connections
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise cannot_listen(f"{host}:{port}", error) from error
    return bound


def cannot_listen(where: str, error: OSError) -> UsageError:
    """The one line for an address that cannot be had."""
    if error.errno == errno.EADDRINUSE:
        return UsageError(f"{where}: the port is taken by another program; stop that or choose another port")
    return UsageError(f"{where}: cannot listen there: {error.strerror or error}; expected an address of this machine")


@dataclass(frozen=True)
class Request:
    """The head of a request, as far as a recording needs it.

    Attributes:
        method: `GET`, `HEAD`, ...
        refused: status and text to answer with where it does not ask for the metrics page, else None.
        wants_close: the client wants the connection closed after the answer.
    """

    method: str
    refused: tuple[int, str] | None
    wants_close: bool


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Wait for a request's head.

    Raises:
        EOFError, OSError, TimeoutError, asyncio.LimitOverrunError: there is none, or it is too long.
    """
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), IDLE_LIMIT_S)
    request, *fields = head.decode("latin-1").lower().split("\r\n")
    method, target, version = [*request.split(" ", 2), "", ""][:3]
    refused = None
    if not version.startswith("http/1."):
        refused = 400, "not an HTTP/1 request\n"
    elif target.partition("?")[0] != "/metrics":
        refused = 404, "a replayed recording has /metrics alone\n"
    elif method not in ("get", "head"):
        refused = 405, "a replayed recording answers GET and HEAD\n"
    close = version == "http/1.0" or any(field.replace(" ", "") == "connection:close" for field in fields)
    return Request(method.upper(), refused, close)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that its client sees a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


async def send(
    writer: asyncio.StreamWriter,
    status: int,
    headers: tuple[tuple[str, str], ...],
    body: bytes,
    *,
    close: bool,
    head: bool = False,
) -> None:
    """Send an answer in one piece: the recorded fields, but those of the transfer, and the body with its length."""
    fields = [(name, value) for name, value in headers if name.lower() not in _OWN_HEADERS]
    fields.append(("Content-Length", str(len(body))))
    if close:
        fields.append(("Connection", "close"))
    reason = http.client.responses.get(status, "")
    text = "".join(f"{name}: {value}\r\n" for name, value in fields)
    writer.write(f"HTTP/1.1 {status} {reason}\r\n{text}\r\n".encode() + (b"" if head else body))
    await asyncio.wait_for(writer.drain(), IDLE_LIMIT_S)
