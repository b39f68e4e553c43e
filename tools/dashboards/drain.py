"""`infscale / Drain and rollout`: do replicas leave without cutting requests, and do new ones take their place."""

from __future__ import annotations

from tools.dashboards.builder import Json, colour, dashboard, query, row, thresholds
from tools.dashboards.panels import stat, table, timeseries
from tools.dashboards.panels import state_timeline as timeline
from tools.dashboards.series import (
    BY_WORKLOAD,
    PHASE_SHADES,
    POD,
    RATE,
    REPLICA,
    WORKLOAD,
    code_words,
    coded,
    decisions,
    replica_variables,
)

_OUTCOME_SHADES = {
    "idle": "green",
    "fresh": "light-green",
    "deadline": "red",
    "refused": "light-blue",
    "http": "orange",
    "tls": "dark-orange",
    "gone": "blue",
    "stale": "yellow",
}
_RANGE = "[$__range]"
_NOT_IDLE = ', outcome!~"idle|fresh"'


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "infscale-drain",
        "infscale / Drain and rollout",
        "Replicas that leave and replicas that come: were requests cut, how long did it take, is it stuck?",
        replica_variables(),
        [_now(), _rollout(), _drains(), _coming()],
        annotations=[decisions()],
    )


def _grown(metric: str, over: str, by: str = "outcome", more: str = "") -> str:
    """What a counter of drains grew by, summed over the replicas; a sidecar that two jobs scrape counts once."""
    each = f"max by (namespace, pod, outcome, {by})" if by != "outcome" else "max by (namespace, pod, outcome)"
    return f"sum by ({by}) ({each} (increase({metric}{{{POD}{more}}}{over})))"


def _now() -> list[Json]:
    draining = f"sum(max by (namespace, pod) (infscale_draining{{{POD}}}))"
    blind = f'max by (namespace, pod) (infscale_engine_state{{{POD}, state="misconfigured"}})'
    cut = _grown("infscale_drain_requests_cut_total", _RANGE)
    ended = _grown("infscale_drains_total", _RANGE)
    return row(
        "What is wrong",
        stat(
            "Requests cut",
            "Requests that an engine's end cut off after its drain, in the time shown. A lower bound: what a sidecar "
            "counts after its last scrape is lost with it.",
            [query(f"sum({cut})")],
            decimals=0,
            limits=thresholds((0.5, "red")),
            empty="no sidecars",
        ),
        stat(
            "Drains not idle",
            "Drains in the time shown that ended otherwise than with an idle engine.",
            [query(f"sum({_grown('infscale_drains_total', _RANGE, more=_NOT_IDLE)})")],
            decimals=0,
            limits=thresholds((0.5, "orange")),
            empty="no sidecars",
        ),
        stat(
            "Blind replicas",
            "Replicas that are `misconfigured`: a drain of them could not see when they are idle. Mend that before any "
            "rollout.",
            [query(f"sum({blind})")],
            limits=thresholds((1, "red")),
            empty="no sidecars",
        ),
        stat("Draining now", "Replicas that are leaving, or withdrawn.", [query(draining)], empty="no sidecars"),
        stat(
            "Drains ended",
            "In the time shown, however they ended.",
            [query(f"sum({ended})")],
            decimals=0,
            empty="no sidecars",
        ),
        stat(
            "Drain time, p95",
            "As long as 95 of 100 drains in the time shown took at most. A drain of an idle engine takes 6 s.",
            [
                query(
                    "histogram_quantile(0.95, "
                    + _grown("infscale_drain_duration_seconds_bucket", _RANGE, "le")
                    + ") >= 0"
                )
            ],
            unit="s",
            empty="no drain",
        ),
    )


def _in_phase(phase: str) -> str:
    return f'sum(workload_phase:infscale_replicas:count{{{WORKLOAD}, phase="{phase}"}})'


