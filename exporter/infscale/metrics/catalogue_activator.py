"""The metrics of an activator, which holds requests while no replica is ready, as rows of the catalogue."""

from __future__ import annotations

from infscale.metrics.catalogue_workload import NAMES
from infscale.metrics.contract import ACTIVATOR, COUNTER, GAUGE, HISTOGRAM, Label, Metric

HELD_MEANINGS = {
    "released": "handed to a replica",
    "timed_out": "answered 503 after the hold time-out",
    "full": "answered 503 at once, over the bound of requests or bytes",
    "left": "its client went away",
    "stopped": "answered 503 at the end of the activator",
}
"""What each `outcome` of a held request means."""

HELD_OUTCOME = Label(
    "outcome",
    "of a held request: " + ", ".join(f"`{outcome}` ({meaning})" for outcome, meaning in HELD_MEANINGS.items()),
    tuple(HELD_MEANINGS),
)

ACTIVATOR_METRICS = (
    Metric(
        "infscale_pending_requests",
        GAUGE,
        "Requests that the activator has taken and not handed to a replica yet. Those of several activators add up.",
        NAMES,
        group=ACTIVATOR,
    ),
    Metric(
        "infscale_pending_requests_limit",
        GAUGE,
        "Requests that this activator holds at most (--max-held); one more is answered 503.",
        NAMES,
        group=ACTIVATOR,
    ),
    Metric(
        "infscale_held_requests_total",
        COUNTER,
        "Requests that could not be passed on at once, by what became of them.",
        (*NAMES, HELD_OUTCOME),
        group=ACTIVATOR,
    ),
    Metric(
        "infscale_hold_duration_seconds",
        HISTOGRAM,
        "Seconds that a request was held, whatever became of it; without those that were refused at once.",
        NAMES,
        group=ACTIVATOR,
    ),
)
"""In the order of the page."""
