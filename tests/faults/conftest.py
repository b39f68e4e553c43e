"""The pair of replicas that the fault tests share, and a recommender that looks at them directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.certs import Certs, make_certs
from tests.faults.rig import COUNTED, POLICY, SLOW_LOOK, Pair
from tests.recommender_process import Recommender


@pytest.fixture(scope="package")
def both() -> Iterator[Pair]:
    """Two replicas, for all tests of this folder."""
    found = Pair()
    yield found
    found.close()


@pytest.fixture
def pair(both: Pair) -> Pair:
    """The two replicas, well."""
    both.heal()
    return both


@pytest.fixture(scope="package")
def watching(both: Pair) -> Iterator[Recommender]:
    """A recommender over the two."""
    with Recommender(both.static, *COUNTED, POLICY, SLOW_LOOK, "--interval=0.1") as found:
        yield found


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    """Certificates of the API server."""
    return make_certs(tmp_path_factory.mktemp("certs"))
