"""A workload whose replicas can be retired, on a clock that the test drives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.retire.rig import Rig


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes rigs, and takes them down."""
    made: list[Rig] = []

    def make(**options: Any) -> Rig:
        made.append(Rig(tmp_path, **options))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(rigs: Callable[..., Rig]) -> Rig:
    """A Deployment `vllm` of three replicas, all ready and idle for a minute."""
    return rigs()
