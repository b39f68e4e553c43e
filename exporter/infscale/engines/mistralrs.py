"""mistral.rs. Read from `mistralrs-core/src/engine/` and `mistralrs-server-core/src/metrics.rs`.

Several models in one process overwrite each other's gauges. `http_requests_in_flight` overlaps and is not added.
"""

from __future__ import annotations

from infscale.engines.profile import Hints, Profile, metric

MISTRALRS = Profile(
    name="mistralrs",
    prefix="mistralrs",
    running=metric("sequences_running"),
    waiting=metric("sequences_waiting"),
    queues=(metric("requests_pending_admission"),),
    kv_parts=(metric("kv_cache_blocks_used"), metric("kv_cache_blocks_total")),
    generation_tokens=metric("tokens_processed_total"),
    finished=metric("sequences_completed_total"),
    rejected=metric("sequences_rejected_total"),
    outcome_labels=("reason",),
    progress=(metric("tokens_processed_total"),),
    capacity=metric("sequences_capacity"),
    histograms=(metric("time_to_first_token_seconds"), metric("inter_token_latency_seconds"), metric()),
    model_labels=("model_name", "model"),
    hints=Hints(disabled="start mistral.rs with its metrics on"),
)
