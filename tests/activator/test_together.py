"""Two activators before one workload: what they hold adds up in the recommender, and one that is silent is no 0."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from infscale.activator.page import activator_routes
from infscale.activator.serve import Activator
from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import ScaleState
from infscale.core.replicas import Fleet
from infscale.fleet.source import WorkloadName
from infscale.held import HeldReader
from infscale.scrape import Target
from infscale.web.server import Listener
from tests.activator.rig import Client, activator, free_port, holds
from tests.fleet.dns_server import DnsServer, dns_server

NAME = "activators.test"


@contextlib.contextmanager
def page_of(found: Activator, host: str, port: int) -> Iterator[None]:
    """The metrics page of an activator."""
    routes = activator_routes(found, WorkloadName("ml", "vllm"), lambda: "")
    listener = Listener(f"{host}:{port}", routes)
    listener.start()
    try:
        yield
    finally:
        listener.stop(5.0)


@pytest.fixture
def names() -> Iterator[DnsServer]:
    """A name server."""
    with dns_server() as server:
        yield server


def reader(names: DnsServer, port: int) -> HeldReader:
    """What a recommender reads with."""
    return HeldReader(Target(f"http://{NAME}:{port}/metrics", timeout_s=5.0), "ml", "vllm", dns_server=names.address)


def test_they_add_up(names):
    """Each address behind the name is an activator; two that hold 2 and 3 requests make the recommender wake for 5."""
    upstream, port = f"http://127.0.0.1:{free_port()}", free_port()
    with activator(upstream) as one, activator(upstream) as two, contextlib.ExitStack() as stack:
        stack.enter_context(page_of(one, "127.0.0.1", port))
        stack.enter_context(page_of(two, "127.0.0.2", port))
        names.zone[NAME] = ["127.0.0.1", "127.0.0.2"]
        held = reader(names, port)
        assert held.read().requests == 0
        for found, count in ((one, 2), (two, 3)):
            for _ in range(count):
                stack.enter_context(Client(found.port)).post()
            holds(found, count)
        assert held.read().requests == 5
        fleet = Fleet(1000.0, 0, held=held.read())
        decision, _ = decide(parse_policy("queue:2,min=0,max=8"), fleet, ScaleState())
        assert decision.desired == 3


def test_one_that_is_silent(names, caplog):
    """What the other holds still wakes; where that is 0 nothing is known; the log says which does not answer."""
    upstream, port = f"http://127.0.0.1:{free_port()}", free_port()
    names.zone[NAME] = ["127.0.0.1", "127.0.0.2"]
    held = reader(names, port)
    with activator(upstream) as one, page_of(one, "127.0.0.1", port), Client(one.port) as client:
        assert held.read().requests is None
        client.post()
        holds(one, 1)
        assert held.read().requests == 1
    assert held.read().requests is None
    assert f"127.0.0.2:{port}" in caplog.records[-1].reason or f"127.0.0.1:{port}" in caplog.records[-1].reason


def test_no_activator_behind_the_name(names):
    """An empty Service is not one that holds nothing."""
    names.zone[NAME] = []
    assert reader(names, 10047).read().requests is None


def test_a_name_that_nobody_knows(names, caplog):
    """It is asked as it is, since the system may know it by another way; if not, that is said."""
    held = HeldReader(Target("http://nobody.invalid:10047/metrics", timeout_s=5.0), dns_server=names.address)
    assert held.read().requests is None
    assert "nobody.invalid" in caplog.records[-1].reason
