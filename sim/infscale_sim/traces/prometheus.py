"""Arrivals rebuilt from the counters that a Prometheus has: `--prometheus URL --range 7d`. Called by `trace`.

In each step as many requests arrived as finished, and as there are more in the engines at its end than at its start:
finished alone shows a full engine's throughput instead of what was asked of it. Counters grow as Prometheus' `increase`
has it, resets included. Within a step arrivals are Poisson (`rates`); lengths have the mean of the tokens around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from infscale.errors import SourceError, UsageError
from infscale_sim.traces import rates
from infscale_sim.traces.files import MOST_TOKENS
from infscale_sim.traces.prometheus_api import Api
from infscale_sim.traces.prometheus_series import NAMES, UNCOUNTED, Family, found_in, selector_of, uncounted
from infscale_sim.traces.rates import Level
from infscale_sim.traffic import Request

STEPS_S = (60.0, 300.0)
"""Tried one after the other where no step is told: growth needs two scrapes in a step, and the default interval of a
Prometheus is a minute."""

MOST_STEPS = 200_000
"""138 days of minutes; 100 queries a series."""

ENOUGH = 200
"""Finished requests over which a mean length is taken: in one step some finish whose tokens came before it."""

AGREE = 0.95
"""infscale's own series are taken where they saw at least this share of what the engines' own did."""

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True)
class History:
    """What to rebuild.

    Attributes:
        url: of the Prometheus.
        range_s: how far back, in seconds.
        step_s: how long a rate holds, in seconds; None: a minute, or five where it is scraped once a minute.
        workload: `NAMESPACE/NAME`: the labels namespace and workload of the series; may be empty.
        selector: further label matchers; may be empty. Without both, everything that the Prometheus scrapes.
        end_s: until when, Unix seconds.
        timeout_s: for one query.
        token_file, ca_file: to reach the Prometheus with.
    """

    url: str
    range_s: float
    end_s: float
    step_s: float | None = None
    workload: str = ""
    selector: str = ""
    timeout_s: float = 30.0
    token_file: str | None = None
    ca_file: str | None = None


@dataclass(frozen=True)
class Rebuilt:
    """Arrivals of a past time. A `Source` of `trace`.

    Attributes:
        levels: a rate for each step.
        place: host and port of the Prometheus.
        note: one line for people: how many requests, from which series, and how much of the time is missing.
    """

    levels: tuple[Level, ...]
    place: str
    note: str

    def is_random(self, scale: float) -> bool:
        """See `Source`."""
        return True

    def requests(self, scale: float, seed: int) -> Iterator[Request]:
        """See `Source`."""
        return rates.requests_of(self.levels, scale, seed)


@dataclass(frozen=True)
class _Steps:
    """The instants that are asked for: the ends of `count` steps after `start_s`."""

    start_s: float
    step_s: float
    count: int


def duration_s(text: str) -> float:
    """Seconds of a duration as Prometheus writes it: `7d`, `36h`, `1d12h`, `90s`.

    Raises:
        UsageError: it is none.
    """
    if not re.fullmatch(r"([0-9]{1,9}[smhdw])+", text):
        raise UsageError(f"{text[:40]!r} is no duration: expected a number and a unit (s, m, h, d, w), as 7d or 1d12h")
    return float(sum(int(count) * _UNITS_S[unit] for count, unit in re.findall(r"([0-9]+)([smhdw])", text)))


def rebuild(history: History) -> Rebuilt:
    """Ask the Prometheus, and rebuild.

    Raises:
        UsageError: range, step, workload, selector or URL cannot be used.
        SourceError: there is no answer, no series, or no counter of requests.
    """
    selector = selector_of(history.workload, history.selector)
    # Whole milliseconds, as Prometheus has them: the instants of a long range would drift otherwise.
    tried = STEPS_S if history.step_s is None else (round(history.step_s, 3),)
    for step_s in tried:
        _check(history.range_s, step_s)
    api = Api(history.url, history.timeout_s, token_file=history.token_file, ca_file=history.ca_file)
    families = _families(api, history, selector)
    for step_s in tried:
        count = max(1, round(history.range_s / step_s))
        steps = _Steps(history.end_s - count * step_s, step_s, count)
        finished = {family: _grown(api, family, family.finished, selector, steps) for family in families}
        if any(value is not None for values in finished.values() for value in values):
            return _rebuilt(api, finished, selector, steps)
    scraped = f"no two scrapes within {tried[-1]:g} s: give a --step of four scrape intervals or more"
    raise SourceError(f"Prometheus at {api.place}: {families[0].finished} has {scraped}")


def _check(range_s: float, step_s: float) -> None:
    if not 0.1 <= step_s <= range_s:
        raise UsageError(f"--step is {step_s:g} s: expected 0.1 s or more and at most the range, {range_s:g} s")
    if range_s / step_s > MOST_STEPS:
        least_s = range_s / MOST_STEPS
        raise UsageError(f"--range has {range_s / step_s:,.0f} steps: expected a --step of {least_s:.0f} s or more")


def _families(api: Api, history: History, selector: str) -> list[Family]:
    def names_of(matchers: str) -> list[str]:
        """The metrics with these labels within the history."""
        match = "{" + ",".join(one for one in (matchers, selector) if one) + "}"
        return api.names(match, history.end_s - history.range_s, history.end_s)

    names = names_of(f'__name__=~"{NAMES}"')
    where = f"Prometheus at {api.place}"
    asked = f"with {selector} " if selector else ""
    if not names:
        check = "check --range, --workload and --selector"
        raise SourceError(f"{where}: no series {asked}of infscale, vLLM or SGLang in that range: {check}")
    families = found_in(names)
    if not families:
        raise SourceError(
            f"{where}: the engine of these series {asked}counts no requests (llama.cpp does not), so its arrivals"
            " cannot be rebuilt: record them at the gateway as arrival_s,prompt_tokens,output_tokens"
        )
    if uncounted(names) or names_of(UNCOUNTED):
        raise SourceError(
            f"{where}: beside {families[0].finished} there are engines {asked}that count no requests (llama.cpp):"
            " leave them out with --selector"
        )
    return families


def _grown(api: Api, family: Family, name: str, selector: str, steps: _Steps) -> list[float | None]:
    first_s = steps.start_s + steps.step_s
    return api.values(family.increase(name, selector, steps.step_s), first_s, steps.step_s, steps.count)


def _chosen(finished: dict[Family, list[float | None]]) -> list[Family]:
    """Infscale's family, or of each engine the spelling that saw the most; whichever of both saw more requests."""
    totals = {family: sum(value or 0.0 for value in values) for family, values in finished.items()}
    best: dict[str, Family] = {}
    for family in finished:
        if family.engine not in best or totals[family] > totals[best[family.engine]]:
            best[family.engine] = family
    own = best.pop("infscale", None)
    raw = list(best.values())
    if own is not None and totals[own] >= AGREE * sum(totals[family] for family in raw):
        return [own]
    return raw


