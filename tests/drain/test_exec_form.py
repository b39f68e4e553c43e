"""The matrix of listeners against the built zip application: a process each, side by side, on the wall clock."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infscale.drain.bundle import zip_application
from infscale.drain.report import DrainReport
from tests.certs import make_certs
from tests.drain.hooked import SideBySide
from tests.drain.matrix import BY_NAME, ROWS
from tests.test_imports import PYTHONS

GRACE_S = 15
STAGGER_S = 0.1  # 50 interpreters that start at once would take most of the settle time on two cores


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    """Every row's drain, under way; each with the next of this machine's Pythons."""
    folder = tmp_path_factory.mktemp("exec")
    certs = make_certs(folder)
    path = folder / "infscale-drain.pyz"
    path.write_bytes(zip_application())
    pythons = itertools.cycle(PYTHONS.values())
    side_by_side = SideBySide()
    with contextlib.ExitStack() as stack:
        stack.callback(side_by_side.close)
        for row in ROWS:
            url = stack.enter_context(row.serve(certs))
            side_by_side.start(row.name, exec_form(next(pythons), path, url))
            time.sleep(STAGGER_S)
        yield side_by_side


def exec_form(python: str, path: Path, url: str) -> list[str | Path]:
    """The command that the launcher would run."""
    told = ["--url", url, "--grace", str(GRACE_S), "--report-file", "", "--sidecar-url", ""]
    return [python, "-I", "-S", "-B", path, *told]


@pytest.mark.parametrize("name", BY_NAME)
def test_listener(name, hooks):
    """The zip gives the verdict that the drain gives in this process, says so in one line, and ends with status 0."""
    hooked = hooks[name]

    assert (hooked.status, hooked.err) == (0, "")
    assert hooked.out.count("\n") == 1
    BY_NAME[name].check(DrainReport.from_json(hooked.out), GRACE_S, wall_clock=True)
    assert hooked.seconds < GRACE_S
