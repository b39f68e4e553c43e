"""Schedules: a count for each sync, decided before the run, and what the engine says of one.

`infscale_sim.oracle` searches them; a test searches all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from infscale.core.replicas import Fleet
from infscale_sim.cluster import Cluster
from infscale_sim.fleet import Needs
from infscale_sim.metrics import missed
from infscale_sim.policies import Choice
from infscale_sim.scenario import Scenario
from infscale_sim.traffic import Requests

_SAME_S = 1e-6
"""Sync times that are meant to be one differ by less, for rounding."""

Counts = tuple[int, ...]
"""The count from each sync of a run on."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule and what came of it.

    Attributes:
        counts: the count from each of `syncs` on.
        misses: of the SLO.
        replica_minutes: as a run bills them.
    """

    counts: Counts
    misses: int
    replica_minutes: float


class Schedule:
    """A scaler that was told all its counts before: see `infscale_sim.policies.Scaler`. It looks when one changes."""

    needs = Needs()

    def __init__(self, times_s: Sequence[float], counts: Sequence[int], start: int, horizon_s: float) -> None:
        changes = [
            (time_s, after)
            for time_s, (before, after) in zip(times_s, pairwise((start, *counts)), strict=True)
            if before != after
        ]
        self.times_s = [time_s for time_s, _ in changes]
        self.counts = [start, *(count for _, count in changes)]
        self.horizon_s = horizon_s

    def start(self, replicas: int) -> int:
        """As the scenario has it."""
        return replicas

    def next_s(self, now_s: float) -> float:
        """The next change; without any, beyond the run."""
        index = bisect_right(self.times_s, now_s)
        return self.times_s[index] if index < len(self.times_s) else max(now_s, self.horizon_s) + 1.0

    def decide(self, fleet: Fleet) -> Choice:
        """The count from now on."""
        count = self.counts[bisect_right(self.times_s, fleet.now_s + _SAME_S)]
        return Choice(count, "schedule", "every arrival was known before")


def syncs(scenario: Scenario) -> list[float]:
    """The instants at which a count may change."""
    times_s = []
    time_s = scenario.defaults.next_sync_s(0.0)
    while time_s < scenario.horizon_s:
        times_s.append(time_s)
        time_s = scenario.defaults.next_sync_s(time_s)
    return times_s


def scaler_for(scenario: Scenario, counts: Sequence[int]) -> Schedule:
    """The scaler of a schedule, from the scenario's replicas at the start; a new one for each run."""
    return Schedule(syncs(scenario), counts, scenario.start, scenario.horizon_s)


def price(scenario: Scenario, requests: Requests, counts: Sequence[int]) -> Scheduled:
    """What a schedule misses and costs."""
    run = Cluster(scenario, requests, scaler_for(scenario, counts)).run()
    return Scheduled(tuple(counts), sum(missed(requests, run, scenario.slo)), run.replica_minutes)


def spans(counts: Sequence[int], level: int) -> Iterator[tuple[int, int]]:
    """From where until where the count is at least that."""
    first = None
    for index, count in enumerate((*counts, 0)):
        if count >= level:
            first = index if first is None else first
        elif first is not None:
            yield first, index
            first = None
