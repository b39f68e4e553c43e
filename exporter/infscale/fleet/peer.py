"""What a peer's sidecar answers at `/api/v1/reading`, as a replica. Called by `survey` and by `single`.

The JSON is that of `infscale.sidecar`. A value that is no count is not taken for one: without a usable `inflight` the
replica is silent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from infscale.core.replicas import Buckets, Phase, Replica
from infscale.fleet.sighting import Sighting, silent
from infscale.reading import COUNT_LIMIT, LOADING, SATURATED, UNREACHABLE
from infscale.scrape import Page, ScrapeFailure

READING_PATH = "/api/v1/reading"

SIDECAR_PORT = 10047

MAX_BYTES = 256 * 1024
"""Of one reading; one with 30 buckets and two models has 4 kB."""

_MAX_BUCKETS = 500
_MAX_TEXT = 300
_STATUS_HINTS = {
    401: "it asks for credentials, which peers do not have: let Prometheus read it, with prometheus:URL",
    404: "no sidecar of infscale there, or an old one: check the port, or read the engine with --fleet.engine-port",
}


def sighting_of(name: str, answer: Page | ScrapeFailure) -> Sighting:
    """What a peer's answer, or the lack of one, tells of its replica."""
    if isinstance(answer, ScrapeFailure):
        # A sidecar answers while its engine loads: one that hangs was there before, also for a recommender that has
        # just begun and remembers nothing.
        hangs = _busy(answer)
        return silent(name, answer.message, state=SATURATED if hangs else UNREACHABLE, served_before=hangs)
    if answer.status != 200:
        hint = _STATUS_HINTS.get(answer.status, "expected 200 and a reading")
        return silent(name, f"HTTP {answer.status}: {hint}")
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        return silent(name, f"not JSON but {answer.body[:40]!r}: expected the reading of a sidecar")
    if not isinstance(told, dict):
        return silent(name, f"a JSON {type(told).__name__}: expected the reading of a sidecar")
    return sighting_of_reading(name, told)


def sighting_of_reading(name: str, told: Mapping[str, Any]) -> Sighting:
    """What the JSON object of a reading tells of its replica."""
    inflight = _number(told.get("inflight"))
    state, message = _text(told.get("state")) or UNREACHABLE, _text(told.get("message"))
    phase = Phase.STARTING if state == LOADING else Phase.SILENT
    if inflight is not None:
        phase = Phase.SERVING
    if told.get("draining") is True:
        phase = Phase.DRAINING
    served_before = _served_before(told.get("engines"))
    if inflight is None:
        if "inflight" not in told or told["inflight"] is not None:
            message = f"inflight is {_text(repr(told.get('inflight', 'missing')))}: expected a number, 0 or more"
        return Sighting(Replica(name, phase, state=state), message, served_before)
    replica = Replica(
        name,
        phase,
        running=_number(told.get("running")),
        waiting=_number(told.get("waiting")),
        inflight=inflight,
        kv=_number(told.get("kv")),
        cpu_ratio=_number(told.get("cpu_ratio")),
        prompt_tokens=_number(told.get("prompt_tokens")),
        generation_tokens=_number(told.get("generation_tokens")),
        ttft=_ttft(told.get("ttft")),
        state=state,
    )
    return Sighting(replica, message, served_before)


def ttft_json(histograms: Sequence[Buckets]) -> list[dict[str, list[Any]]]:
    """TTFT histograms as JSON has them; it has no infinity, so the last bound is the text that a page shows."""
    return [
        {"le": ["+Inf" if math.isinf(le) else le for le in found.bounds], "counts": list(found.counts)}
        for found in histograms
    ]


def _busy(failure: ScrapeFailure) -> bool:
    return failure.kind == "timeout" and failure.connected


def _number(value: object) -> float | None:
    """A count; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0 <= number < COUNT_LIMIT else None


def _text(value: object) -> str:
    """What another process says, for a message: printable, and not for ever."""
    text = value if isinstance(value, str) else ""
    return "".join(char if char.isprintable() else " " for char in text[:_MAX_TEXT])


def _served_before(engines: object) -> bool:
    """Whether each of its engines was read once: a sidecar names an engine only then."""
    return isinstance(engines, list) and bool(engines) and all(isinstance(e, dict) and e.get("engine") for e in engines)


def _ttft(told: object) -> tuple[Buckets, ...]:
    """The histograms that are ones; a broken one is left out, since it would be a wrong quantile."""
    if not isinstance(told, list):
        return ()
    return tuple(found for histogram in told[:10] if (found := _buckets(histogram)) is not None)


def _buckets(told: object) -> Buckets | None:
    if not isinstance(told, dict):
        return None
    bounds, counts = told.get("le"), told.get("counts")
    if not isinstance(bounds, list) or not isinstance(counts, list) or not 0 < len(bounds) <= _MAX_BUCKETS:
        return None
    try:
        les, totals = tuple(map(float, bounds)), tuple(map(float, counts))
    except (TypeError, ValueError, OverflowError):
        return None
    rising = all(low < high for low, high in pairwise(les)) and les[-1] == math.inf
    cumulative = all(0 <= low <= high < math.inf for low, high in pairwise((0.0, *totals)))
    return Buckets(les, totals) if rising and cumulative and len(les) == len(totals) else None
