"""The requests of a run: when each arrives and how many tokens it has.

`Requests` holds them as arrays, from an iterator of `Request`: a scenario makes one (`synthetic`), a trace reader
another. `Rate` is a piecewise linear rate over time and its integral.
"""

from __future__ import annotations

import itertools
import math
import random
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from infscale.errors import UsageError


class Request(NamedTuple):
    """One request: seconds since the start, and tokens (at least one of each)."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Requests:
    """Many requests in the order of their arrival, 16 bytes each."""

    arrival_s: Sequence[float]
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]

    def __len__(self) -> int:
        return len(self.arrival_s)

    @classmethod
    def of(cls, requests: Iterable[Request]) -> Self:
        """The requests of an iterator.

        Raises:
            UsageError: one arrives before the one in front of it, or has less than a token.
        """
        arrivals, prompts, outputs = array("d"), array("i"), array("i")
        last_s = 0.0
        for arrival_s, prompt, output in requests:
            if not last_s <= arrival_s < math.inf:
                raise UsageError(
                    f"request {len(arrivals) + 1} arrives at {arrival_s:g} s, after one at {last_s:g} s; "
                    "expected arrivals in order, from 0 on"
                )
            if prompt < 1 or output < 1:
                raise UsageError(f"request {len(arrivals) + 1}: expected at least one prompt and one output token")
            arrivals.append(arrival_s)
            prompts.append(prompt)
            outputs.append(output)
            last_s = arrival_s
        return cls(arrivals, prompts, outputs)


class Rate:
    """Requests per second over time, linear between points; a repeated time is a jump.

    Args:
        points: (seconds, requests per second), times not falling, the first at 0 or later; outside of them it is 0.
    """

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        self.points = tuple(points)
        pieces = itertools.pairwise(self.points)
        areas = ((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pieces)
        self._sums = [0.0, *itertools.accumulate(areas)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rate) and self.points == other.points

    def __hash__(self) -> int:
        return hash(self.points)

    @property
    def total(self) -> float:
        """The integral over all of it."""
        return self._sums[-1]

    def at(self, time_s: float) -> float:
        """The rate at an instant; at a jump, the one after it."""
        index = bisect_right(self.points, time_s, key=lambda point: point[0])
        if index == 0 or time_s > self.points[-1][0]:
            return 0.0
        if index == len(self.points):
            return self.points[-1][1]
        (start, low), (end, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (time_s - start) / (end - start)

    def when(self, integrals: Iterable[float]) -> Iterator[float]:
        """The instants at which the integral reaches values that rise; it ends where one is beyond the total."""
        piece = 0
        for area in integrals:
            while piece < len(self._sums) - 1 and self._sums[piece + 1] < area:
                piece += 1
            if piece == len(self._sums) - 1:
                return
            (start, low), (end, high) = self.points[piece], self.points[piece + 1]
            missing = area - self._sums[piece]
            slope = (high - low) / (end - start) if end > start else 0.0
            root = math.sqrt(max(0.0, low * low + 2 * slope * missing))
            yield min(end, start + (2 * missing / (low + root) if missing > 0 else 0.0))


@dataclass(frozen=True, slots=True)
class Process:
    """How requests come at a rate.

    Attributes:
        kind: `even` (the k-th where the integral of the rate is k - 0.5), `poisson` or `gamma`.
        cv: the coefficient of variation of the gaps of `gamma`, in units of the mean gap.
    """

    kind: str = "even"
    cv: float = 1.0

    @property
    def is_random(self) -> bool:
        """Whether it needs a seed."""
        return self.kind != "even"

    def integrals(self, generator: random.Random) -> Iterator[float]:
        """The integral of the rate at each request, without end."""
        if self.kind == "even":
            yield from itertools.count(0.5)
        poisson = self.kind == "poisson"
        area, shape = 0.0, self.cv**-2
        while True:
            area += generator.expovariate(1.0) if poisson else generator.gammavariate(shape, 1 / shape)
            yield area


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token counts of the requests.

    Attributes:
        kind: `cycle` (through `values`, by request), `lognormal`, `exponential` or `uniform`.
        values: of `cycle`.
        mean, cv: of the distribution; `exponential` has no cv, and `uniform` reaches from `least` to `most`.
        least, most: bounds, both included.
    """

    kind: str
    values: tuple[int, ...] = ()
    mean: float = 0.0
    cv: float = 1.0
    least: int = 1
    most: int = 1_000_000

    @property
    def is_random(self) -> bool:
        """Whether it needs a seed."""
        return self.kind != "cycle"

    def draw(self, generator: random.Random) -> Iterator[int]:
        """The counts, without end."""
        if self.kind == "cycle":
            yield from itertools.cycle(self.values)
        variance = math.log1p(self.cv**2)
        centre, spread = math.log(max(self.mean, 1e-9)) - variance / 2, math.sqrt(variance)
        while True:
            if self.kind == "lognormal":
                value = generator.lognormvariate(centre, spread)
            elif self.kind == "exponential":
                value = generator.expovariate(1 / self.mean)
            else:
                value = generator.uniform(self.least - 0.5, self.most + 0.5)
            yield max(self.least, min(self.most, round(value)))


def synthetic(
    rate: Rate, process: Process, prompt: Lengths, output: Lengths, horizon_s: float, seed: int
) -> Iterator[Request]:
    """The requests of a scenario that arrive by the horizon; the same for the same seed.

    Times and the two lengths have generators of their own, so that a change of one leaves the others as they are.
    """
    arrivals = rate.when(process.integrals(random.Random(f"{seed} arrivals")))  # noqa: S311 - no secret
    prompts = prompt.draw(random.Random(f"{seed} prompt"))  # noqa: S311
    outputs = output.draw(random.Random(f"{seed} output"))  # noqa: S311
    for arrival_s in arrivals:
        if arrival_s > horizon_s:
            return
        yield Request(arrival_s, next(prompts), next(outputs))
