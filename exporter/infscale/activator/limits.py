"""What the operating system lets the activator open: the limit of descriptors, and who is turned away at it."""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import cast

from infscale.activator.refusal import RETRY_AFTER_S

log = logging.getLogger(__name__)

RESERVED = 128
"""Descriptors for everything but clients and replicas: logs, listeners, metrics, probes, the Kubernetes API."""

_LINGER_S = 2.0
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: %d\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s"
)


def connections_for(wanted: int) -> int:
    """How many clients may be connected, of so many that are wanted; each may need a second descriptor for a replica.

    Raises the limit of this process as far as that takes, and as the system lets it.
    """
    needed = 2 * wanted + RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            wanted = max(1, (soft - RESERVED) // 2)
            reason = f"the limit of open files is {soft}: at most {wanted} connections of clients; raise it (ulimit -n)"
            log.warning("fewer connections", extra={"reason": reason})
    return wanted


class TurnedAway(asyncio.Protocol):
    """A connection over the bound: 503 at once. It stays for a moment, so that the client reads that and no reset."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer, whatever will be asked."""
        transport = cast(asyncio.Transport, transport)
        text = b"too many connections to the activator, try again\n"
        transport.write(_BUSY % (RETRY_AFTER_S, len(text), text))
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)
