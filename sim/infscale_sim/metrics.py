"""A run in numbers: misses of the SLO, and quantiles of the time to first token.

Percentiles are exact: a run keeps 8 bytes for each request's first token, which reports need anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from infscale_sim.outcome import Run
from infscale_sim.scenario import Slo
from infscale_sim.traffic import Requests

_SAME_S = 1e-9
"""A time to first token is the difference of two times; just at the SLO it may be a little above, for rounding."""


def missed(requests: Requests, run: Run, slo: Slo) -> bytearray:
    """By request, 1 where it missed: late, slow, rejected, timed out, cut, or without a first token by the horizon."""
    limit_s, horizon_s = slo.ttft_s + _SAME_S, run.horizon_s
    misses = bytearray(
        fate != 0 or first_s > horizon_s or first_s - arrival_s > limit_s
        for fate, first_s, arrival_s in zip(run.fate, run.first_s, requests.arrival_s, strict=True)
    )
    if slo.itl_s is not None:
        limit_s = slo.itl_s + _SAME_S
        rows = zip(run.first_s, run.done_s, requests.output_tokens, strict=True)
        for request, (first_s, done_s, output) in enumerate(rows):
            if done_s <= horizon_s and done_s - first_s > limit_s * (output - 1):
                misses[request] = 1
    return misses


def ttft_s(requests: Requests, run: Run) -> list[float]:
    """The times to first token of the requests that got one by the horizon, sorted."""
    pairs = zip(run.first_s, requests.arrival_s, strict=True)
    return sorted([first_s - arrival_s for first_s, arrival_s in pairs if first_s <= run.horizon_s])


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least that share of the values does not exceed; None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
