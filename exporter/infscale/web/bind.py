"""From a listen address, as a flag gives it, to a listening socket; used by `server.Listener`."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket

from infscale.errors import UsageError

BACKLOG = 128

_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^\[\]:]*)):(?P<port>\d{1,5})")


def parse_address(address: str, flag: str) -> tuple[str, int]:
    """Split `HOST:PORT`, `[IPV6]:PORT` or `:PORT` (every interface) into host and port.

    Raises:
        UsageError: it is none of these, or the port is above 65535.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise UsageError(f"{flag}: {address!r} is not an address; expected HOST:PORT, [IPV6]:PORT or :PORT")
    port = int(match["port"])
    if port > 65535:
        raise UsageError(f"{flag}: {address!r}: the port must be from 0 (any free one) to 65535")
    return match["v6"] or match["host"], port


def listen(address: str, flag: str) -> socket.socket:
    """Return a socket that listens on `address`; `:PORT` means IPv6 and IPv4 together where the machine has both.

    Raises:
        UsageError: one line that names the flag and the address: taken, not allowed, not of this machine.
    """
    host, port = parse_address(address, flag)
    failure: OSError | None = None
    for family, place in _places(host, port, address, flag):
        try:
            return _listen_at(family, place)
        except OSError as error:
            # Without IPv6 (a kernel started so, many containers) the next place is the IPv4 one.
            failure = error
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                break
    raise UsageError(f"{flag}: cannot listen on {address}: {_why(failure)}") from failure


def _places(host: str, port: int, address: str, flag: str) -> list[tuple[int, tuple[str, int]]]:
    """Return the families and socket addresses to try, in order."""
    if not host:
        return [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("0.0.0.0", port))]  # noqa: S104 (what `:PORT` means)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(f"{flag}: cannot listen on {address}: no such host {host!r}") from error
    return [(family, (str(place[0]), port)) for family, _, _, _, place in found]


def _listen_at(family: int, place: tuple[str, int]) -> socket.socket:
    """Bind and listen, non-blocking; the socket is closed if any of it fails."""
    with contextlib.ExitStack() as undo:
        sock = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if place[0] == "::" else 1)
        sock.bind(place)
        sock.listen(BACKLOG)
        sock.setblocking(False)
        undo.pop_all()
        return sock


def _why(error: OSError | None) -> str:
    """Return what went wrong and what to do, in a few words."""
    code = error.errno if error else None
    if code == errno.EADDRINUSE:
        return "the port is taken; stop what listens there or choose another port"
    if code == errno.EADDRNOTAVAIL:
        return "this machine does not have that address"
    if code in (errno.EACCES, errno.EPERM):
        return "not allowed; ports below 1024 need privileges, choose one above"
    return os.strerror(code) if code else "no address"
