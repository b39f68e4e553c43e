"""The addresses behind a name, asked of a name server directly: bounded in time, never cached, failures in words.

`socket.getaddrinfo` has no time-out, caches as the system likes, and does not tell "no such name" from "no address
now", which for a fleet are a mistake and an empty Service. Called by `dns` and by the activator. Rules: resolv.conf(5).
"""

from __future__ import annotations

import contextlib
import re
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infscale.errors import SourceError, UsageError
from infscale.fleet.dns_wire import AAAA, NOERROR, NXDOMAIN, RCODES, A, BrokenMessage, Response, question, response
from infscale.scrape_wire import Deadline

_TRY_S = 1.0
"""For one question to one server; then the next server is asked, and after the last the first again."""

_ROUNDS = 2
_MAX_SERVERS, _MAX_SEARCH, _MAX_NDOTS = 3, 32, 15
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")


class NameFault(SourceError):
    """A name that could not be resolved."""


@dataclass(frozen=True)
class Config:
    """What /etc/resolv.conf says."""

    servers: tuple[tuple[str, int], ...]
    search: tuple[str, ...] = ()
    ndots: int = 1


def is_name(text: str) -> bool:
    """Whether this can be the name of a host."""
    return len(text) <= 253 and _NAME.fullmatch(text) is not None


def read_config(path: str) -> Config:
    """The configuration of the system's resolver; one that cannot be read asks 127.0.0.1, as resolv.conf(5) has it."""
    try:
        lines = Path(path).read_text("utf-8", "replace")[:65536].splitlines()
    except OSError:
        lines = []
    servers: list[tuple[str, int]] = []
    search: tuple[str, ...] = ()
    ndots = 1
    for line in lines:
        keyword, *values = line.split("#")[0].split(";")[0].split() or [""]
        if keyword == "nameserver" and values:
            servers.append((values[0], 53))
        elif keyword in ("search", "domain"):
            search = tuple(value.rstrip(".") for value in values if is_name(value))[:_MAX_SEARCH]
        elif keyword == "options":
            told = [int(value[6:]) for value in values if re.fullmatch(r"ndots:\d{1,3}", value)]
            ndots = min(told[-1], _MAX_NDOTS) if told else ndots
    return Config(tuple(servers[:_MAX_SERVERS]) or (("127.0.0.1", 53),), search, ndots)


def split_server(text: str) -> tuple[str, int]:
    """`HOST`, `HOST:PORT` or `[IPV6]:PORT` of a name server.

    Raises:
        UsageError: it is none; a name would need a name server itself.
    """
    host, _, port = text.removeprefix("[").partition("]:" if text.startswith("[") else ":")
    if text.count(":") > 1 and not text.startswith("["):
        host, port = text, ""
    host = host.removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.suppress(OSError, ValueError):
        socket.inet_pton(family, host.partition("%")[0])
        if (number := int(port or 53)) in range(1, 65536):
            return host, number
    raise UsageError(f"name server {text!r}: expected an IP address and perhaps a port, as 10.96.0.10 or 10.96.0.10:53")


