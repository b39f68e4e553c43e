"""Quantiles as PromQL computes them: of a histogram's buckets, and of a list of values.

`core.ttft` takes the one, learned capacities (`core.work`) and cold starts (`core.memory`) the other.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from infscale.core.numbers import ratio


def histogram_quantile(quantile: float, bounds: Sequence[float], counts: Sequence[float]) -> float:
    """PromQL's `histogram_quantile` over one classic histogram.

    Linear inside the bucket that holds the rank. The first bucket begins at 0 if its bound is positive, else the bound
    itself is given; in the `+Inf` bucket the last finite bound is given. A count below the one before it is raised to
    it, as there.

    Args:
        quantile: 0 to 1; below is -Inf and above +Inf, as there.
        bounds: the `le` of each bucket, ascending, the last infinite.
        counts: cumulative, one for each bound.

    Returns:
        The quantile; NaN without any observation, without an infinite bucket, or with fewer than two buckets.

    Source: Prometheus' promql/quantile.go, `bucketQuantile` and `ensureMonotonic`.
    """
    if math.isnan(quantile):
        return math.nan
    if not 0 <= quantile <= 1:
        return math.copysign(math.inf, quantile)
    last = len(bounds) - 1
    if last < 1 or bounds[last] != math.inf:
        return math.nan
    rising = list(accumulate(counts, max))
    if not rising[last] > 0:
        return math.nan
    rank = quantile * rising[last]
    bucket = bisect_left(rising, rank)
    if bucket == last:
        return bounds[last - 1]
    if bucket == 0:
        return bounds[0] if bounds[0] <= 0 else bounds[0] * ratio(rank, rising[0])
    start, below = bounds[bucket - 1], rising[bucket - 1]
    return start + (bounds[bucket] - start) * ((rank - below) / (rising[bucket] - below))


def percentile(values: Sequence[float], quantile: float) -> float:
    """PromQL's `quantile`: linear between the two closest of the sorted values.

    Args:
        values: at least one, in any order.
        quantile: 0 to 1.

    Source: Prometheus' promql/quantile.go, `quantile`.
    """
    ordered = sorted(values)
    rank = quantile * (len(ordered) - 1)
    lower = math.floor(rank)
    upper = min(lower + 1, len(ordered) - 1)
    weight = rank - lower
    return ordered[lower] * (1 - weight) + ordered[upper] * weight
