"""A thousand replicas: one look in time, also while some of them hang."""

from __future__ import annotations

import time

from infscale.core.replicas import Fleet, Phase
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings, Source
from tests.fleet.peers import address, peers_apart

REPLICAS = 1000


def source(port: int, timeout_s: float) -> Source:
    """All of them, listed."""
    urls = ",".join(f"http://{address(number)}:{port}" for number in range(REPLICAS))
    return parse_source(f"static:{urls}", FleetSettings(timeout_s=timeout_s))


def serving(fleet: Fleet) -> int:
    """How many give their value."""
    return sum(replica.phase is Phase.SERVING and replica.inflight == 7 for replica in fleet.replicas)


def test_a_thousand_replicas():
    """All are read, each counts; bench/fleet.py measures what is only bounded here."""
    with peers_apart() as port:
        all_of_them = source(port, timeout_s=30.0)
        before = time.monotonic()
        fleet = all_of_them.observe(1000.0)
        took_s = time.monotonic() - before
        all_of_them.close()
    assert serving(fleet) == len(fleet.replicas) == REPLICAS
    assert took_s < 20


def test_more_hang_than_connections_are_allowed():
    """Six hundred that hang cost the others a look or two: who had no turn moves up, and who answered goes first."""
    with peers_apart(hang=600) as port:
        all_of_them = source(port, timeout_s=1.0)
        fleets = [all_of_them.observe(1000.0)]
        while serving(fleets[-1]) < 400 and len(fleets) < 10:
            fleets.append(all_of_them.observe(1000.0 + 15 * len(fleets)))
        all_of_them.close()
    assert len(fleets[-1].replicas) == REPLICAS
    assert serving(fleets[-1]) == 400
