"""What a member's page says, from its series alone: the engine's own page, or the sidecar's. Pure.

Whoever read the page may have claimed anything; here only what stands on it counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from infscale.engines import PROFILES
from infscale.errors import ExpositionError
from infscale.exposition import Sample, parse
from infscale.normalise import read_page
from infscale.reading import ASLEEP, COUNT_LIMIT, FRESH, OK, ReadFailure

INFLIGHT, UP, ENGINE_STATE = "infscale_inflight_requests", "infscale_up", "infscale_engine_state"
_PARTS = ("infscale_running_requests", "infscale_waiting_requests")
_COUNTERS = frozenset((
    "infscale_prompt_tokens_total", "infscale_generation_tokens_total", "infscale_finished_requests_total",
    "infscale_rejected_requests_total", "infscale_time_to_first_token_seconds_count",
))  # fmt: skip
"""What moves on the sidecar's page when a request comes or goes."""


@dataclass(frozen=True, slots=True)
class Series:
    """What the page shows.

    Attributes:
        inflight: requests in flight, all label sets summed; None where `fault` says why it is not known.
        counters: a digest of the monotonic counters; equal on two pages means that nothing came or went between them.
        engine: whose page it is, where it is an engine's own.
        role: `prefill` or `decode` where it says so.
        started_at_s: the engine's start, Unix seconds, where the page tells.
        fault: what is missing or unusable.
        not_metrics: it is no metrics page at all, so that nothing was measured.
    """

    inflight: float | None
    counters: str = ""
    engine: str = ""
    role: str = ""
    started_at_s: float | None = None
    fault: str = ""
    not_metrics: bool = False


def read_series(body: bytes, engine: str) -> Series:
    """The series of a page.

    Args:
        body: the page.
        engine: the profile's name of the engine that the container runs.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        return Series(None, fault=f"byte {error.start} is not UTF-8", not_metrics=True)
    if any(line.startswith(("infscale_", "# TYPE infscale_")) for line in text.splitlines()):
        return _sidecar_page(text)
    return _engine_page(text, engine)


def _engine_page(text: str, engine: str) -> Series:
    found = read_page(text, profile=PROFILES[engine], source="the member's page")
    if isinstance(found, ReadFailure):
        return Series(None, fault=found.message, not_metrics=found.reason == "not_metrics")
    counters = digest(f"{name} {value!r}" for name, value in found.counters)
    return Series(found.inflight, counters, found.engine, found.role, found.start_time_s)


def _sidecar_page(text: str) -> Series:
    try:
        samples = parse(text, "the member's page")
    except ExpositionError as error:
        return Series(None, fault=str(error), not_metrics=True)
    counted = [sample for sample in samples if sample.name == INFLIGHT or sample.name in _PARTS]
    for sample in counted:  # what is unusable is told before what is missing
        if not 0 <= sample.value < COUNT_LIMIT:
            return Series(None, fault=f"{sample.name} is {sample.value:g}: expected a number of requests, 0 or more")
    if lack := _lack(samples):
        return Series(None, fault=lack)
    inflight = sum(sample.value for sample in counted if sample.name == INFLIGHT)
    parts = sum(sample.value for sample in counted if sample.name in _PARTS)
    counters = digest(f"{s.name} {sorted(s.labels.items())} {s.value!r}" for s in samples if s.name in _COUNTERS)
    return Series(max(inflight, parts), counters)


def _lack(samples: list[Sample]) -> str:
    """The series that says that the engine was measured, and is not there or says otherwise; empty if all is well."""
    if [sample.value for sample in samples if sample.name == UP] != [1.0]:
        return f"{UP} is not 1: the sidecar's last read of its engine failed"
    states = {s.labels.get("state", "") for s in samples if s.name == ENGINE_STATE and s.value == 1}
    if len(states) != 1 or not states <= {OK, FRESH, ASLEEP}:
        return f"{ENGINE_STATE} is {', '.join(sorted(states)) or 'missing'}: expected ok, fresh or asleep"
    if not any(sample.name == INFLIGHT for sample in samples):
        return f"{INFLIGHT} is missing"
    return ""


def digest(lines: Iterable[str]) -> str:
    """A short text that differs where the lines do."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]
