"""SGLang: unified, prefill and decode roles, data parallel, priority scheduling.

Read from `srt/metrics/collector.py` (up to 0.5.9) and `srt/observability/metrics_collector.py` (from 0.5.14).
What misleads there: tensor, pipeline and expert ranks publish copies of one gauge (sglang#31896 read 8 times the load),
while data-parallel ranks have requests of their own; with priority scheduling `priority=""` is the total beside its
parts; retracted requests are back in the queue already; tokens are counted at a request's end, only
`realtime_tokens_total` (0.5.6 and newer) moves meanwhile.
"""

from __future__ import annotations

from infscale.engines.profile import Hints, Profile, metric

SGLANG = Profile(
    name="sglang",
    prefix="sglang",
    running=metric("num_running_reqs"),
    waiting=metric("num_queue_reqs"),
    queues=(
        metric("num_grammar_queue_reqs"),
        # Prefill role: waiting for the handshake (named as the second up to 0.5.9), then sending KV (0.4.6 misspelt).
        metric("num_prefill_bootstrap_queue_reqs", "num_prefill_prealloc_queue_reqs"),
        metric("num_prefill_inflight_queue_reqs", "num_prefill_infight_queue_reqs"),
        # Decode role: before running. `num_decode_host_receive_queue_reqs` is a part of transfer.
        metric("num_decode_prealloc_queue_reqs"),
        metric("num_decode_transfer_queue_reqs"),
    ),
    sum_over=("dp_rank",),
    copies=frozenset(("tp_rank", "pp_rank", "moe_ep_rank", "pid")),
    only=(("priority", ("",)),),
    kv=metric("token_usage"),
    prompt_tokens=metric("prompt_tokens_total"),
    generation_tokens=metric("generation_tokens_total"),
    finished=metric("num_requests_total"),
    progress=(metric("realtime_tokens_total"),),
    served=(metric("time_to_first_token_seconds_count"), metric("num_aborted_requests_total")),
    histograms=(
        metric("time_to_first_token_seconds"),
        metric("inter_token_latency_seconds", "time_per_output_token_seconds"),
        metric("queue_time_seconds", "queue_time_s"),
    ),
    role_label="engine_type",
    hints=Hints(
        not_found="start SGLang with --enable-metrics; a node that is not the first has no metrics page",
        disabled="start SGLang with --enable-metrics",
    ),
)