def _rebuilt(api: Api, finished: dict[Family, list[float | None]], selector: str, steps: _Steps) -> Rebuilt:
    families = _chosen(finished)
    done, prompts, outputs = (
        _sum(steps.count, (series(family) for family in families))
        for series in (
            finished.__getitem__,
            lambda family: _grown(api, family, family.prompt_tokens, selector, steps),
            lambda family: _grown(api, family, family.generation_tokens, selector, steps),
        )
    )
    gauges = [family.inflight_now(selector) for family in families if family.inflight]
    now = (api.values(gauge, steps.start_s, steps.step_s, steps.count + 1) for gauge in gauges)
    arrived = arrivals(done, _sum(steps.count + 1, now))
    named = " and ".join(family.finished for family in families)
    if not sum(arrived):
        raise SourceError(f"Prometheus at {api.place}: {named} did not grow in that range: no request to rebuild")
    if sum(done) and not (sum(prompts) and sum(outputs)):
        raise SourceError(f"Prometheus at {api.place}: no tokens counted beside {named}: lengths cannot be rebuilt")
    levels = levels_of(arrived, means(done, prompts, outputs), steps.step_s)
    note = f"{sum(arrived):,.0f} requests in {steps.count:,} steps of {steps.step_s:g} s, from {named}"
    silent = sum(all(finished[family][step] is None for family in families) for step in range(steps.count))
    if silent:
        note += f"; {silent:,} steps without a value count as silence"
    return Rebuilt(levels, api.place, note)


def _sum(count: int, series: Iterable[Sequence[float | None]]) -> list[float]:
    """Series of so many values added up, a value that is not there as 0."""
    sums = [0.0] * count
    for values in series:
        sums = [before + (value or 0.0) for before, value in zip(sums, values, strict=True)]
    return sums


def arrivals(finished: Sequence[float], inflight: Sequence[float]) -> list[float]:
    """Requests that arrived in each step: those that finished, and the growth of those in flight.

    A step in which the sum is below 0 (a scrape between gauge and counter, a replica that died) has none, and the next
    ones as many fewer.

    Args:
        finished: in each step.
        inflight: at the start of the first step, and at the end of each.
    """
    found, owed = [], 0.0
    for done, (before, after) in zip(finished, pairwise(inflight), strict=True):
        arrived = done + after - before + owed
        owed = min(0.0, arrived)
        found.append(max(0.0, arrived))
    return found


def means(finished: Sequence[float], prompts: Sequence[float], outputs: Sequence[float]) -> list[tuple[float, float]]:
    """The mean prompt and output of each step, in tokens, over as many steps as have ENOUGH requests.

    What remains at the end joins the last such steps. Without any request it is 1.
    """
    ends, count = [], 0.0
    for step, done in enumerate(finished, 1):
        count += done
        if count >= ENOUGH:
            ends.append(step)
            count = 0.0
    ends = [*ends[:-1], len(finished)]
    found: list[tuple[float, float]] = []
    for start, end in pairwise([0, *ends]):
        requests = sum(finished[start:end])
        sums = (sum(prompts[start:end]), sum(outputs[start:end]))
        prompt, output = (min(MOST_TOKENS, max(1.0, total / requests)) if requests else 1.0 for total in sums)
        found += [(prompt, output)] * (end - start)
    return found


def levels_of(arrived: Sequence[float], lengths: Sequence[tuple[float, float]], step_s: float) -> tuple[Level, ...]:
    """A level for each step, the first from 0 on."""
    return tuple(
        Level(step * step_s, step_s, count / step_s, prompt, output)
        for step, (count, (prompt, output)) in enumerate(zip(arrived, lengths, strict=True))
    )
