"""What adds up over the evaluations of a workload: decisions, cold starts, replica seconds, lost state files.

The loop that evaluates tells of each evaluation; `workload_collector` takes the totals at each scrape, from other
threads. The memory is bounded: every label has a closed list of values.
"""

from __future__ import annotations

import itertools
import math
import threading
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from infscale.metrics.catalogue_workload import DIRECTIONS, PAID_MEANINGS, REASON_MEANINGS
from infscale.metrics.workload import Counts, WorkloadView

COLD_START_BUCKETS_S = (5, 10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, math.inf)
"""From a small model out of the page cache (some 5 s) to a large one that is downloaded to a new node (30 minutes);
closest from 30 s to 5 minutes, where a lookahead is set."""

MAX_GAP_S = 300.0
"""What at most is counted between two evaluations: the replicas of a longer gap (a suspended machine, a clock that was
set) are not known, and are not made up."""

PAID_STATES = tuple(PAID_MEANINGS)

_DECISIONS = tuple(itertools.product(DIRECTIONS, REASON_MEANINGS))


@dataclass(frozen=True)
class Totals:
    """All counts at an instant.

    Attributes:
        decisions: ((direction, reason), evaluations), every pair.
        cold_start_buckets: (upper bound in seconds, how many took at most that), the last bound infinite.
        cold_start_sum_s: seconds of all cold starts together.
        replica_seconds: (state, seconds), every state of PAID_STATES.
        state_resets: state files that were set aside.
    """

    decisions: tuple[tuple[tuple[str, str], int], ...]
    cold_start_buckets: tuple[tuple[float, float], ...]
    cold_start_sum_s: float
    replica_seconds: tuple[tuple[str, float], ...]
    state_resets: int


class WorkloadCounters:
    """The counters of one workload, all 0 at first. Safe to use from many threads; reads no clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decisions = dict.fromkeys(_DECISIONS, 0)
        self._cold_starts = [0] * len(COLD_START_BUCKETS_S)
        self._cold_start_sum_s = 0.0
        self._replica_seconds = dict.fromkeys(PAID_STATES, 0.0)
        self._state_resets = 0
        self._last: tuple[float, Counts] | None = None

    def evaluated(self, view: WorkloadView, cold_starts_s: Iterable[float] = ()) -> None:
        """Count one evaluation.

        Args:
            view: what came out; its reason and time are set. Replica seconds are those of the replicas of the view
                before, from its time to this one's; a state that was not read counts none.
            cold_starts_s: the cold starts that ended since the last evaluation, in seconds; one that is no duration
                (negative by a clock that was set, NaN) is left out.

        Raises:
            ValueError: the view has no reason or no time.
        """
        if not view.reason or view.evaluated_at_s is None:
            raise ValueError("the view is of no evaluation: expected its reason and time")
        with self._lock:
            self._decisions[view.direction, view.reason] += 1
            for duration_s in cold_starts_s:
                if 0 <= duration_s < math.inf:
                    self._cold_starts[bisect_left(COLD_START_BUCKETS_S, duration_s)] += 1
                    self._cold_start_sum_s += duration_s
            self._pay(view.evaluated_at_s, view.replicas)

    def state_reset(self) -> None:
        """Count a state file that was unusable and was set aside."""
        with self._lock:
            self._state_resets += 1

    def totals(self) -> Totals:
        """The counts of this instant."""
        with self._lock:
            return Totals(
                tuple(self._decisions.items()),
                tuple(zip(COLD_START_BUCKETS_S, itertools.accumulate(self._cold_starts), strict=True)),
                self._cold_start_sum_s,
                tuple(self._replica_seconds.items()),
                self._state_resets,
            )

    def _pay(self, now_s: float, replicas: Counts) -> None:
        if self._last is not None:
            since_s, paid = self._last
            elapsed_s = min(max(0.0, now_s - since_s), MAX_GAP_S)
            for state in PAID_STATES:
                self._replica_seconds[state] += elapsed_s * (getattr(paid, state) or 0)
        self._last = now_s, replicas
