"""The clients that an engine is connected to, out of the kernel's tables /proc/net/tcp and /proc/net/tcp6.

Gauges lie for a while (vllm#22545, sglang#26495), and an engine whose page wants a key that nobody gave has none to
read. Connections are the evidence beside them, where the drain runs in the engine's network namespace: in its Pod.
`clients_of` is pure; `Connections` reads the tables. Called by `infscale.drain.run`.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Callable, Container, FrozenSet, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
MAX_ROWS, MAX_ROW_BYTES = 100_000, 512
"""Of each table: more connections than an engine has; a line of tcp6 has about 190 bytes."""

_ESTABLISHED, _LISTEN = "01", "0A"  # include/net/tcp_states.h of Linux
_MAPPED = "0000000000000000FFFF0000"  # ::ffff:0:0/96, as the table spells an IPv4 client of an IPv6 socket


@dataclass(frozen=True)
class Clients:
    """The established connections of an engine's clients.

    Attributes:
        established: how many, idle keep-alive connections included.
        queued: how many of them hold bytes that one side has sent and the other has not taken yet.
    """

    established: int
    queued: int = 0


class _Row(NamedTuple):
    """A line of a table: ends are (address as spelt, port as spelt)."""

    local: Tuple[str, str]
    remote: Tuple[str, str]
    state: str
    queued: bool
    inode: str


def clients_of(
    tables: Iterable[str], port: int, own: Container[str] = (), *, closed_too: bool = False
) -> Optional[Clients]:
    """The clients of what listens on `port`.

    Args:
        tables: the text of /proc/net/tcp and of /proc/net/tcp6.
        port: the engine's.
        own: inodes of the reader's own sockets, as the tables spell them; what these are connected to is left out.
        closed_too: whether the engine is known to be here, though it may have closed its port.

    Returns:
        None where nothing listens on the port: the engine is in another network namespace, and nothing is known.
    """
    spelt = f"{port:04X}"
    rows = [row for table in tables for row in _rows(table, spelt)]
    if not closed_too and not any(row.state == _LISTEN and row.local[1] == spelt for row in rows):
        return None
    ours = {row.local for row in rows if row.remote[1] == spelt and row.inode in own}
    clients = [row for row in rows if row.state == _ESTABLISHED and row.local[1] == spelt and row.remote not in ours]
    return Clients(len(clients), sum(row.queued for row in clients))


def _rows(table: str, port: str) -> Iterator[_Row]:
    """The lines with `port` on either end; a line that is cut or of another form is passed over."""
    mark = f":{port} "
    for line in table.splitlines():
        if mark not in line:
            continue
        fields = line.split()
        if len(fields) < 10:
            continue
        queues = fields[4].partition(":")
        yield _Row(_end(fields[1]), _end(fields[2]), fields[3], any(q.strip("0") for q in queues[::2]), fields[9])


def _end(field: str) -> Tuple[str, str]:
    address, _, port = field.partition(":")
    return (address[len(_MAPPED) :] if address.startswith(_MAPPED) else address), port


class Connections:
    """Looks at the clients of one port, each time it is called.

    Args:
        port: the engine's.
        tables: the kernel's tables.
        own: gives the inodes of this process's own sockets: neither its reads of the engine nor, in a sidecar, its
            scrapes are clients.
        closed_too: see `clients_of`.
    """

    def __init__(
        self,
        port: int,
        tables: Sequence[str] = TABLES,
        own: Optional[Callable[[], Container[str]]] = None,
        *,
        closed_too: bool = False,
    ) -> None:
        self._port, self._tables, self._own, self._closed_too = port, tables, own or own_sockets, closed_too

    def __call__(self) -> Optional[Clients]:
        """The clients now; None where the tables cannot be read, or show no such listener."""
        texts = [text for path in self._tables if (text := _table(path, self._port)) is not None]
        return clients_of(texts, self._port, self._own(), closed_too=self._closed_too) if texts else None


def own_sockets(folder: str = "/proc/self/fd") -> FrozenSet[str]:
    """The inodes of this process's sockets, as the tables spell them; none where /proc does not tell."""
    found = set()
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):  # closed meanwhile, as the listing's own
                target = os.readlink(f"{folder}/{name}")
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
    return frozenset(found)


def _table(path: str, port: int) -> Optional[str]:
    """The lines of a table that are about a port; None where it cannot be read (no IPv6, no /proc).

    Line by line: on a node with 10,000 sockets that close, a whole table is 2 MB, and the drain has 20 MB for all.
    """
    mark = f":{port:04X} ".encode()
    try:
        with open(path, "rb") as file:
            rows = islice(iter(lambda: file.readline(MAX_ROW_BYTES), b""), MAX_ROWS)
            return b"".join(row for row in rows if mark in row).decode("ascii", "replace")
    except OSError:
        return None
