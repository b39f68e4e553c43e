"""vLLM: V0 (up to 0.8), V1, its Rust front end, Ray's and KServe's renamed pages, llm-d's simulator.

Read from `vllm/engine/metrics.py` (V0) and `vllm/v1/metrics/loggers.py` (V1). What misleads there:
`num_requests_waiting_by_reason` splits `num_requests_waiting` and is never added; V0 alone has `num_requests_swapped`
(preempted sequences return to waiting in V1); 0.9 and 0.10 publish the KV gauge under two names; a production-stack
router reuses the names with a label `server`.
"""

from __future__ import annotations

from infscale.engines.profile import Hints, Profile, metric

VLLM = Profile(
    name="vllm",
    prefix="vllm",
    running=metric("num_requests_running"),
    waiting=metric("num_requests_waiting"),
    queues=(metric("num_requests_swapped"),),
    sum_over=("engine", "ReplicaId", "WorkerId"),
    replica_label="ReplicaId",
    not_engine=("server",),
    kv=metric("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    prompt_tokens=metric("prompt_tokens_total"),
    generation_tokens=metric("generation_tokens_total"),
    finished=metric("request_success_total"),
    rejected=metric("admission_rejections_total"),
    outcome_labels=("finished_reason", "finish_reason", "reason"),
    progress=(metric("iteration_tokens_total_count"), metric("generation_tokens_total")),
    served=(metric("time_to_first_token_seconds_count"), metric("e2e_request_latency_seconds_count")),
    sleep=(metric("engine_sleep_state"), "sleep_state", "awake"),
    histograms=(
        metric("time_to_first_token_seconds"),
        metric("inter_token_latency_seconds", "time_per_output_token_seconds"),
        metric("request_queue_time_seconds"),
    ),
    hints=Hints(
        not_found="no metrics at this path: vLLM serves them at /metrics of its API port",
        disabled="start vLLM without --disable-log-stats: with it the page has no engine metrics",
    ),
)
