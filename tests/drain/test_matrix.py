"""The matrix of listeners against the drain in this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from infscale.drain.options import DrainOptions
from infscale.drain.report import DrainReport
from infscale.drain.run import drain

from ..certs import Certs, make_certs
from .driven import run
from .matrix import BY_NAME, READ_S, ROWS, WALL_CLOCK, Row


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    """Certificates, good and bad."""
    return make_certs(tmp_path_factory.mktemp("certs"))


@pytest.mark.parametrize(
    ("row", "grace_s"),
    [
        pytest.param(row, grace_s, id=f"{row.name}, {grace_s}")
        for row in ROWS
        for grace_s in ([15] if row.heavy else [15, 45])
    ],
)
def test_listener_on_a_driven_clock(row: Row, grace_s: float, certs: Certs) -> None:
    """Each listener gives its verdict with the reads that the timeline has, and the drain is back by G-3."""
    with row.serve(certs) as url:
        row.check(run(url, never_answers=row.read_s == READ_S, grace_s=grace_s), grace_s)


@pytest.mark.parametrize(
    ("name", "grace_s"), [("idle", 3600), ("busy, idle, busy, idle, idle", 3600), ("never idle", 300)]
)
def test_long_grace_period(name: str, grace_s: float, certs: Certs) -> None:
    """However long the grace period is, an idle engine costs two reads; a busy one is held to G-5."""
    row = BY_NAME[name]
    with row.serve(certs) as url:
        row.check(run(url, grace_s=grace_s), grace_s)


def test_rule_04_return_on_the_wall_clock(certs: Certs) -> None:
    """A listener that drips a byte a second, or hangs, or sends an endless body, still gives a return by G-3.

    A socket timeout per operation is not enough: the budget is for the whole read. With G = 15 and real waiting.
    """

    def work(row: Row) -> DrainReport:
        with row.serve(certs) as url:
            return drain(DrainOptions(url, grace_s=15))

    with ThreadPoolExecutor(len(WALL_CLOCK)) as pool:
        for row, report in zip(WALL_CLOCK, pool.map(work, WALL_CLOCK), strict=True):
            row.check(report, 15, wall_clock=True)
