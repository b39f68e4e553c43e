"""vLLM's page and ways, from 0.6 (V0) to 0.33.

Names, labels and bounds as `vllm/engine/metrics.py` (V0) and `vllm/v1/metrics/loggers.py` (V1) have them, held against
pages of those versions in the tests. The tokens of a prompt count with its first token, generated ones one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from infscale_sim.engine_dialect import Dialect, State, Version, parse_version
from infscale_sim.engine_page import Page
from infscale_sim.engine_stats import Bounds

DEFAULT_VERSION = "0.33.0"
_TEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_GAPS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_MINUTE = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
_HOURS = (*_MINUTE, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
_V0 = Bounds(_TEN, _GAPS, _MINUTE, _MINUTE)
_V1 = Bounds(
    (*_TEN, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0), (*_GAPS, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0), _HOURS, _HOURS
)


def vllm(version: str) -> Dialect:
    """Return vLLM of a version: `0.33.0`, `0.8.5.post1`; V0 before 0.8."""
    numbers = parse_version(version, DEFAULT_VERSION)
    return Dialect(
        name="vllm",
        bounds=_V0 if numbers < (0, 8) else _V1,
        new_page=Page,
        write=partial(_write, numbers),
        content_type="text/plain; version=1.0.0; charset=utf-8",
        port=8000,
        on_sigterm="abort",  # --shutdown-timeout is 0 unless set (vllm/config/vllm.py)
        drains_open=False,
        health_falls=False,
        checks_model=True,
        open_paths=lambda path: not path.startswith("/v1"),
        health_body=b"",
        owner="vllm",
    )


def _write(version: Version, page: Page, state: State) -> None:
    labels = {"model_name": state.model} | ({} if version < (0, 8) else {"engine": "0"})
    if version >= (0, 8):  # V0's server collects from several processes, and then there is no process_*
        _process(page, state)
    _gauges(version, page, state, labels)
    _counters(version, page, state, labels)
    _histograms(version, page, state, labels)


def _process(page: Page, state: State) -> None:
    """What prometheus_client says of the one process."""
    page.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", state.cpu_s)
    text = "Start time of the process since unix epoch in seconds."
    page.gauge("process_start_time_seconds", text, state.start_unix_s)


def _gauges(version: Version, page: Page, state: State, labels: Mapping[str, str]) -> None:
    batch = state.batch
    waiting = len(batch.waiting)
    page.gauge(
        "vllm:num_requests_running", "Number of requests in model execution batches.", len(batch.running), labels
    )
    page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", waiting, labels)
    if version < (0, 8):
        page.gauge("vllm:num_requests_swapped", "Number of requests swapped to CPU.", 0, labels)
    if version >= (0, 20):
        split = [({**labels, "reason": "capacity"}, waiting), ({**labels, "reason": "deferred"}, 0)]
        page.gauge_family("vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason.", split)
    if version >= (0, 11, 2):
        states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        series = [({**labels, "sleep_state": name}, value) for name, value in states.items()]
        page.gauge_family("vllm:engine_sleep_state", "Engine sleep state.", series)
    if version < (0, 11):
        page.gauge("vllm:gpu_cache_usage_perc", "GPU KV-cache usage, 1 is all of it.", batch.kv_ratio, labels)
    if version >= (0, 9):
        page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", batch.kv_ratio, labels)


def _counters(version: Version, page: Page, state: State, labels: Mapping[str, str]) -> None:
    stats = state.batch.stats
    text = "Cumulative number of preemption from the engine."
    page.counter("vllm:num_preemptions_total", text, stats.preemptions, labels)
    page.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", stats.prompt_tokens, labels)
    text = "Number of generation tokens processed."
    page.counter("vllm:generation_tokens_total", text, stats.generation_tokens, labels)
    reasons = ["stop", "length", "abort"]
    reasons += ["error"] if version >= (0, 13) else []
    reasons += ["repetition"] if version >= (0, 20) else []
    if version < (0, 8):  # a reason's series appears with the first such request
        reasons = sorted({"stop"} | {reason for reason, _ in stats.finished_requests})
    counts = dict.fromkeys(reasons, 0)
    for (reason, _), count in stats.finished_requests.items():
        counts[reason] += count
    series = [({**labels, "finished_reason": reason}, count) for reason, count in counts.items()]
    page.counter_family("vllm:request_success_total", "Count of successfully processed requests.", series)
    if version >= (0, 33):
        refused = [
            ({"model_name": state.model, "reason": reason}, 0)
            for reason in ("max_num_queued_reqs", "max_num_queued_tokens")
        ]
        page.counter_family("vllm:admission_rejections_total", "Requests rejected by admission control.", refused)


def _histograms(version: Version, page: Page, state: State, labels: Mapping[str, str]) -> None:
    stats = state.batch.stats
    if version >= (0, 8):
        text = "Histogram of number of tokens per engine_step."
        page.histogram("vllm:iteration_tokens_total", text, [(labels, stats.iteration_tokens)])
    text = "Histogram of time to first token in seconds."
    both = stats.first_token_s[True] + stats.first_token_s[False]
    page.histogram("vllm:time_to_first_token_seconds", text, [(labels, both)])
    if version < (0, 12):
        text = "Histogram of time per output token in seconds."
        page.histogram("vllm:time_per_output_token_seconds", text, [(labels, stats.inter_token_s)])
    if version >= (0, 10):
        text = "Histogram of inter-token latency in seconds."
        page.histogram("vllm:inter_token_latency_seconds", text, [(labels, stats.inter_token_s)])
    text = "Histogram of e2e request latency in seconds."
    both = stats.whole_s[True] + stats.whole_s[False]
    page.histogram("vllm:e2e_request_latency_seconds", text, [(labels, both)])
    text = "Histogram of time spent in WAITING phase for request."
    page.histogram("vllm:request_queue_time_seconds", text, [(labels, stats.queue_s)])
