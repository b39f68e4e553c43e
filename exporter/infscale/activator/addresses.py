"""Where a host is, asked anew each time: the replicas behind an activator, the activators that a recommender sums."""

from __future__ import annotations

import socket
from collections.abc import Callable

from infscale.fleet.resolver import Resolver


def addresses_of(host: str, dns_server: str) -> Callable[[float], tuple[str, ...]]:
    """Looks up, each time it is called with a time-out in seconds, where a host is; blocks, and raises SourceError.

    An IP address is itself, and `localhost` is 127.0.0.1, which no name server has to know (RFC 6761). A name has its
    IPv4 addresses, or where there are none its IPv6 ones.

    Raises:
        UsageError: the host or the name server is none.
    """
    if host == "localhost":
        return lambda _timeout_s: ("127.0.0.1",)
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except OSError:
            continue
        return lambda _timeout_s: (host,)
    return Resolver.from_system(host, server=dns_server).addresses
