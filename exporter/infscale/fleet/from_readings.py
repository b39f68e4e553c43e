"""Replicas out of readings of engines: a page that was read, or the reason why there is none, as a decision sees it.

`infscale decide SOURCE...` makes its Fleet with `replica_of`; the sidecar puts `buckets_of` into its JSON, and
`engines` reads engines without a sidecar with `replica_of_view`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from infscale.core.replicas import Buckets, Phase, Replica
from infscale.reading import LOADING, Histogram, ReadFailure, Reading
from infscale.watch import View

TTFT = "time_to_first_token"


def replica_of(
    name: str, outcome: Reading | ReadFailure, *, state: str = "", cpu_ratio: float | None = None
) -> Replica:
    """One read of one engine as a replica: SERVING with its values, STARTING while it loads, else SILENT.

    Args:
        name: unique in the workload.
        outcome: what the read gave.
        state: the state to show instead of the reading's own (`stale`, `saturated`).
        cpu_ratio: CPU over the Pod's request, where two reads told it.
    """
    if isinstance(outcome, ReadFailure):
        return Replica(name, Phase.STARTING if outcome.state == LOADING else Phase.SILENT, state=outcome.state)
    return Replica(
        name,
        Phase.SERVING,
        running=outcome.running,
        waiting=outcome.waiting,
        inflight=outcome.inflight,
        kv=outcome.kv,
        cpu_ratio=cpu_ratio,
        prompt_tokens=outcome.prompt_tokens,
        generation_tokens=outcome.generation_tokens,
        ttft=buckets_of(outcome.histograms),
        state=state or outcome.state,
    )


def replica_of_view(name: str, view: View) -> Replica:
    """What a watched engine shows now as a replica."""
    if view.reading is None:
        return replica_of(name, ReadFailure(view.state, "", view.message))
    return replica_of(name, view.reading, state=view.state, cpu_ratio=view.cpu_ratio)


def buckets_of(histograms: Iterable[Histogram]) -> tuple[Buckets, ...]:
    """The TTFT histograms among these, those of one bucket layout added up (models of one engine share theirs)."""
    merged: dict[tuple[float, ...], list[float]] = {}
    for histogram in histograms:
        if histogram.kind == TTFT:
            add_buckets(merged, histogram.buckets)
    return buckets_from(merged)


def add_buckets(merged: dict[tuple[float, ...], list[float]], buckets: Iterable[tuple[float, float]]) -> None:
    """Add a histogram, as (`le`, cumulative count) ascending, to those of its layout."""
    pairs = tuple(buckets)
    bounds = tuple(le for le, _ in pairs)
    sums = merged.setdefault(bounds, [0.0] * len(bounds))
    for position, (_, count) in enumerate(pairs):
        sums[position] += count


def buckets_from(merged: dict[tuple[float, ...], list[float]]) -> tuple[Buckets, ...]:
    """What was added up, one for each layout."""
    return tuple(Buckets(bounds, tuple(counts)) for bounds, counts in merged.items())
