"""From a metrics page to a Reading: an engine profile applied to the samples of one page.

Both outcomes are values: a `Reading` (states `ok`, `fresh`, `asleep`) or a `ReadFailure` that says why there is none.
What several reads of one engine mean together (hold, stale, restart) is `infscale.watch`; what an HTTP answer means
besides its page is `infscale.outcome`. How label sets combine stands in `infscale.combine`.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

OK = "ok"
FRESH = "fresh"
ASLEEP = "asleep"
LOADING = "loading"
SATURATED = "saturated"
STALE = "stale"
STATS_DISABLED = "stats_disabled"
MISCONFIGURED = "misconfigured"
NOT_AN_ENGINE = "not_an_engine"
UNREACHABLE = "unreachable"
STATES = (
    OK, FRESH, ASLEEP, LOADING, SATURATED, STALE, STATS_DISABLED, MISCONFIGURED, NOT_AN_ENGINE, UNREACHABLE,
)  # fmt: skip
"""Every state of `infscale_engine_state`, in the order of the table in docs/states.md."""

FAILURES = ("refused", "timeout", "reset", "http", "tls", "too_large", "not_metrics", "missing", "unusable")
"""Every `reason` of `infscale_scrape_failures_total`."""

COUNT_LIMIT = 2.0**53
"""No count of requests or tokens, and no time in seconds, is as large: from here on float64 does not tell n from n + 1,
and sums over series, ranks or replicas might become infinite. Such a value is no count, as NaN is none."""


@dataclass(frozen=True)
class ModelReading:
    """One model's share of a reading. Counts are requests or tokens; None where the engine does not tell."""

    model: str
    running: Optional[float]
    waiting: Optional[float]
    inflight: float
    kv: Optional[float] = None
    prompt_tokens: Optional[float] = None
    generation_tokens: Optional[float] = None
    finished: Tuple[Tuple[str, float], ...] = ()
    rejected: Tuple[Tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Histogram:
    """One of the engine's own histograms, summed over its ranks.

    Attributes:
        kind: `time_to_first_token`, `inter_token_latency` or `request_queue`.
        model: the model's name.
        buckets: (`le` as a number, cumulative count), ascending, the last one at +Inf.
        sum_s: sum of the observed seconds.
    """

    kind: str
    model: str
    buckets: Tuple[Tuple[float, float], ...]
    sum_s: float


@dataclass(frozen=True)
class Reading:
    """What one page of one engine says.

    Attributes:
        engine: the profile's name.
        state: `ok`, `fresh` or `asleep`.
        models: one entry for each model name on the page, at least one.
        role: `prefill`, `decode` or empty.
        capacity: slots, where the page tells.
        counters: monotonic counters (finished requests, tokens, live progress) as (name, value): equal on two reads
            means that nothing came or went between them; one that fell means a restart.
        live: whether `counters` has one that moves while requests are worked on; without it nothing is ever `stale`.
        start_time_s: the process's start, Unix seconds, where the page tells.
        cpu_s: CPU seconds used by the engine's process, where the page tells.
        histograms: the engine's own, where asked for.
        warnings: sentences for a person.
    """

    engine: str
    state: str
    models: Tuple[ModelReading, ...]
    role: str = ""
    capacity: Optional[float] = None
    counters: Tuple[Tuple[str, float], ...] = ()
    live: bool = False
    start_time_s: Optional[float] = None
    cpu_s: Optional[float] = None
    histograms: Tuple[Histogram, ...] = ()
    warnings: Tuple[str, ...] = ()

    @property
    def running(self) -> Optional[float]:
        """Requests being worked on, over all models; None where the engine tells only a total."""
        return _total(tuple(model.running for model in self.models))

    @property
    def waiting(self) -> Optional[float]:
        """Requests in the engine's queues, over all models; None where the engine tells only a total."""
        return _total(tuple(model.waiting for model in self.models))

    @property
    def inflight(self) -> float:
        """Running + waiting, over all models: the normalised metric."""
        return sum(model.inflight for model in self.models)

    @property
    def kv(self) -> Optional[float]:
        """KV cache use of the fullest model, 0 to 1; None where the engine does not tell."""
        return max((model.kv for model in self.models if model.kv is not None), default=None)

    @property
    def prompt_tokens(self) -> Optional[float]:
        """The engine's counter of prompt tokens, over all models."""
        return _total(tuple(model.prompt_tokens for model in self.models))

    @property
    def generation_tokens(self) -> Optional[float]:
        """The engine's counter of generated tokens, over all models."""
        return _total(tuple(model.generation_tokens for model in self.models))


@dataclass(frozen=True)
class ReadFailure:
    """Why a read of an engine gave no values.

    Attributes:
        state: one of STATES other than `ok`, `fresh`, `asleep`, `stale`.
        reason: one of FAILURES.
        message: one line: what happened, what was expected, the flag to set.
        engine: the engine's name where the page told it, else empty.
    """

    state: str
    reason: str
    message: str
    engine: str = ""


def _total(values: Tuple[Optional[float], ...]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
