"""Traffic from a description in YAML: a rate over time, a kind of arrivals, distributions of lengths. For `trace`.

    rate: [[0, 3], [180, 3], [360, 30], [720, 30], [720, 5], [960, 5]]    # time, requests/s; a repeated time is a jump
    arrivals: {process: gamma, cv: 2}                                     # or: even (the default), poisson
    prompt_tokens: {distribution: lognormal, mean: 1155, cv: 0.96, most: 14050}          # or: 300, [64, 160, 96]
    output_tokens: {quantiles: [[0, 7], [0.25, 85], [0.5, 129], [0.95, 451], [1, 1000]]}
    seed: 7

The words are those of a scenario (`infscale_sim.distribution`), with quantiles besides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from infscale import checks
from infscale.checks import Place
from infscale.yaml_file import load_yaml
from infscale_sim import distribution
from infscale_sim.traces.files import LAST_S, MOST_TOKENS
from infscale_sim.traces.lengths import Draws, Quantiles
from infscale_sim.traces.rates import MOST_PER_S
from infscale_sim.traffic import Process, Rate, Request

KEYS = ("rate", "arrivals", "prompt_tokens", "output_tokens", "seed")
_NEEDED = ("rate", "prompt_tokens", "output_tokens")


@dataclass(frozen=True)
class Synthetic:
    """Described traffic. A `Source` of `trace`.

    Attributes:
        points: of the rate: (seconds, requests per second), ascending in time.
        process: how requests come at it.
        prompt_tokens, output_tokens: the lengths.
        seed: that the description asks for; None: it does not.
    """

    points: tuple[tuple[float, float], ...]
    process: Process
    prompt_tokens: Draws
    output_tokens: Draws
    seed: int | None = None

    def is_random(self, scale: float) -> bool:
        """Whether the seed has a say in the requests, at any scale."""
        return self.process.is_random or self.prompt_tokens.is_random or self.output_tokens.is_random

    def requests(self, scale: float, seed: int) -> Iterator[Request]:
        """The requests at so many times the rate, with the same lengths.

        Times and the two lengths have generators of their own, so that a change of one leaves the others as they are.
        """
        rate = Rate([(time_s, per_s * scale) for time_s, per_s in self.points])
        times_s = rate.when(self.process.integrals(random.Random(f"{seed} arrivals")))  # noqa: S311 - traffic, no secret
        prompts = self.prompt_tokens.draw(random.Random(f"{seed} prompt"))  # noqa: S311
        outputs = self.output_tokens.draw(random.Random(f"{seed} output"))  # noqa: S311
        return map(Request, times_s, prompts, outputs)


def read(path: Path) -> Synthetic:
    """The traffic that a YAML file describes.

    Raises:
        ConfigError: with the file, the line or the key, and what was expected.
    """
    return synthetic(load_yaml(str(path)), Place(str(path)))


def synthetic(value: object, place: Place) -> Synthetic:
    """The traffic that a mapping with the keys KEYS describes.

    Raises:
        ConfigError: a key is missing, unknown or has a value that cannot be used.
    """
    settings = checks.mapping(value, place, KEYS)
    for key in _NEEDED:
        if key not in settings:
            raise place.key(key).error(f"missing: a synthetic trace has {', '.join(KEYS)}")
    seed = settings.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise place.key("seed").error(f"expected a whole number, got {checks.described(seed)}")
    return Synthetic(
        points_of(settings["rate"], place.key("rate")),
        distribution.process_of(settings.get("arrivals", "even"), place.key("arrivals")),
        lengths_of(settings["prompt_tokens"], place.key("prompt_tokens")),
        lengths_of(settings["output_tokens"], place.key("output_tokens")),
        seed,
    )


def points_of(value: object, place: Place) -> tuple[tuple[float, float], ...]:
    """The points of a rate over time.

    Raises:
        ConfigError: they are none, go back in time, or span no time.
    """
    points = _pairs(value, place, "[seconds, requests per second]", (LAST_S, MOST_PER_S))
    for index, (before, after) in enumerate(pairwise(points), 1):
        if after[0] < before[0]:
            raise place.item(index).error(f"goes back from {before[0]:g} s to {after[0]:g} s: expected times in order")
    if not points or points[-1][0] <= points[0][0]:
        raise place.error("spans no time: expected two points or more, as [[0, 3], [600, 3]]")
    return points


def lengths_of(value: object, place: Place) -> Draws:
    """A distribution of lengths, as a scenario has it or `{quantiles: [[share, tokens], ...]}`.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, Mapping) or "quantiles" not in value:
        return distribution.lengths_of(value, place)
    place, found = place.key("quantiles"), checks.mapping(value, place, ("quantiles",))["quantiles"]
    points = _pairs(found, place, "[share, tokens]", (1.0, MOST_TOKENS))
    shares, counts = [share for share, _ in points], [count for _, count in points]
    whole = len(points) >= 2 and shares[0] == 0 and shares[-1] == 1
    if not whole or shares != sorted(set(shares)) or counts != sorted(counts):
        example = "[[0, 1], [0.5, 90], [1, 800]]"
        raise place.error(f"expected [share, tokens] from share 0 to share 1, both ascending, as {example}")
    return Quantiles(points)


def _pairs(value: object, place: Place, form: str, most: tuple[float, float]) -> tuple[tuple[float, float], ...]:
    """A list of pairs of numbers, each from 0 to its bound."""
    found = []
    for index, item in enumerate(checks.items(value, place)):
        at = place.item(index)
        pair = checks.items(item, at)
        if len(pair) != 2:
            raise at.error(f"expected {form}, got a list of {len(pair)}")
        first, second = (checks.number(part, at.item(n), at_least=0, at_most=most[n]) for n, part in enumerate(pair))
        found.append((first, second))
    return tuple(found)
