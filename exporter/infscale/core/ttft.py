"""Time to first token: the quantile of what was added to the histograms between two reads.

Buckets of different layouts are never merged; the worst quantile counts. Used by `core.signals`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import add, lt, sub

from infscale.core.decision import Proposal
from infscale.core.demand import View
from infscale.core.memory import Memory
from infscale.core.numbers import Tolerance, ratio, to_milli, whole_up
from infscale.core.quantiles import histogram_quantile
from infscale.core.replicas import Buckets, Replica

Layouts = dict[tuple[float, ...], tuple[float, ...]]
"""Cumulative counts by bucket bounds."""


def added(replicas: Iterable[Replica], before: Mapping[str, Memory]) -> tuple[Layouts, int]:
    """What came to the histograms since the last read, by bucket layout, and how many replicas could tell.

    A replica without a read before cannot. A bucket that went down is a restart: all that it holds is new.
    """
    grown: Layouts = {}
    telling = 0
    for replica in replicas:
        memory = before.get(replica.name)
        if memory is None or not memory.ttft or not replica.ttft:
            continue
        telling += 1
        old = merged(memory.ttft)
        for bounds, counts in merged(replica.ttft).items():
            _put(grown, bounds, _growth(old.get(bounds), counts))
    return grown, telling


def merged(histograms: Iterable[Buckets]) -> Layouts:
    """The counts of one replica by bucket layout."""
    layouts: Layouts = {}
    for histogram in histograms:
        _put(layouts, histogram.bounds, histogram.counts)
    return layouts


def _put(layouts: Layouts, bounds: tuple[float, ...], counts: tuple[float, ...]) -> None:
    known = layouts.get(bounds)
    layouts[bounds] = counts if known is None else tuple(map(add, known, counts))


def worst_first(layouts: Layouts, quantile: float) -> list[float]:
    """The quantile of each layout with new requests, in seconds, the largest first."""
    quantiles = (histogram_quantile(quantile, bounds, counts) for bounds, counts in layouts.items())
    return sorted((value for value in quantiles if not math.isnan(value)), reverse=True)


def propose_ttft(
    seconds: float, target_s: float, tolerance: Tolerance, current: int, view: View, telling: int
) -> Proposal:
    """`current * quantile / target`, with the tolerance.

    Starting replicas carry nothing yet, so on the way up they do not multiply: with r the others ask for r times
    themselves, and never for less than the count that is there (the 2-4-8-16 cascade while replicas load). On the way
    down a silent replica counts as just at the target, as the HPA has it for missing Pods.
    """
    usage, target = to_milli(seconds), to_milli(target_s)
    usage_ratio = ratio(float(usage), float(target))
    silent = view.expected - telling
    if silent and usage_ratio < 1.0:
        usage_ratio = (usage_ratio * telling + silent) / view.expected
    words = f"ttft: {seconds:.6g} s over {target_s:.6g} s at a count of {current} is a ratio of {usage_ratio:.6g}"
    if tolerance.within(usage_ratio):
        return Proposal(current, True, f"{words}, keeps {current} (within the tolerance)", usage)
    if usage_ratio > 1.0:
        replicas = max(current, whole_up(usage_ratio * float(max(1, current - view.counts.starting))))
    else:
        replicas = whole_up(usage_ratio * float(current))
    return Proposal(replicas, False, f"{words}, proposes {replicas}", usage)


def _growth(before: tuple[float, ...] | None, now: tuple[float, ...]) -> tuple[float, ...]:
    if before is None or any(map(lt, now, before)):
        return now
    return tuple(map(sub, now, before))
