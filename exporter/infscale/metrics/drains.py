"""What adds up over the drains of a replica, and the collector that publishes it.

`infscale.drain.endpoint` tells of each drain that ends; the sidecar gives a `DrainCollector` to `render.Renderer`. The
memory is bounded: the outcomes are a closed list.
"""

from __future__ import annotations

import itertools
import math
import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Metric as Family

from infscale.metrics.catalogue import in_group
from infscale.metrics.catalogue_drain import DRAIN_MEANINGS
from infscale.metrics.contract import DRAIN
from infscale.metrics.families import Families

DURATION_BUCKETS_S = (7, 15, 30, 60, 120, 300, 900, math.inf)
"""An idle engine takes 6 s. Few and wide: each bound is a series for each outcome of each replica."""


@dataclass(frozen=True)
class Duration:
    """The durations of the drains of one outcome: (upper bound in seconds, drains of at most that), and their sum."""

    buckets: tuple[tuple[float, float], ...]
    sum_s: float


@dataclass(frozen=True)
class DrainTotals:
    """All counts at an instant, each with every outcome: (outcome, value)."""

    durations: tuple[tuple[str, Duration], ...]
    cut: tuple[tuple[str, float], ...]


class DrainCounters:
    """The counters of one replica's drains, all 0 at first. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._durations = {outcome: [0] * len(DURATION_BUCKETS_S) for outcome in DRAIN_MEANINGS}
        self._sums_s = dict.fromkeys(DRAIN_MEANINGS, 0.0)
        self._cut = dict.fromkeys(DRAIN_MEANINGS, 0.0)

    def ended(self, outcome: str, seconds: float) -> None:
        """Count a drain that ended (KeyError for an outcome that is none)."""
        with self._lock:
            self._durations[outcome][bisect_left(DURATION_BUCKETS_S, seconds)] += 1
            self._sums_s[outcome] += seconds

    def cut(self, outcome: str, requests: float) -> None:
        """Count the requests that the engine's end cut off after a drain with this outcome."""
        with self._lock:
            self._cut[outcome] += requests

    def totals(self) -> DrainTotals:
        """The counts of this instant."""
        with self._lock:
            durations = tuple(
                (
                    outcome,
                    Duration(
                        tuple(zip(DURATION_BUCKETS_S, itertools.accumulate(counts), strict=True)), self._sums_s[outcome]
                    ),
                )
                for outcome, counts in self._durations.items()
            )
            return DrainTotals(durations, tuple(self._cut.items()))


@dataclass(frozen=True)
class DrainSnapshot:
    """What one page is made of."""

    draining: bool
    totals: DrainTotals

    def same_as(self, other: DrainSnapshot | None) -> bool:
        """Whether both make the same page."""
        return self == other


class DrainCollector:
    """The families of a replica's drains, built anew at each collect.

    Args:
        draining: whether the replica's Pod is terminating.
        counters: what adds up over the drains.
    """

    def __init__(self, draining: Callable[[], bool], counters: DrainCounters) -> None:
        self._draining, self._counters = draining, counters

    def snapshot(self) -> DrainSnapshot:
        """The state and the totals of this instant."""
        return DrainSnapshot(self._draining(), self._counters.totals())

    def families(self, snapshot: DrainSnapshot) -> list[Family]:
        """The families of a snapshot, in the catalogue's order; every outcome is there from the start."""
        families = Families(in_group(DRAIN))
        families.add("infscale_draining", float(snapshot.draining))
        for outcome, duration in snapshot.totals.durations:
            families.add("infscale_drains_total", duration.buckets[-1][1], outcome)
            families.add_histogram("infscale_drain_duration_seconds", duration.buckets, duration.sum_s, outcome)
        for outcome, requests in snapshot.totals.cut:
            families.add("infscale_drain_requests_cut_total", requests, outcome)
        return families.built()

    def collect(self) -> list[Family]:
        """The families of this instant."""
        return self.families(self.snapshot())

    def describe(self) -> list[Family]:
        """Every family without samples."""
        return Families(in_group(DRAIN)).empty()
