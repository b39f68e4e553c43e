"""The traffic of a search, and other traffic of the same kind that the result is checked on.

What is random is searched on some seeds and checked on others. Traffic that is fixed, as a recorded trace is, has no
other seed: it is checked on resampled arrivals (`resampled`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infscale_sim.replay import replay
from infscale_sim.scenario import Scenario
from infscale_sim.traces.trace import Trace
from infscale_sim.traffic import Request, Requests

JITTER_S = 5.0
"""How far a resampled request moves at most: less than a look of the scaler, so the shape of the load stays."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of each policy: a scenario and its requests."""

    scenario: Scenario
    requests: Requests


@dataclass(frozen=True, slots=True)
class Cases:
    """What is searched on and what is held out.

    Attributes:
        searched: each policy is run on these.
        proving: where the best fails on what is held out, a sturdier one has to hold on these.
        held_out: nothing is chosen by these.
        how: what the held-out ones are, in words.
    """

    searched: tuple[Case, ...]
    proving: tuple[Case, ...]
    held_out: tuple[Case, ...]
    how: str


def cases_of(scenario: Scenario, traces: Sequence[Trace], seeds: int) -> Cases:
    """The cases of a scenario, or of traces in its cluster.

    Args:
        scenario: the cluster, and the traffic where there is no trace; its seed is the first.
        traces: what is replayed; each is a case of its own.
        seeds: how many seeds are searched where anything is random, and how many others there are of the other kinds.
    """
    sources: Sequence[Trace | None] = traces or (None,)
    searched: list[Case] = []
    proving: list[Case] = []
    held_out: list[Case] = []
    others = range(scenario.seed + seeds, scenario.seed + 2 * seeds)
    proofs = range(others.stop, others.stop + seeds)
    fixed = False
    for source in sources:
        first = _case(scenario, source, scenario.seed)
        more = range(scenario.seed + 1, scenario.seed + (seeds if first.scenario.is_random else 1))
        searched += [first, *(_case(scenario, source, seed) for seed in more)]
        is_fixed = _is_fixed(scenario, source)
        fixed = fixed or is_fixed
        for cases, those in ((proving, proofs), (held_out, others)):
            cases += [_resampled(first, seed) if is_fixed else _case(scenario, source, seed) for seed in those]
    which = f"seeds {others.start} to {others.stop - 1}" if seeds > 1 else f"seed {others.start}"
    how = f"arrivals resampled with {which}" if fixed else f"{which}, which the search did not see"
    return Cases(tuple(searched), tuple(proving), tuple(held_out), how)


def _is_fixed(scenario: Scenario, trace: Trace | None) -> bool:
    """Whether the requests are the same for every seed."""
    if trace is not None:
        return trace.seed is None
    return not (scenario.process.is_random or scenario.prompt.is_random or scenario.output.is_random)


def _case(scenario: Scenario, trace: Trace | None, seed: int) -> Case:
    seeded = replace(scenario, seed=seed)
    if trace is None:
        return Case(seeded, seeded.requests())
    return Case(*replay(seeded, trace if trace.seed is None else replace(trace, seed=seed)))


def _resampled(case: Case, seed: int) -> Case:
    scenario = replace(case.scenario, seed=seed)
    return Case(scenario, resampled(case.requests, seed, scenario.horizon_s))


def resampled(requests: Requests, seed: int, horizon_s: float) -> Requests:
    """Traffic that could as well have come: each request comes as often as a Poisson count of mean 1 says.

    Each copy has the tokens of its request and a time of its own, at most `JITTER_S` off. Bursts and waves stay where
    they are; how many come in them varies as it does between two days of the same load.
    """
    generator = random.Random(f"{seed} resampled")  # noqa: S311 - no secret
    drawn = []
    for arrival_s, prompt, output in zip(
        requests.arrival_s, requests.prompt_tokens, requests.output_tokens, strict=True
    ):
        for _ in range(_poisson_of_one(generator)):
            time_s = arrival_s + generator.uniform(-JITTER_S, JITTER_S)
            drawn.append(Request(min(horizon_s, max(0.0, time_s)), prompt, output))
    drawn.sort()
    return Requests.of(drawn)


def _poisson_of_one(generator: random.Random) -> int:
    """A Poisson count with mean 1: how many exponential gaps fit into 1."""
    count, product = 0, generator.random()
    while product > math.exp(-1):
        count += 1
        product *= generator.random()
    return count
