"""Lookahead: the demand as far ahead as a new replica needs to start.

Samples of the measured demand are kept per metric; a robust slope through them carries it on. Used by `core.signals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from infscale.core.memory import Sample, ScaleState
from infscale.core.scaling import AUTO, Fit, ScalePolicy

SHORTEST_WINDOW_S = 120.0
MOST_SAMPLES = 40
"""Kept per metric, 780 pairs for Theil-Sen; more frequent ones are thinned so that these span the window (3.2 s)."""

MOST_GROWTH = 2.0


def horizon_s(policy: ScalePolicy, state: ScaleState) -> float:
    """How far ahead the policy looks: the given seconds or the 90th percentile of measured cold starts; 0 is off."""
    return state.cold_start_s if policy.lookahead_s == AUTO else policy.lookahead_s


def sampled(samples: Sequence[Sample], now_s: float, requests: float, ahead_s: float) -> tuple[Sample, ...]:
    """The samples of the last max(120 s, horizon) with one more, in the place of the last where they are too close."""
    window_s = max(SHORTEST_WINDOW_S, ahead_s)
    kept = [sample for sample in samples if now_s - sample.time_s <= window_s and sample.time_s < now_s]
    if len(kept) >= 2 and kept[-1].time_s - kept[-2].time_s < window_s / (MOST_SAMPLES - 2):
        kept.pop()
    return (*kept[-(MOST_SAMPLES - 1) :], Sample(now_s, requests))


def projected(requests: float, samples: Sequence[Sample], ahead_s: float, policy: ScalePolicy) -> float:
    """The demand `ahead_s` seconds on: never below the present one, at most twice it."""
    if policy.fit_samples is not None:
        samples = samples[-policy.fit_samples :]
    slope = theil_sen(samples) if policy.fit is Fit.THEIL_SEN else least_squares(samples)
    return max(requests, min(requests + slope * ahead_s, MOST_GROWTH * requests))


def theil_sen(samples: Sequence[Sample]) -> float:
    """The median slope over all pairs of samples, requests per second; 0 with fewer than two instants.

    One burst between two looks, or one wrong value, moves a least-squares line; it does not move the median.
    """
    slopes = [
        (later.requests - earlier.requests) / (later.time_s - earlier.time_s)
        for earlier, later in combinations(samples, 2)
        if later.time_s > earlier.time_s
    ]
    return median(slopes) if slopes else 0.0


def least_squares(samples: Sequence[Sample]) -> float:
    """The slope of the least-squares line, requests per second; 0 with fewer than two instants."""
    if not samples:
        return 0.0
    mean_s = sum(sample.time_s for sample in samples) / len(samples)
    mean = sum(sample.requests for sample in samples) / len(samples)
    spread = sum((sample.time_s - mean_s) ** 2 for sample in samples)
    if spread == 0.0:
        return 0.0
    return sum((sample.time_s - mean_s) * (sample.requests - mean) for sample in samples) / spread
