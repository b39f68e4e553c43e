"""The metrics of one workload, from the recommender or a sidecar with a fleet source, as rows of the catalogue."""

from __future__ import annotations

from infscale.metrics.contract import COUNTER, GAUGE, HISTOGRAM, WORKLOAD, Label, Metric

DIRECTIONS = ("up", "down", "none")
"""What a decision does to the count."""

REASON_MEANINGS = {
    "metric": "the metric asks for just this count",
    "tolerance": "the load is within the tolerance of the target, so the count is kept",
    "stabilised": "a proposal of the last minutes still holds the count (the stabilisation window)",
    "rate_limited": "the scaling policies allow no faster change",
    "min": "the minimum of the policy",
    "max": "the maximum of the policy",
    "no_samples": "nothing was measured, so the count is kept",
    "partial_samples": "too few replicas gave a value, so the count is not lowered",
    "activate_from_zero": "requests are there and no replica is",
    "idle_to_zero": "no request was there for the whole cooldown",
    "cooldown": "no request is there, but the cooldown is not over",
    "lookahead": "the projected demand asks for more than the present one",
    "guard": "fewer replicas could not carry the present work",
    "disabled": "the policy does not scale this workload: its count is 0, and not by the policy",
    "error": "a metric could not be evaluated, so the count is kept",
}
"""What each `reason` of a decision means; the keys are those of `infscale.core.decision.Reason`."""

COUNT_MEANINGS = {
    "spec": "asked for (spec.replicas)",
    "ready": "ready, as Kubernetes says",
    "starting": "never ready yet: capacity on the way",
    "silent": "ready once, and gave no value at the last read",
    "draining": "leaving, with their last requests",
}
"""What each `state` of `infscale_replicas` means. Its values do not add up: a replica may be ready and silent."""

PAID_MEANINGS = {
    "serving": "gave a value at the last read",
    "starting": COUNT_MEANINGS["starting"],
    "silent": COUNT_MEANINGS["silent"],
    "draining": COUNT_MEANINGS["draining"],
}
"""What each `state` of `infscale_replica_seconds_total` means. Each replica is in one of them: they add up."""

NAMESPACE = Label("workload_namespace", "the workload's namespace")
NAME = Label("workload", "the workload's name; on a sidecar's page equal to the target label of that name")
NAMES = (NAMESPACE, NAME)
COUNT_STATE = Label(
    "state", "of `infscale_replicas`: which count; they overlap and do not add up", tuple(COUNT_MEANINGS)
)
PAID_STATE = Label(
    "state", "of `infscale_replica_seconds_total`: what the replica was; they add up", tuple(PAID_MEANINGS)
)
DIRECTION = Label("direction", "what a decision does to the count: `up`, `down` or `none`", DIRECTIONS)
REASON = Label("reason", "of a decision: why the count is what it is, see below", tuple(REASON_MEANINGS))

WORKLOAD_METRICS = (
    Metric(
        "infscale_recommended_replicas",
        GAUGE,
        "Replicas that the policy asks for now; whole. Absent until the workload's own replica count was read.",
        NAMES,
        group=WORKLOAD,
    ),
    Metric(
        "infscale_hpa_recommended_replicas",
        GAUGE,
        "Replicas that a plain HPA with the same target and limits would ask for now, from the same input.",
        NAMES,
        group=WORKLOAD,
    ),
    Metric(
        "infscale_workload_inflight_requests",
        GAUGE,
        "Requests in flight over all replicas that gave a value, and those held before them. Absent when none was"
        " measured; 0 without a replica only where spec.replicas was read and is 0.",
        NAMES,
        group=WORKLOAD,
    ),
    Metric(
        "infscale_workload_demand_requests",
        GAUGE,
        "Requests that the policy scales on: silent replicas are filled in with the target, held requests added.",
        NAMES,
        group=WORKLOAD,
    ),
    Metric(
        "infscale_target_inflight_requests",
        GAUGE,
        "Requests per replica that the policy aims at.",
        NAMES,
        group=WORKLOAD,
    ),
    Metric(
        "infscale_replicas",
        GAUGE,
        "Replicas of the workload by state; a count that was not read is absent.",
        (*NAMES, COUNT_STATE),
        group=WORKLOAD,
    ),
    Metric(
        "infscale_decision_reason",
        GAUGE,
        "Why the recommended count is what it is: 1 for the reason, 0 for the others.",
        (*NAMES, REASON),
        group=WORKLOAD,
    ),
    Metric(
        "infscale_decisions_total",
        COUNTER,
        "Evaluations, by what they did to the count and why.",
        (*NAMES, DIRECTION, REASON),
        group=WORKLOAD,
    ),
    Metric(
        "infscale_lookahead_demand_requests",
        GAUGE,
        "Requests that the demand is projected to be at the end of the lookahead; absent without a lookahead.",
        NAMES,
        group=WORKLOAD,
    ),
    Metric(
        "infscale_cold_start_seconds",
        HISTOGRAM,
        "Seconds from the creation of a replica to its first served read.",
        NAMES,
        group=WORKLOAD,
    ),
    Metric(
        "infscale_replica_seconds_total",
        COUNTER,
        "Seconds that replicas were there for, summed over the replicas, by state: what was paid for.",
        (*NAMES, PAID_STATE),
        group=WORKLOAD,
    ),
    Metric(
        "infscale_coverage_ratio",
        GAUGE,
        "Replicas that gave a value, of those that should, 0 to 1; 1 where none should.",
        NAMES,
        group=WORKLOAD,
    ),
    Metric(
        "infscale_evaluation_timestamp_seconds",
        GAUGE,
        "When the policy was last evaluated, in seconds since the Unix epoch.",
        NAMES,
        group=WORKLOAD,
    ),
    Metric(
        "infscale_state_resets_total",
        COUNTER,
        "How often the state file was unusable and was set aside.",
        NAMES,
        group=WORKLOAD,
    ),
)
"""In the order of the page."""
