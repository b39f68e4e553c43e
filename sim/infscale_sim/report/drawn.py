"""What a report draws, as plain values: lines over time and totals. `adapt` makes them, `panels` arranges them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

MOST_POINTS = 1600
"""Points of a line at most; a chart is some 260 pixels wide on paper and a few times that on a screen."""


@dataclass(frozen=True, slots=True)
class Line:
    """A value over time, in steps: each holds from its time up to the next one's, the last up to the end.

    Attributes:
        time_s: rising.
        value: None where there is none, infinity where it never came.
    """

    time_s: tuple[float, ...]
    value: tuple[float | None, ...]

    @classmethod
    def of(cls, points: Iterable[tuple[float, float | None]]) -> Self:
        """The line through points in the order of time, without those that change nothing; of one time the last."""
        kept: list[tuple[float, float | None]] = []
        for time_s, value in points:
            if kept and kept[-1][0] == time_s:
                kept.pop()
            if not kept or kept[-1][1] != value:
                kept.append((time_s, value))
        return cls(tuple(time_s for time_s, _ in kept), tuple(value for _, value in kept))

    @property
    def known(self) -> list[float]:
        """Its finite values."""
        return [value for value in self.value if value is not None and value != math.inf]

    @property
    def most(self) -> float:
        """The largest finite value; 0 of none."""
        return max(self.known, default=0.0)

    @property
    def has_never(self) -> bool:
        """Whether a value never came."""
        return math.inf in self.value

    def at(self, time_s: float) -> float | None:
        """The value at an instant; None before the first."""
        index = bisect_right(self.time_s, time_s)
        return self.value[index - 1] if index else None

    def thinned(self, most: int = MOST_POINTS) -> Line:
        """The line with at most so many points: of each of many equal times its first, last, least and largest value.

        So every peak stays, at most a bucket away from where it was.
        """
        count = len(self.time_s)
        if count <= most:
            return self
        begin, width = self.time_s[0], (self.time_s[-1] - self.time_s[0]) / (most // 4)
        buckets: dict[int, list[int]] = {}
        for index, time_s in enumerate(self.time_s):
            buckets.setdefault(min(int((time_s - begin) / width), most // 4 - 1), []).append(index)
        kept: set[int] = set()
        for indices in buckets.values():
            order = sorted(indices, key=self._rank)
            kept.update((indices[0], indices[-1], order[0], order[-1]))
        return Line.of((self.time_s[index], self.value[index]) for index in sorted(kept))

    def _rank(self, index: int) -> float:
        value = self.value[index]
        return -1.0 if value is None else value


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is the same for all policies.

    Attributes:
        horizon_s: the end of the run, above 0.
        window_s: over which rates, misses and percentiles are taken.
        slo_ttft_s: the first token is late after it.
        rate: arriving requests per second.
        required: replicas that this work fills, with full batches, whole.
    """

    horizon_s: float
    window_s: float
    slo_ttft_s: float
    rate: Line
    required: Line


@dataclass(frozen=True, slots=True)
class Totals:
    """A row of the comparison, as `infscale_sim.simulate.Result` has it."""

    requests: int
    slo_misses: int
    slo_miss_percent: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    replica_minutes: float
    oracle_ratio: float | None
    bound_replica_minutes: float | None
    peak_replicas: int
    scale_events: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """A policy's run.

    Attributes:
        policy: its text.
        target: requests in flight that it wants per replica; None where it looks at something else.
        ready, recommended: replicas.
        inflight: requests on ready replicas and held ones.
        wanted: the target times the ready replicas; None without a target.
        ttft: by the name of a percentile (`p50`), seconds to the first token of the requests that arrived in a window.
        misses: requests per second that arrived in a window and missed.
        totals: over all of the run.
    """

    policy: str
    target: float | None
    ready: Line
    recommended: Line
    inflight: Line
    wanted: Line | None
    ttft: tuple[tuple[str, Line], ...]
    misses: Line
    totals: Totals


@dataclass(frozen=True, slots=True)
class Report:
    """A comparison.

    Attributes:
        headline: what was run, in a line.
        traffic: the same for all.
        policies: in the order in which they are shown.
    """

    headline: str
    traffic: Traffic
    policies: tuple[Drawn, ...]
