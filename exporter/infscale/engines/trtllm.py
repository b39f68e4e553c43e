"""TensorRT-LLM's own server, 1.3 and newer. Read from `tensorrt_llm/metrics/collector.py`.

Its gauges are refreshed only when a request completes, so no counter is live and nothing is ever called stale.
`/metrics` there is JSON that a read empties; the Prometheus page is `/prometheus/metrics`.
"""

from __future__ import annotations

from infscale.engines.profile import Hints, Profile, metric

TRTLLM = Profile(
    name="trtllm",
    prefix="trtllm",
    running=metric("num_requests_running"),
    waiting=metric("num_requests_waiting"),
    queues=(metric("num_paused_requests"),),
    kv=metric("kv_cache_utilization"),
    prompt_tokens=metric("prompt_tokens_total"),
    generation_tokens=metric("generation_tokens_total"),
    finished=metric("request_success_total"),
    capacity=metric("max_num_active_requests"),
    histograms=(
        metric("time_to_first_token_seconds"),
        metric("inter_token_latency_seconds", "time_per_output_token_seconds"),
        metric("request_queue_time_seconds"),
    ),
    hints=Hints(
        not_found="read /prometheus/metrics and start trtllm-serve with return_perf_metrics",
        disabled="start trtllm-serve with return_perf_metrics and enable_iter_perf_stats",
    ),
)
