"""Dynamo's front end. `dynamo_frontend_inflight_requests` is the total already; `queued_requests` overlaps with it.

A Dynamo worker's own page passes its engine's series through and is read as that engine.
"""

from __future__ import annotations

from infscale.engines.profile import Profile, metric

DYNAMO = Profile(
    name="dynamo",
    prefix="dynamo_frontend",
    total=metric("inflight_requests"),
    finished=metric("requests_total"),
    outcome_labels=("status",),
    capacity=metric("model_max_num_seqs"),
    histograms=(metric("time_to_first_token_seconds"), metric("inter_token_latency_seconds"), metric()),
    model_labels=("model_name", "model"),
)
