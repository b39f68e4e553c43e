"""Rates for stretches of time, and the requests that they stand for: rate-level CSV, BurstGPT's minutes, Prometheus.

    start_s,seconds,requests_per_second,mean_prompt_tokens,mean_output_tokens

Arrivals within a stretch are Poisson, lengths lognormal around its means. ServeGen's 10-minute rates, as their tables
are published with `t_s,rate_rps,...,mean_input_tokens,mean_output_tokens`, read the same way.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from infscale_sim.traces.files import MOST_TOKENS, TraceError, csv_rows, number
from infscale_sim.traces.lengths import lognormal
from infscale_sim.traffic import Request

COLUMNS = ("start_s", "seconds", "requests_per_second", "mean_prompt_tokens", "mean_output_tokens")
SERVEGEN_COLUMNS = ("t_s", "rate_rps", "mean_input_tokens", "mean_output_tokens")

PROMPT_CV, OUTPUT_CV = 1.0, 0.75
"""Coefficients of variation of the lengths within a stretch. The conversation traces have 0.96 (Azure 2023) and 1.31
(Mooncake) for prompts, 0.77 and 0.73 for outputs."""

MOST_PER_S = 1e6


@dataclass(frozen=True, slots=True)
class Level:
    """A stretch of time with one rate.

    Attributes:
        start_s, seconds: when it begins, since the trace's start, and how long it lasts.
        rate: requests per second.
        prompt_tokens, output_tokens: of its mean request; 1 or more where the rate is above 0.
    """

    start_s: float
    seconds: float
    rate: float
    prompt_tokens: float
    output_tokens: float


def requests_of(levels: Iterable[Level], scale: float, seed: int) -> Iterator[Request]:
    """The requests of levels that follow one another in time, at so many times their rates.

    A gap is laid off along the integral of the rate, from one level into the next, so that short levels of low rates
    get the requests that they should on average.
    """
    gap = random.Random(f"{seed} arrivals").expovariate  # noqa: S311 - traffic, no secret
    prompt = lognormal(PROMPT_CV, random.Random(f"{seed} prompt"))  # noqa: S311
    output = lognormal(OUTPUT_CV, random.Random(f"{seed} output"))  # noqa: S311
    wanted = gap(1.0)
    for level in levels:
        rate, start_s = level.rate * scale, level.start_s
        expected = rate * level.seconds
        while wanted <= expected:
            yield Request(start_s + wanted / rate, prompt(level.prompt_tokens), output(level.output_tokens))
            wanted += gap(1.0)
        wanted -= expected


def read(path: Path) -> Iterator[Level]:
    """The levels of a rate-level CSV.

    Raises:
        TraceError: a row cannot be used, or begins before the one above it ends.
    """
    end_s = 0.0
    for line, (start, duration, *rest) in csv_rows(path, COLUMNS):
        start_s = number(path, line, "start_s", start)
        seconds = number(path, line, "seconds", duration)
        if not seconds:
            raise TraceError(path, line, "seconds is 0: expected how long the rate holds")
        if start_s < end_s:
            raise TraceError(path, line, f"starts at {start_s:g} s, before the row above ends at {end_s:g} s")
        end_s = start_s + seconds
        yield _level(path, line, (start_s, seconds), COLUMNS[2:], rest)


def read_servegen(path: Path) -> Iterator[Level]:
    """The levels of ServeGen's rates: each holds until the next row, the last as long as the one before.

    Raises:
        TraceError: a row cannot be used, or begins no later than the one above it.
    """
    before: tuple[int, float, list[str]] | None = None
    seconds = 0.0
    for line, (start, *rest) in csv_rows(path, SERVEGEN_COLUMNS):
        start_s = number(path, line, "t_s", start)
        if before is not None:
            seconds = start_s - before[1]
            if seconds <= 0:
                raise TraceError(path, line, f"t_s is {start_s:g}: expected more than the {before[1]:g} above")
            yield _level(path, before[0], (before[1], seconds), SERVEGEN_COLUMNS[1:], before[2])
        before = line, start_s, rest
    if before is not None:
        if not seconds:
            raise TraceError(path, before[0], "a single row: expected two or more, which tell how long a rate holds")
        yield _level(path, before[0], (before[1], seconds), SERVEGEN_COLUMNS[1:], before[2])


def _level(path: Path, line: int, when: tuple[float, float], names: tuple[str, ...], values: list[str]) -> Level:
    rate = number(path, line, names[0], values[0], MOST_PER_S)
    if not rate:
        return Level(*when, 0.0, 0.0, 0.0)  # nothing has a mean
    means = [number(path, line, name, value, MOST_TOKENS) for name, value in zip(names[1:], values[1:], strict=True)]
    for name, mean in zip(names[1:], means, strict=True):
        if mean < 1:
            raise TraceError(path, line, f"{name} is {mean:g} where the rate is above 0: expected 1 or more")
    return Level(*when, rate, *means)
