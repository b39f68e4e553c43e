"""LMDeploy. Read from `lmdeploy/metrics/loggers.py`.

`num_api_requests_routed` is running + waiting and is not added; `num_api_requests_waiting` is the queue before the
engine and is. `num_requests_succeeded` and `_failed` are gauges that only grow.
"""

from __future__ import annotations

from infscale.engines.profile import Hints, Profile, metric

LMDEPLOY = Profile(
    name="lmdeploy",
    prefix="lmdeploy",
    running=metric("num_requests_running"),
    waiting=metric("num_requests_waiting"),
    queues=(metric("num_api_requests_waiting"),),
    sum_over=("engine",),
    kv=metric("gpu_cache_usage_perc"),
    prompt_tokens=metric("prompt_tokens_total"),
    generation_tokens=metric("generation_tokens_total"),
    finished=metric("request_success_total"),
    progress=(metric("iteration_tokens_total_count"), metric("generation_tokens_total")),
    histograms=(
        metric("time_to_first_token_seconds"),
        metric("iter_token_latency", "time_per_output_token_seconds"),
        metric("request_queue_time_seconds"),
    ),
    hints=Hints(
        not_found="start LMDeploy with --enable-metrics (on by default since November 2025)",
        unauthorized="LMDeploy wants one of its --api-keys on /metrics too: give it with --engine.token-file",
        disabled="start LMDeploy without --disable-metrics",
    ),
)
