"""Token counts beyond those of `infscale_sim.traffic`: measured quantiles, and means that change. Pure."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol


class Draws(Protocol):
    """A distribution of token counts; `traffic.Lengths` is one."""

    @property
    def is_random(self) -> bool:
        """Whether it needs a seed."""

    def draw(self, generator: random.Random) -> Iterator[int]:
        """The counts, without end, each 1 or more."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Token counts by measured quantiles, in a straight line between them.

    Attributes:
        points: (share from 0 to 1, tokens), both ascending, the first of share 0 and the last of share 1.
    """

    points: tuple[tuple[float, float], ...]

    @property
    def is_random(self) -> bool:
        """See `Draws`."""
        return True

    def draw(self, generator: random.Random) -> Iterator[int]:
        """See `Draws`."""
        shares, tokens = [share for share, _ in self.points], [count for _, count in self.points]
        while True:
            share = generator.random()
            at = bisect.bisect_right(shares, share) - 1
            part = (share - shares[at]) / (shares[at + 1] - shares[at])
            yield max(1, round(tokens[at] + part * (tokens[at + 1] - tokens[at])))


def lognormal(cv: float, generator: random.Random) -> Callable[[float], int]:
    """Lognormal counts with this coefficient of variation, each for a mean of its own (in tokens)."""
    variance = math.log1p(cv * cv)
    sigma, shift, gauss = math.sqrt(variance), math.exp(-variance / 2), generator.gauss
    return lambda mean: max(1, round(mean * shift * math.exp(gauss(0.0, sigma))))