class Resolver:
    """One name, to be resolved again and again.

    Args:
        name: a host name; with a dot at its end no search domain is tried.
        config: whom to ask.
        clock: monotonic seconds.

    Raises:
        UsageError: the name cannot be one.
    """

    def __init__(self, name: str, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        if not is_name(name):
            raise UsageError(f"{name[:120]!r} is no host name: expected as vllm-peers.inference.svc")
        self._name, self._config, self._clock = name, config, clock

    @classmethod
    def from_system(cls, name: str, *, server: str = "", resolv_conf: str = "/etc/resolv.conf") -> Resolver:
        """A resolver as the system has it, or with another name server.

        Raises:
            UsageError: the name or the server is none.
        """
        config = read_config(resolv_conf)
        return cls(name, Config((split_server(server),), config.search, config.ndots) if server else config)

    def addresses(self, timeout_s: float) -> tuple[str, ...]:
        """Its IPv4 addresses, sorted, or where it has none its IPv6 ones; empty where the name exists and has neither.

        Never both: a Pod of a dual-stack Service has one of each, and would count twice.

        Raises:
            NameFault: no such name, or nobody could say within the time.
        """
        deadline = Deadline(self._clock, timeout_s)
        for candidate in self._candidates():
            found = self._lookup(candidate, A, deadline)
            if found.rcode == NOERROR and not found.addresses:
                found = self._lookup(candidate, AAAA, deadline)
            if found.rcode == NOERROR:
                return tuple(sorted(found.addresses))
        tried = ", ".join(self._candidates())
        raise NameFault(
            f"no such name (NXDOMAIN): {tried}: check the name of the headless Service and its namespace; in some"
            " clusters it is gone while it has no Pod"
        )

    def _candidates(self) -> list[str]:
        """The full names to try, in the order of resolv.conf(5)."""
        name = self._name.rstrip(".")
        if self._name.endswith("."):
            return [name]
        searched = [full for domain in self._config.search if is_name(full := f"{name}.{domain}")]
        return [name, *searched] if name.count(".") >= self._config.ndots else [*searched, name]

    def _lookup(self, name: str, record_type: int, deadline: Deadline) -> Response:
        """What the first server that knows says: addresses, or that there is no such name."""
        faults = {}
        for server in self._config.servers * _ROUNDS:
            asked = question(secrets.randbelow(65536), name, record_type)
            try:
                answer = _ask_udp(server, asked, deadline)
                if answer.truncated:
                    answer = _ask_tcp(server, asked, deadline)
            except (OSError, BrokenMessage) as error:
                faults[server] = _words(error)
            else:
                if answer.rcode in (NOERROR, NXDOMAIN):
                    return answer
                faults[server] = f"answers {RCODES.get(answer.rcode, f'code {answer.rcode}')}"
            if deadline.left_s() <= 0:
                break
        said = "; ".join(f"name server {_place(server)} {fault}" for server, fault in faults.items())
        raise NameFault(f"{name} cannot be resolved: {said}")


def _ask_udp(server: tuple[str, int], asked: bytes, deadline: Deadline) -> Response:
    """One question over UDP. What is no answer to it is passed over: anybody may send a datagram."""
    limit_s = min(deadline.left_s(), _TRY_S)
    end_s = deadline.spent_s() + limit_s
    with socket.socket(_family(server), socket.SOCK_DGRAM) as connection:
        connection.connect(server)
        connection.send(asked)
        fault: BrokenMessage | None = None
        while (left_s := end_s - deadline.spent_s()) > 0:
            if not _readable(connection, left_s):
                break
            try:
                return response(connection.recv(65535), asked)
            except BrokenMessage as error:
                fault = error
    raise fault or TimeoutError


def _ask_tcp(server: tuple[str, int], asked: bytes, deadline: Deadline) -> Response:
    """One question over TCP, for the answers that do not fit: 28 addresses are more than 512 bytes."""
    with socket.socket(_family(server), socket.SOCK_STREAM) as connection:
        connection.settimeout(_left_s(deadline))
        connection.connect(server)
        connection.settimeout(_left_s(deadline))
        connection.sendall(struct.pack("!H", len(asked)) + asked)
        (length,) = struct.unpack("!H", _received(connection, 2, deadline))
        return response(_received(connection, length, deadline), asked)


def _received(connection: socket.socket, count: int, deadline: Deadline) -> bytes:
    data = b""
    while len(data) < count:
        connection.settimeout(_left_s(deadline))
        part = connection.recv(count - len(data))
        if not part:
            raise BrokenMessage("closed the connection in the middle of its answer")
        data += part
    return data


def _readable(connection: socket.socket, timeout_s: float) -> bool:
    """Whether something comes within the time; `poll`, since `select` takes no descriptor above 1023."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(max(1, round(timeout_s * 1000))))


def _left_s(deadline: Deadline) -> float:
    left_s = deadline.left_s()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _family(server: tuple[str, int]) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server[0] else socket.AF_INET


def _place(server: tuple[str, int]) -> str:
    return f"[{server[0]}]:{server[1]}" if ":" in server[0] else f"{server[0]}:{server[1]}"


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "does not answer"
    if isinstance(error, ConnectionRefusedError):
        return "refuses: nothing listens there"
    if isinstance(error, OSError):
        return f"cannot be asked: {error.strerror or error}"
    return str(error)
