"""`infscale / Activator`: are requests held for a workload at zero, for how long, and is any lost."""

from __future__ import annotations

from tools.dashboards.builder import Json, colour, dashboard, query, row, thresholds
from tools.dashboards.panels import heatmap, stat, timeseries
from tools.dashboards.series import BY_WORKLOAD, RATE, WORKLOAD, decisions, workload_variables

_OUTCOME_SHADES = {"released": "green", "left": "yellow", "timed_out": "orange", "full": "red", "stopped": "purple"}
_LOST = "full|timed_out|stopped"
_ONCE = "workload_namespace, workload, namespace, pod"
"""An activator: of two jobs that scrape it the larger value counts, and it once."""

_LIMITS = f"infscale_pending_requests_limit{{{WORKLOAD}}}"
_HELD = f"max by ({_ONCE}) (infscale_pending_requests{{{WORKLOAD}}})"
_LIMIT = f"max by ({_ONCE}) ({_LIMITS})"
_ENDED = f"infscale_held_requests_total{{{WORKLOAD}}}"
_BUCKETS = f"infscale_hold_duration_seconds_bucket{{{WORKLOAD}}}"
_EACH = "{{workload_namespace}}/{{workload}}"


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "infscale-activator",
        "infscale / Activator",
        "Requests held while no replica is ready: how many, for how long, and what became of them.",
        workload_variables(),
        [_now(), _held(), _duration()],
        annotations=[decisions()],
    )


def _now() -> list[Json]:
    ended = f'infscale_held_requests_total{{{WORKLOAD}, outcome=~"{_LOST}"}}'
    lost = f"sum(max by ({_ONCE}, outcome) (increase({ended}[$__range])))"
    waits = f"sum by (le) (max by ({_ONCE}, le) (increase({_BUCKETS}[$__range])))"
    return row(
        "What is wrong now",
        stat(
            "Requests refused",
            "Held requests that were answered 503 in the time shown: held too long, one too many, or the activator "
            "ended.",
            [query(lost)],
            decimals=0,
            width=5,
            limits=thresholds((0.5, "red")),
            empty="no activator",
        ),
        stat(
            "Room used",
            "Held requests over what an activator may hold, of the fullest one. One more than the limit is refused.",
            [query(f"max({_HELD} / {_LIMIT})")],
            unit="percentunit",
            width=5,
            limits=thresholds((0.5, "orange"), (0.8, "red")),
            empty="no activator",
        ),
        stat("Held now", "Requests of all activators.", [query(f"sum({_HELD})")], width=5, empty="no activator"),
        stat(
            "Time held, p95",
            "As long as 95 of 100 requests in the time shown were held at most: about the cold start.",
            [query(f"histogram_quantile(0.95, {waits}) >= 0")],
            unit="s",
            width=5,
            empty="none held",
        ),
        stat(
            "Activators",
            "That are scraped. With none, a workload at zero does not wake.",
            [query(f"count({_LIMIT})")],
            limits=thresholds((1, "green"), below="red"),
            empty="no activator",
        ),
    )


def _held() -> list[Json]:
    return row(
        "Held requests",
        timeseries(
            "Held, and how many may be",
            "Held requests of all activators of the workloads chosen, and their limit.",
            [query(f"sum({_HELD})", "held"), query(f"sum({_LIMIT})", "limit")],
            overrides=[colour("held", "purple", fillOpacity=15), colour("limit", "red", lineWidth=1)],
            stepped=True,
            empty="no activator",
        ),
        timeseries(
            "What became of them",
            "Requests a second that ended their hold: handed to a replica, held too long, one too many, client gone, "
            "activator ended.",
            [query(f"sum by (outcome) (max by ({_ONCE}, outcome) (rate({_ENDED}{RATE}))) > 0", "{{outcome}}")],
            unit="reqps",
            bars=True,
            stacked=True,
            empty="none ended",
            overrides=[colour(outcome, shade) for outcome, shade in _OUTCOME_SHADES.items()],
        ),
    )


def _duration() -> list[Json]:
    ready = f'max {BY_WORKLOAD} (infscale_replicas{{{WORKLOAD}, state="ready"}})'
    recommended = f"max {BY_WORKLOAD} (infscale_recommended_replicas{{{WORKLOAD}}})"
    with_one = f"and on (workload_namespace, workload) {_LIMITS}"
    return row(
        "Waking up",
        timeseries(
            "Ready and recommended replicas",
            "Of workloads with an activator. From 0, a held request gives a recommendation of at least 1; the hold "
            "ends when a replica is ready.",
            [
                query(f"{ready} {with_one}", f"ready: {_EACH}"),
                query(f"{recommended} {with_one}", f"recommended: {_EACH}"),
            ],
            width=8,
            stepped=True,
            table=True,
            empty="no recommender",
        ),
        heatmap(
            "Time held",
            "How many requests were held for how long.",
            f"sum by (le) (max by ({_ONCE}, le) (increase({_BUCKETS}{RATE})))",
            width=16,
            empty="none held",
        ),
    )
