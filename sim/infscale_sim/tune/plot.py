"""The frontier as a table and as a small picture, both in text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from infscale.cli.table import aligned

_WIDTH, _HEIGHT = 60, 12
_LEAST_PERCENT = 0.01
"""What is drawn at the lowest line but one; no miss at all is the lowest."""


class Point(NamedTuple):
    """A policy as it is drawn: mean replica-minutes of a case, misses in percent of the requests, its text."""

    replica_minutes: float
    miss_percent: float
    misses: int
    policy: str


def table(points: Sequence[Point], chosen: Point) -> list[str]:
    """A line each; the chosen one is marked."""
    rows = [
        (
            "*" if point == chosen else "",
            f"{point.miss_percent:.2f}",
            f"{point.misses:,}",
            f"{point.replica_minutes:,.1f}",
            point.policy,
        )
        for point in points
    ]
    return aligned([("", "miss %", "SLO miss", "replica-min", "policy"), *rows], right=(1, 2, 3))


def picture(tried: Sequence[Point], frontier: Sequence[Point], chosen: Point, budget_percent: float) -> list[str]:
    """Misses (upwards, a logarithm) against replica-minutes, with a line at the budget."""
    left = min(point.replica_minutes for point in tried)
    right = max(point.replica_minutes for point in tried)
    rows = [[" "] * (_WIDTH + 1) for _ in range(_HEIGHT + 1)]
    rows[_height(budget_percent)] = ["-"] * (_WIDTH + 1)
    for mark, points in ((".", tried), ("o", frontier), ("*", [chosen])):
        for point in points:
            column = round(_WIDTH * (point.replica_minutes - left) / max(1e-9, right - left))
            rows[_height(point.miss_percent)][column] = mark
    labels = {_height(percent): f"{percent:g} %" for percent in (100, 10, 1, 0.1, 0)}
    labels[_height(budget_percent)] = f"{budget_percent:g} %"
    lines = [f"{labels.get(height, ''):>7} |{''.join(rows[height]).rstrip()}" for height in range(_HEIGHT, -1, -1)]
    ends = f"{left:,.1f}", f"{right:,.1f} replica-min"
    return [
        *lines,
        f"{'':7} +{'-' * (_WIDTH + 1)}",
        f"{'':9}{ends[0]}{ends[1]:>{_WIDTH + 1 - len(ends[0])}}",
        f"{'':9}* chosen  o frontier  . tried  --- budget",
    ]


def _height(percent: float) -> int:
    """The line of a share of misses: 0 for none, then decades from 0.01 to 100 %."""
    if percent <= 0:
        return 0
    decades = math.log10(max(percent, _LEAST_PERCENT) / _LEAST_PERCENT)
    return 1 + round((_HEIGHT - 1) * min(1.0, decades / 4))
