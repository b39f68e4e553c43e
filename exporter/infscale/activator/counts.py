"""What adds up over the held requests of an activator, and the collector that publishes it.

The queue tells of each request that ends; scrapes take the totals, from other threads.
"""

from __future__ import annotations

import itertools
import math
import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Metric as Family

from infscale.fleet.source import WorkloadName
from infscale.metrics.catalogue import in_group
from infscale.metrics.catalogue_activator import HELD_MEANINGS
from infscale.metrics.contract import ACTIVATOR
from infscale.metrics.families import Families

HOLD_BUCKETS_S = (0.1, 1, 5, 10, 20, 30, 60, 90, 120, 180, 300, 600, math.inf)
"""From a replica that was about to be ready to the cold start of a large model."""


@dataclass(frozen=True)
class Totals:
    """All counts at an instant.

    Attributes:
        outcomes: (outcome, requests), each outcome.
        buckets: (upper bound in seconds, requests held for at most that), the last bound infinite.
        sum_s: seconds of all of them together.
    """

    outcomes: tuple[tuple[str, int], ...]
    buckets: tuple[tuple[float, float], ...]
    sum_s: float


class HoldCounters:
    """The counters of one activator, all 0 at first. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes = dict.fromkeys(HELD_MEANINGS, 0)
        self._buckets = [0] * len(HOLD_BUCKETS_S)
        self._sum_s = 0.0

    def ended(self, outcome: str, held_s: float | None) -> None:
        """See `queue.Counter` (KeyError for an outcome that is none)."""
        with self._lock:
            self._outcomes[outcome] += 1
            if held_s is not None:
                self._buckets[bisect_left(HOLD_BUCKETS_S, held_s)] += 1
                self._sum_s += held_s

    def totals(self) -> Totals:
        """The counts of this instant."""
        with self._lock:
            buckets = tuple(zip(HOLD_BUCKETS_S, itertools.accumulate(self._buckets), strict=True))
            return Totals(tuple(self._outcomes.items()), buckets, self._sum_s)


@dataclass(frozen=True)
class HoldSnapshot:
    """What one page is made of."""

    pending: int
    totals: Totals

    def same_as(self, other: HoldSnapshot | None) -> bool:
        """Whether both make the same page."""
        return self == other


class HoldCollector:
    """The families of one activator, built anew at each collect.

    Args:
        workload: whose requests they are.
        limit: requests that may be pending.
        pending: requests that are.
        counters: what adds up.
    """

    def __init__(self, workload: WorkloadName, limit: int, pending: Callable[[], int], counters: HoldCounters) -> None:
        self._names = workload.namespace, workload.name
        self._limit, self._pending, self._counters = limit, pending, counters

    def snapshot(self) -> HoldSnapshot:
        """The number and the totals of this instant."""
        return HoldSnapshot(self._pending(), self._counters.totals())

    def families(self, snapshot: HoldSnapshot) -> list[Family]:
        """The families of a snapshot, in the catalogue's order; every outcome is there from the start."""
        families, totals = Families(in_group(ACTIVATOR)), snapshot.totals
        families.add("infscale_pending_requests", snapshot.pending, *self._names)
        families.add("infscale_pending_requests_limit", self._limit, *self._names)
        for outcome, count in totals.outcomes:
            families.add("infscale_held_requests_total", count, *self._names, outcome)
        families.add_histogram("infscale_hold_duration_seconds", totals.buckets, totals.sum_s, *self._names)
        return families.built()

    def collect(self) -> list[Family]:
        """The families of this instant."""
        return self.families(self.snapshot())

    def describe(self) -> list[Family]:
        """Every family without samples."""
        return Families(in_group(ACTIVATOR)).empty()
