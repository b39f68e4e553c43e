"""What the pages of a test file suppose to be there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.stand_ins import StandIns


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIns]:
    """Engines, a sidecar and a Prometheus, each started when a page first asks for it."""
    with StandIns(tmp_path_factory.mktemp("stand-ins")) as started:
        yield started
