"""Replicas in each state and of each kind, as the views that a sidecar would have of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from infscale import reading as states
from infscale.metrics.collectors import ReplicaCollector, Settings
from infscale.reading import Histogram, ModelReading, Reading
from infscale.watch import View

READ_AT_S = 1_760_000_000.25
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"

VLLM = Reading(
    engine="vllm",
    state=states.OK,
    models=(
        ModelReading(
            model=LLAMA,
            running=5.0,
            waiting=3.0,
            inflight=8.0,
            kv=0.47,
            prompt_tokens=12_000.0,
            generation_tokens=3_456_789.0,
            finished=(("stop", 20.0), ("length", 4.0), ("abort", 0.0)),
        ),
    ),
)
HISTOGRAMS = (
    Histogram("time_to_first_token", LLAMA, ((0.001, 0.0), (0.25, 11.0), (1.0, 12.0), (math.inf, 13.0)), 4.125),
    Histogram("inter_token_latency", LLAMA, ((0.01, 2.0), (0.025, 185.0), (math.inf, 200.0)), 5.5),
    Histogram("request_queue", LLAMA, ((0.3, 0.0), (60.0, 24.0), (math.inf, 24.0)), 250.0),
)


def view(reading: Reading = VLLM, **more: object) -> View:
    """A view of a good read of `reading`, with `more` fields changed."""
    good = View(reading.state, reading, READ_AT_S, known=reading, scrape_duration_s=0.004)
    return replace(good, **more)  # type: ignore[arg-type]


def failed(state: str, message: str, known: Reading | None = VLLM, **more: object) -> View:
    """A view without values."""
    return replace(View(state, None, None, message, known, scrape_duration_s=0.002), **more)  # type: ignore[arg-type]


def model(name: str, running: float, waiting: float, **more: object) -> ModelReading:
    """A model with requests, and `more` fields changed."""
    return replace(ModelReading(name, running, waiting, running + waiting), **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Case:
    """What a sidecar knows at an instant, and the flags that it runs with."""

    views: tuple[View, ...]
    failures: dict[str, float] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)

    def collector(self) -> ReplicaCollector:
        """The collector that such a sidecar has."""
        return ReplicaCollector(lambda: self.views, lambda: self.failures, self.settings)


FRESH = Reading("vllm", states.FRESH, (model("", 0.0, 0.0),))
SGLANG = Reading(
    "sglang", states.OK, (model("qwen", 4.0, 2.0, kv=0.25, prompt_tokens=70.0, generation_tokens=90.0),), role="decode"
)
RANKS = (
    replace(VLLM, histograms=HISTOGRAMS, capacity=256.0, cpu_s=10.0),
    replace(VLLM, models=(model(LLAMA, 7.0, 0.0, kv=0.9),), histograms=HISTOGRAMS[:1], capacity=256.0),
)

CASES = {
    "ok": Case(
        (view(replace(VLLM, histograms=HISTOGRAMS, capacity=256.0), cpu_ratio=0.75),),
        {"timeout": 2, "refused": 1},
    ),
    "fresh": Case((view(FRESH, message="the engine never served a request yet"),)),
    "asleep": Case((view(replace(VLLM, state=states.ASLEEP, models=(model(LLAMA, 0.0, 0.0, kv=0.0),))),)),
    "loading": Case((failed(states.LOADING, "refused", known=None),), {"refused": 9}),
    "saturated": Case((failed(states.SATURATED, "timed out on an open port"),), {"timeout": 3}),
    "saturated-held": Case((view(state=states.SATURATED, message="showing the values of 12 s ago"),), {"timeout": 3}),
    "stale": Case((view(state=states.STALE, message="8 requests in flight, but no counter moved for 130 s"),)),
    "stats-disabled": Case(
        (failed(states.STATS_DISABLED, "start vLLM without --disable-log-stats", known=None),), {"missing": 4}
    ),
    "misconfigured": Case((failed(states.MISCONFIGURED, "HTTP 401: give the API key", known=None),), {"http": 4}),
    "not-an-engine": Case((failed(states.NOT_AN_ENGINE, "a router's page", known=None),), {"not_metrics": 1}),
    "unreachable": Case((failed(states.UNREACHABLE, "connection reset"),), {"reset": 1}),
    "several-models": Case(
        (
            view(
                Reading(
                    "triton",
                    states.OK,
                    (model("chat", 2.0, 1.0), model('say "hi"\\n', 0.0, 0.0), model("two\nlines", 1.0, 0.0)),
                )
            ),
        )
    ),
    "model-name": Case(
        (view(Reading("triton", states.OK, (model("chat", 2.0, 1.0, kv=0.5), model("code", 3.0, 0.0, kv=0.25)))),),
        settings=Settings(model_name="both"),
    ),
    "total-only": Case((view(Reading("dynamo", states.OK, (ModelReading("qwen", None, None, 9.0),))),)),
    "several-engines": Case(tuple(map(view, RANKS)), {"timeout": 1}),
    "one-of-two-silent": Case((view(), failed(states.UNREACHABLE, "connection reset", known=RANKS[1]))),
    "two-kinds-of-engine": Case((view(replace(VLLM, histograms=HISTOGRAMS)), view(SGLANG))),
    "no-histograms": Case(
        (view(replace(VLLM, histograms=HISTOGRAMS)),), settings=Settings(capacity=32.0, histograms=False)
    ),
    "rejected": Case(
        (view(Reading("llama.cpp", states.OK, (model("", 2.0, 3.0, rejected=(("queue_full", 7.0),)),), capacity=4.0)),)
    ),
    "unusable": Case(
        (
            view(
                Reading(
                    "vllm",
                    states.OK,
                    (model(LLAMA, 1.0, 1.0, kv=math.nan, prompt_tokens=math.inf, generation_tokens=-1.0),),
                    histograms=(replace(HISTOGRAMS[0], sum_s=math.nan),),
                ),
                cpu_ratio=math.nan,
            ),
        )
    ),
}
"""Each state of a replica and each kind of engine, by the name of its golden file."""
