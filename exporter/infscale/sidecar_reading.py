"""What `/api/v1/reading` answers: the replica's values, each engine with its state, and how the Pod stands. Pure.

`infscale.sidecar` gives what it saw; fleet sources (`infscale.fleet.peer`) and the retirement read the JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infscale.client_watch import ClientsSeen
from infscale.fleet.from_readings import buckets_of
from infscale.fleet.peer import ttft_json
from infscale.metrics.replica import ReplicaView
from infscale.reading import ASLEEP, FRESH, OK
from infscale.scrape_url import split_url
from infscale.watch import View

_COMPLETE = (OK, FRESH, ASLEEP)

NOW_S = 5.0
"""A read is one of now for so long: above the 2 s for which an engine's read is shared and the 2 s that it may take,
below what `--engine.min-interval` may be set to."""


@dataclass(frozen=True)
class PodIdentity:
    """Which Pod the sidecar is in, as the downward API tells it; None where it was not told."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


@dataclass(frozen=True)
class Standing:
    """How the Pod stands at the instant of a reading.

    Attributes:
        pod: which one it is.
        draining: it is terminating or withdrawn.
        withdrawn_until_s: the end of the withdrawal's lease, Unix seconds; None while it is in rotation.
        clients: connections of the engines' clients; None where they cannot be seen.
        now_s: Unix seconds.
    """

    pod: PodIdentity
    draining: bool
    withdrawn_until_s: float | None
    clients: ClientsSeen | None
    now_s: float


def reading_json(replica: ReplicaView, engines: Sequence[tuple[str, View]], standing: Standing) -> dict[str, Any]:
    """The JSON object.

    Args:
        replica: the engines' views as one.
        engines: each engine's URL and view.
        standing: of the Pod.
    """
    known = replica.models
    return {
        "state": replica.state,
        "message": replica.message,
        "up": replica.up,
        "inflight": replica.inflight,
        "running": _sum([model.running for model in known]),
        "waiting": _sum([model.waiting for model in known]),
        "kv": max((model.kv for model in known if model.kv is not None), default=None),
        "capacity": replica.capacity,
        "cpu_ratio": replica.cpu_ratio,
        "prompt_tokens": _sum([model.prompt_tokens for model in known]),
        "generation_tokens": _sum([model.generation_tokens for model in known]),
        "ttft": ttft_json(buckets_of(found.histogram for found in replica.histograms)),
        "draining": standing.draining,
        "withdrawn": standing.withdrawn_until_s is not None,
        "withdrawn_until": standing.withdrawn_until_s,
        "complete": all(_complete(view, standing.now_s) for _, view in engines),
        "read_at": replica.read_at_s,
        "pod": asdict(standing.pod),
        "models": [asdict(model) for model in known],
        "engines": [_engine(url, view) for url, view in engines],
        "client_connections": None if standing.clients is None else asdict(standing.clients),
        "warnings": list(replica.warnings),
    }


def _complete(view: View, now_s: float) -> bool:
    """Whether a read of now gave every gauge that the engine must have."""
    return view.state in _COMPLETE and view.read_at_s is not None and abs(now_s - view.read_at_s) <= NOW_S


def _engine(url: str, view: View) -> dict[str, Any]:
    """One engine; what it is stays as last known while reads fail."""
    known = view.known
    return {
        "url": url,
        "port": split_url(url).port,
        "engine": known.engine if known else None,
        "role": (known.role or None) if known else None,
        "started_at": known.start_time_s if known else None,
        "state": view.state,
        "message": view.message,
    }


def _sum(values: Sequence[float | None]) -> float | None:
    if not values or any(value is None for value in values):
        return None
    return sum(value for value in values if value is not None)
