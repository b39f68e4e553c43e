"""The crew of sidecars, shared by all sources' tests and restored for each; and a name server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet.crew import Crew
from tests.fleet.dns_server import DnsServer, dns_server


@pytest.fixture(scope="session")
def five() -> Iterator[Crew]:
    """Five sidecars, for all tests that want some."""
    crew = Crew()
    yield crew
    crew.close()


@pytest.fixture
def crew(five: Crew) -> Crew:
    """Five sidecars, all well."""
    five.restore()
    return five


@pytest.fixture
def names() -> Iterator[DnsServer]:
    """A name server without names."""
    with dns_server() as server:
        yield server