def _rollout() -> list[Json]:
    return row(
        "Who comes, who goes",
        timeline(
            "Phase of each replica",
            "Each replica from its start to its end. A long blue is a slow cold start, a long purple a slow drain; red "
            "served before and gives no value.",
            [query(coded("pod:infscale_phase:group", "phase", PHASE_SHADES, POD, "namespace, pod"), "{{pod}}")],
            code_words(PHASE_SHADES),
            height=10,
        ),
        timeseries(
            "Asked for, ready, starting, draining",
            "A rollout: new replicas start, become ready, and old ones drain; ready stays at what is asked for.",
            [
                query(f"sum(workload:infscale_spec_replicas:max{{{WORKLOAD}}})", "asked for"),
                query(f'sum(max {BY_WORKLOAD} (infscale_replicas{{{WORKLOAD}, state="ready"}}))', "ready"),
                query(_in_phase("starting"), "starting"),
                query(_in_phase("draining"), "draining"),
            ],
            stepped=True,
            overrides=[
                colour("asked for", "text", lineWidth=1),
                colour("ready", "green", fillOpacity=15),
                colour("starting", "blue"),
                colour("draining", "purple"),
            ],
        ),
        timeseries(
            "In flight of replicas that drain",
            "Requests that are still in a replica that leaves. It should fall to 0 before the line ends.",
            [
                query(
                    f"sum by (namespace, pod) (max by (namespace, pod, model_name) "
                    f"(infscale_inflight_requests{{{POD}}})) "
                    f"and on (namespace, pod) max by (namespace, pod) (infscale_draining{{{POD}}}) == 1",
                    "{{pod}}",
                )
            ],
            table=True,
            empty="none drains",
        ),
    )


def _drains() -> list[Json]:
    return row(
        "How drains end",
        timeseries(
            "Drains by outcome",
            "Drains that ended in the minute or so before each instant (the rate interval). `idle` and `fresh` are "
            "good; `deadline`: the engine was still busy when the grace period ended.",
            [query(_grown("infscale_drains_total", RATE) + " > 0", "{{outcome}}")],
            width=8,
            bars=True,
            stacked=True,
            empty="no drain",
            overrides=[colour(outcome, shade) for outcome, shade in _OUTCOME_SHADES.items()],
        ),
        timeseries(
            "Requests cut by outcome",
            "Requests that the end of an engine cut off, in the minute or so before each instant, by how its "
            "drain ended.",
            [query(_grown("infscale_drain_requests_cut_total", RATE) + " > 0", "{{outcome}}")],
            width=8,
            bars=True,
            stacked=True,
            empty="none cut",
            overrides=[colour(outcome, shade) for outcome, shade in _OUTCOME_SHADES.items()],
        ),
        table(
            "Drains of the time shown",
            "How many drains ended how, how long they took on average, and how many requests were cut.",
            {"outcome": "Outcome"},
            [
                ("Drains", f"{_grown('infscale_drains_total', _RANGE)} > 0", {"decimals": 0}),
                (
                    "Mean time",
                    f"{_grown('infscale_drain_duration_seconds_sum', _RANGE)} "
                    f"/ ({_grown('infscale_drain_duration_seconds_count', _RANGE)} > 0)",
                    {"unit": "s", "decimals": 0},
                ),
                (
                    "Requests cut",
                    f"{_grown('infscale_drain_requests_cut_total', _RANGE)} "
                    f"and ({_grown('infscale_drains_total', _RANGE)} > 0)",
                    {"decimals": 0, "thresholds": thresholds((0.5, "red"))},
                ),
            ],
            width=8,
            height=8,
            empty="no drain",
        ),
    )


def _coming() -> list[Json]:
    return row(
        "How replicas start",
        timeseries(
            "Cold starts",
            "Replicas that served for the first time in the minute or so before each instant, by workload.",
            [
                query(
                    f"max {BY_WORKLOAD} (increase(infscale_cold_start_seconds_count{{{WORKLOAD}}}{RATE})) > 0",
                    "{{workload_namespace}}/{{workload}}",
                )
            ],
            width=8,
            bars=True,
            stacked=True,
            empty="no cold start",
        ),
        timeseries(
            "Cold start, p90 of a day",
            "From a replica's creation to its first served read.",
            [
                query(
                    f"workload:infscale_cold_start_seconds:p90_rate1d{{{WORKLOAD}}}",
                    "{{workload_namespace}}/{{workload}}",
                )
            ],
            unit="s",
            width=8,
            empty="no cold start",
        ),
        timeseries(
            "Versions of infscale",
            "Sidecars by their version: a rollout of infscale itself.",
            [
                query(
                    f"count by (version) (max by (namespace, pod, version) (infscale_build_info{{{REPLICA}}}))",
                    "{{version}}",
                )
            ],
            width=8,
            stepped=True,
            stacked=True,
        ),
    )
