"""How a scenario file writes what may vary: arrivals, token counts and cold starts.

- arrivals: `even`, `poisson`, `{process: gamma, cv: 2, seed: 1}`
- tokens: `128`, `[64, 160]`, `{cycle: [64, 160], mean: 2000}`, `{distribution: lognormal, mean: 900, cv: 1.2}`
- cold starts: `91`, `{distribution: uniform, least: 60, most: 120}`
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infscale import checks
from infscale.checks import Place
from infscale_sim.hardware import choice
from infscale_sim.traffic import Lengths, Process

PROCESSES = ("even", "poisson", "gamma")
DISTRIBUTIONS = ("lognormal", "exponential", "uniform")
_MOST_TOKENS = 10_000_000
_MOST_CV = 100


@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds that are constant (`mean` alone), or of a distribution as in `Lengths`."""

    kind: str
    mean: float = 0.0
    cv: float = 0.0
    least: float = 0.0
    most: float = math.inf

    @property
    def is_random(self) -> bool:
        """Whether it needs a seed."""
        return self.kind != "constant"

    @property
    def typical_s(self) -> float:
        """The mean, but for what bounds cut off."""
        return (self.least + self.most) / 2 if self.kind == "uniform" else self.mean

    def draw(self, generator: random.Random) -> float:
        """One value."""
        if self.kind == "constant":
            return self.mean
        if self.kind == "uniform":
            return generator.uniform(self.least, self.most)
        if self.kind == "exponential":
            value = generator.expovariate(1 / self.mean)
        else:
            variance = math.log1p(self.cv**2)
            value = generator.lognormvariate(math.log(self.mean) - variance / 2, math.sqrt(variance))
        return max(self.least, min(self.most, value))


def process_of(value: object, place: Place) -> Process:
    """How requests arrive."""
    if isinstance(value, str):
        return Process(choice(value, place, PROCESSES))
    mapping = checks.mapping(value, place, ("process", "cv", "seed"))
    kind = choice(mapping.get("process", "gamma"), place.key("process"), PROCESSES)
    return Process(kind, checks.number(mapping.get("cv", 1), place.key("cv"), at_least=0.01, at_most=_MOST_CV))


def lengths_of(value: object, place: Place) -> Lengths:
    """Token counts by request."""
    if isinstance(value, Mapping):
        if "cycle" in value:
            mapping = checks.mapping(value, place, ("cycle", "mean"))
            return _cycle(mapping["cycle"], place.key("cycle"), mapping.get("mean"), place.key("mean"))
        values = _distribution(value, place, 1, 1_000_000)
        for key in ("least", "most"):
            values[key] = round(values[key])
        return Lengths(**values)
    items = value if isinstance(value, list) else [value]
    return _cycle(items, place, None, place)


def delay_of(value: object, place: Place, default_s: float) -> Delay:
    """Seconds; without a value the default."""
    if isinstance(value, Mapping):
        return Delay(**_distribution(value, place, 0, math.inf))
    return Delay("constant", default_s if value is None else checks.number(value, place, at_least=0))


def _cycle(value: object, place: Place, mean: object, mean_place: Place) -> Lengths:
    """Values by request in turn; with a mean, scaled to it and rounded half to even."""
    numbers = [
        checks.number(item, place.item(index), at_least=1, at_most=_MOST_TOKENS)
        for index, item in enumerate(checks.items(value, place))
    ]
    if not numbers:
        raise place.error("expected at least one value")
    for index, number in enumerate(numbers):
        if not number.is_integer():
            raise place.item(index).error(f"expected whole tokens, got {number:g}")
    scale = 1.0
    if mean is not None:
        scale = checks.number(mean, mean_place, at_least=1, at_most=_MOST_TOKENS) * len(numbers) / sum(numbers)
    return Lengths("cycle", values=tuple(max(1, round(number * scale)) for number in numbers))


def _distribution(value: object, place: Place, least: float, most: float) -> dict[str, Any]:
    mapping = checks.mapping(value, place, ("distribution", "mean", "cv", "least", "most"))
    kind = choice(mapping.get("distribution"), place.key("distribution"), DISTRIBUTIONS)
    found: dict[str, Any] = {"kind": kind, "least": least, "most": most}
    needed = {"lognormal": ("mean", "cv"), "exponential": ("mean",), "uniform": ("least", "most")}[kind]
    for key in needed:
        if key not in mapping:
            raise place.error(f"{kind} needs {' and '.join(needed)}; {key} is missing")
    for key in ("mean", "cv", "least", "most"):
        if key in mapping:
            low, high = {"mean": (0, most), "cv": (0, _MOST_CV)}.get(key, (least, most))
            found[key] = checks.number(mapping[key], place.key(key), at_least=low, at_most=high)
    if kind != "uniform" and found["mean"] <= 0:
        raise place.key("mean").error("expected a number above 0")
    if found["least"] > found["most"]:
        raise place.key("most").error(f"expected at least {found['least']:g}, got {found['most']:g}")
    return found
