"""What is said about the engines' clients: on a driven clock, and over real sockets of this network namespace."""

from __future__ import annotations

import socket

from infscale.client_watch import GAP_S, ClientWatch
from infscale.drain.connections import Clients, Connections

START_S = 1_800_000_000.0
NONE, ONE = Clients(0), Clients(1, 1)


class Seen:
    """A watch whose looks and clocks are the test's."""

    def __init__(self, engines: int = 1) -> None:
        self.now_s, self.wall_s = 0.0, START_S
        self.clients: list[Clients | None] = [NONE] * engines
        looks = [lambda at=at: self.clients[at] for at in range(engines)]
        self.watch = ClientWatch(looks, clock=lambda: self.now_s, wall_clock=lambda: self.wall_s)

    def at(self, now_s: float, *clients: Clients | None) -> tuple[int, int, float | None, float] | None:
        """One look at an instant: established, queued, last seen and looked since, both relative to the start."""
        self.wall_s += now_s - self.now_s
        self.now_s = now_s
        self.clients = list(clients)
        seen = self.watch.look()
        if seen is None:
            return None
        assert seen.looked_at == self.wall_s
        last = None if seen.last_seen_at is None else seen.last_seen_at - START_S
        return seen.established, seen.queued, last, seen.looked_since - START_S


def test_last_seen_and_looked_since():
    """None before a client was seen; afterwards when it was, while looking goes on without a gap."""
    seen = Seen()
    assert seen.at(0, NONE) == (0, 0, None, 0)
    assert seen.at(1, NONE) == (0, 0, None, 0)
    assert seen.at(2, ONE) == (1, 1, 2, 0)
    assert seen.at(3, NONE) == (0, 0, 2, 0)
    assert seen.at(5, NONE) == (0, 0, 2, 0)


def test_after_a_gap_looking_begins_anew():
    """Who did not look for a while cannot say that nobody was there: neither by a client seen long ago."""
    seen = Seen()
    assert seen.at(0, ONE) == (1, 1, 0, 0)
    assert seen.at(GAP_S, NONE) == (0, 0, 0, 0)
    assert seen.at(2 * GAP_S + 0.125, NONE) == (0, 0, None, 2 * GAP_S + 0.125)
    assert seen.at(60, ONE) == (1, 1, 60, 60)


def test_an_engine_that_cannot_be_seen_hides_all():
    """A sum without one of the engines would be a wrong low number; afterwards looking begins anew."""
    seen = Seen(2)
    assert seen.at(0, ONE, Clients(2, 0)) == (3, 1, 0, 0)
    assert seen.at(1, NONE, None) is None
    assert seen.at(2, NONE, NONE) == (0, 0, None, 2)


def test_a_wall_clock_that_jumps():
    """Times are told on the clock of now: what was ten seconds ago stays ten seconds ago."""
    seen = Seen()
    seen.at(0, ONE)
    seen.wall_s += 3600
    assert seen.at(1, NONE) == (0, 0, 3600, 3600)


def test_real_connections():
    """A client's connection counts while it is there; the sidecar's own, told by its inode, does not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        others = ClientWatch([Connections(port, own=frozenset)])
        own = ClientWatch([Connections(port)])
        first = others.look()
        assert first is not None
        assert (first.established, first.last_seen_at) == (0, None)
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            with accepted:
                there, ours = others.look(), own.look()
                assert there is not None
                assert ours is not None
                assert (there.established, ours.established) == (1, 0)
                assert there.last_seen_at == there.looked_at
    assert own.look() is None, "nothing listens there any more"
