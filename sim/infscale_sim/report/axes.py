"""Axes and how numbers are written on them: where a value lies, from 0 to 1, and which values have a tick."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

NO_BREAK = "\u00a0"
"""The blank between a number and its unit."""
_NEVER_AT = 0.93
"""On an axis with values that never came, the others end here; those lie at 1."""

_UNITS = (
    (180.0, 1.0, "s", (1, 2, 5, 10, 15, 30, 60)),
    (2 * 3600.0, 60.0, "min", (0.5, 1, 2, 5, 10, 15, 20, 30)),
    (2 * 86400.0, 3600.0, "h", (0.5, 1, 2, 3, 6, 12)),
    (math.inf, 86400.0, "d", (0.5, 1, 2, 5, 7, 14, 28)),
)
"""Up to so many seconds: a unit's seconds, its name, and the steps between ticks to choose from."""
_MOST_TIME_TICKS = 6


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values lie.

    Attributes:
        share: of a value, 0 at the start of the axis and 1 at its end.
        ticks: (share, text).
        is_log: whether equal lengths are equal factors.
    """

    share: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False


def time_axis(horizon_s: float) -> Axis:
    """From 0 to the horizon, in seconds, minutes, hours or days; the last tick says which."""
    _, unit_s, unit, steps = next(one for one in _UNITS if horizon_s <= one[0])
    whole = horizon_s / unit_s
    step = next((step for step in steps if whole / step < _MOST_TIME_TICKS), nice_step(whole, _MOST_TIME_TICKS - 1))
    count = int(whole / step + 1e-9)
    ticks = [
        (index * step / whole, f"{index * step:g}{f' {unit}' if index == count else ''}") for index in range(count + 1)
    ]
    return Axis(lambda time_s: time_s / horizon_s, tuple(ticks))


def linear_axis(most: float, least_step: float = 0.0) -> Axis:
    """From 0 to a round value at or above the largest."""
    step = max(least_step, nice_step(max(most, 1e-9), 3))
    parts = max(1, math.ceil(most / step - 1e-9))
    top = parts * step
    ticks = [(index / parts, short(index * step)) for index in range(parts + 1)]
    return Axis(lambda value: min(1.0, value / top), tuple(ticks))


def count_axis(most: float) -> Axis:
    """Whole numbers from 0 on: even steps up to 400, tenfold ones above, where 0 still has its place."""
    if most <= 400:
        return linear_axis(most, least_step=1.0)
    top = math.log10(1 + most)
    ticks = [(0.0, "0")]
    ticks += [(math.log10(1 + 10**power) / top, short(10.0**power)) for power in range(1, int(math.log10(most)) + 1)]
    return Axis(lambda value: min(1.0, math.log10(1 + value) / top), tuple(ticks), is_log=True)


def seconds_axis(least: float, most: float, *, never: bool) -> Axis:
    """Tenfold steps of seconds over what is there, at least one; with `never` a place for infinity at the end."""
    low, high = math.log10(max(least, 1e-4)), math.log10(max(most, 1e-4))
    low, high = min(low - 0.1, high - 1), high + 0.1
    end = _NEVER_AT if never else 1.0

    def share(value: float) -> float:
        """Where a value stands, from 0 at the left to 1 at the right end."""
        if value == math.inf:
            return 1.0
        return end * max(0.0, min(1.0, (math.log10(max(value, 1e-9)) - low) / (high - low)))

    powers = range(math.ceil(low), math.floor(high) + 1)
    ticks = [(share(10.0**power), seconds(10.0**power)) for power in powers]
    return Axis(share, (*ticks, *([(1.0, "never")] if never else [])), is_log=True)


def nice_step(whole: float, most: int) -> float:
    """The smallest of 1, 2, 4, 5, 10, ... that divides a span into at most so many parts."""
    power = 10.0 ** math.floor(math.log10(whole / most))
    return next((power * digit for digit in (1, 2, 4, 5) if power * digit * most >= whole * (1 - 1e-9)), power * 10)


def short(number: float) -> str:
    """A number for a tick: 3k for 3,000."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def seconds(value: float) -> str:
    """Seconds for a tick, in ms below one."""
    return f"{1000 * value:g} ms" if value < 1 else f"{short(value)} s"


def duration(length_s: float) -> str:
    """A length of time in the largest unit that it is a whole number of."""
    size, name = next(
        ((size, name) for size, name in ((86400, "d"), (3600, "h"), (60, "min")) if not length_s % size), (1, "s")
    )
    return f"{length_s / size:g}{NO_BREAK}{name}"
