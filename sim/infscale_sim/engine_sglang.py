"""SGLang's page and ways, from 0.4.3 to 0.5.23.

Names, labels and bounds as `srt/metrics/collector.py` (up to 0.5.9) and `srt/observability/metrics_collector.py` have
them, held against pages of those versions in the tests. Tokens count at a request's end only. The live counter
`realtime_tokens_total` is left out: no page at hand shows its labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from infscale_sim.engine_dialect import Dialect, State, Version, parse_version
from infscale_sim.engine_page import Labels, Page
from infscale_sim.engine_stats import Bounds

DEFAULT_VERSION = "0.5.23"
_GAPS_MS = (2, 4, 6, 8, 10, 15, 20, 25, 30, 35, 40, 60, 80, 100, 200, 400, 600, 800, 1000, 2000, 4000, 6000, 8000)
_GAPS = tuple(gap / 1000 for gap in _GAPS_MS)
_FIRST = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
_OLDEST = Bounds(
    first_token=(0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 120.0, 160.0),
    inter_token=(0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5),
    whole=(0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 120.0, 160.0),
)


def sglang(version: str) -> Dialect:
    """Return SGLang of a version: `0.5.23`, `0.4.6.post5`."""
    numbers = parse_version(version, DEFAULT_VERSION)
    whole = (*_FIRST, 800.0) if numbers < (0, 5) else (*_FIRST, 600.0, 1200.0, 1800.0, 2400.0)
    return Dialect(
        name="sglang",
        bounds=_OLDEST if numbers < (0, 4, 4) else Bounds(_FIRST, _GAPS, (), whole),
        new_page=Page,
        write=partial(_write, numbers),
        content_type="text/plain; version=0.0.4; charset=utf-8",
        port=30000,
        on_sigterm="drain",  # the watchdog waits without limit for rid_to_state to be empty (tokenizer_manager.py)
        drains_open=True,
        health_falls=numbers >= (0, 5),
        checks_model=False,
        open_paths=lambda path: path in ("/metrics", "/health"),
        health_body=b"",
        owner="sglang",
    )


def _write(version: Version, page: Page, state: State) -> None:
    labels = {"model_name": state.model}
    if version >= (0, 4, 4):
        labels["engine_type"] = "unified"
    _gauges(version, page, state, labels)
    split = version >= (0, 5, 23)
    _counters(page, state, labels, split=split)
    _histograms(version, page, state, labels, split=split)


def _gauges(version: Version, page: Page, state: State, labels: Mapping[str, str]) -> None:
    ranked = dict(labels)
    if version >= (0, 4, 9):
        ranked |= {"tp_rank": "0", "pp_rank": "0"}
    if version >= (0, 5, 6):
        ranked["moe_ep_rank"] = "0"
    batch = state.batch
    page.gauge("sglang:num_running_reqs", "The number of running requests.", len(batch.running), ranked)
    page.gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.", len(batch.waiting), ranked)
    page.gauge("sglang:token_usage", "The token usage.", batch.kv_ratio, ranked)
    if version < (0, 4, 4):
        return
    queues = [
        "num_grammar_queue_reqs",
        "num_prefill_prealloc_queue_reqs" if version < (0, 5, 14) else "num_prefill_bootstrap_queue_reqs",
        "num_prefill_infight_queue_reqs" if version < (0, 5) else "num_prefill_inflight_queue_reqs",
        "num_decode_prealloc_queue_reqs",
        "num_decode_transfer_queue_reqs",
    ]
    for name in queues:
        page.gauge(f"sglang:{name}", f"The number of requests in the queue {name}.", 0, ranked)


def _counters(page: Page, state: State, labels: Mapping[str, str], *, split: bool) -> None:
    stats = state.batch.stats
    requests: Counter[bool] = Counter()
    for (_, streaming), count in stats.finished_requests.items():
        requests[streaming] += count
    for name, text, values in (
        ("prompt_tokens", "Number of prefill tokens processed.", stats.prompt_tokens_done),
        ("generation_tokens", "Number of generation tokens processed.", stats.generation_tokens_done),
        ("num_requests", "Number of requests processed.", requests),
    ):
        series = _by_streaming(labels, values, split=split, shown=False)
        page.counter_family(f"sglang:{name}_total", text, series)


def _histograms(version: Version, page: Page, state: State, labels: Mapping[str, str], *, split: bool) -> None:
    stats = state.batch.stats
    series = _by_streaming(labels, stats.first_token_s, split=split, shown=True)
    page.histogram("sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.", series)
    name = "time_per_output_token_seconds" if version < (0, 4, 4) else "inter_token_latency_seconds"
    page.histogram(f"sglang:{name}", "Histogram of time between tokens in seconds.", [(labels, stats.inter_token_s)])
    series = _by_streaming(labels, stats.whole_s, split=split, shown=False)
    page.histogram("sglang:e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", series)


def _by_streaming(labels: Labels, values: Mapping[bool, Any], *, split: bool, shown: bool) -> list[tuple[Labels, Any]]:
    """Return one series per value of `is_streaming` where the version has that label, else one series of both.

    Args:
        labels: of all series.
        values: numbers or histograms, by whether the client reads a stream.
        split: whether the version has the label.
        shown: the value of the label whose series is there from the start; the other appears with its first request.
    """
    if not split:
        return [(labels, values[True] + values[False])]
    return [
        ({**labels, "is_streaming": str(streaming).lower()}, values[streaming])
        for streaming in (False, True)
        if streaming == shown or values[streaming]
    ]
