"""The metrics of a replica's drains, from the sidecar beside its engine, as rows of the catalogue."""

from __future__ import annotations

from infscale.metrics.contract import COUNTER, DRAIN, GAUGE, HISTOGRAM, Label, Metric

DRAIN_MEANINGS = {
    "idle": "the engine was read idle twice in a row",
    "fresh": "the engine never served a request",
    "deadline": "the engine was still busy when the grace period left no more time",
    "refused": "nothing ever listened on the engine's port",
    "http": "the page answered with an HTTP error, and no client was connected any more",
    "tls": "no TLS connection to the page, and no client was connected any more",
    "gone": "the engine answered in this drain and then ended",
    "stale": "no client and no counter moved for `--drain-stale-after`, though a gauge was above 0",
}
"""What each `outcome` of a drain means."""

DRAIN_OUTCOME = Label("outcome", "of a drain: why it ended, see below", tuple(DRAIN_MEANINGS))

DRAIN_METRICS = (
    Metric(
        "infscale_draining",
        GAUGE,
        "1 once the replica's Pod is terminating, or while it is withdrawn, else 0. "
        "Its requests still show; no demand counts them.",
        group=DRAIN,
    ),
    Metric(
        "infscale_drains_total",
        COUNTER,
        "Drains of the engine that ended, by outcome, of the HTTP and of the exec form.",
        (DRAIN_OUTCOME,),
        group=DRAIN,
    ),
    Metric(
        "infscale_drain_duration_seconds",
        HISTOGRAM,
        "Seconds that a drain took.",
        (DRAIN_OUTCOME,),
        group=DRAIN,
    ),
    Metric(
        "infscale_drain_requests_cut_total",
        COUNTER,
        "Requests that were still in the engine when it ended after a drain. From its own gauges, at the last read.",
        (DRAIN_OUTCOME,),
        group=DRAIN,
    ),
)
"""In the order of the page."""
