"""`infscale / Fleet`: is any workload short of replicas, and does that show; the first one to look at."""

from __future__ import annotations

from tools.dashboards.builder import Json, colour, dashboard, query, row, thresholds
from tools.dashboards.panels import stat, table, timeseries
from tools.dashboards.panels import state_timeline as timeline
from tools.dashboards.series import (
    BY_WORKLOAD,
    PHASE_SHADES,
    REASON_SHADES,
    WORKLOAD,
    code_words,
    coded,
    decisions,
    workload_variables,
)

_TTFT = "workload:infscale_time_to_first_token_seconds"
_GAP = "workload:infscale_inter_token_latency_seconds"
_RECOMMENDED = f"max {BY_WORKLOAD} (infscale_recommended_replicas{{{WORKLOAD}}})"
_HPA = f"max {BY_WORKLOAD} (infscale_hpa_recommended_replicas{{{WORKLOAD}}})"
_READY = f'max {BY_WORKLOAD} (infscale_replicas{{{WORKLOAD}, state="ready"}})'
_LATE_S = 2
"""A first token later than this is red: the objective of rules/alerts-inputs.yaml."""


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "infscale-fleet",
        "infscale / Fleet",
        "Replicas, load and latency of all workloads: is one short, and do its users feel it?",
        workload_variables(),
        [_now(), _replicas(), _load(), _throughput(), _cost()],
        annotations=[decisions()],
    )


def _now() -> list[Json]:
    return row(
        "What is wrong now",
        stat(
            "Waiting requests",
            "Requests that are queued in an engine. For a moment that is a burst; for minutes replicas are missing.",
            [query(f"sum(workload:infscale_waiting_requests:sum{{{WORKLOAD}}})")],
            limits=thresholds((1, "orange"), (20, "red")),
        ),
        stat(
            "Time to first token, p95",
            "Of the worst workload, over 5 minutes.",
            [query(f"max({_TTFT}:p95_rate5m{{{WORKLOAD}}})")],
            unit="s",
            limits=thresholds((_LATE_S / 2, "orange"), (_LATE_S, "red")),
            empty="no traffic",
        ),
        stat(
            "Short of the recommendation",
            "Replicas that are recommended and not ready. Longer than a cold start: there is no GPU to be had, or "
            "something else writes the count.",
            [query(f"sum(clamp_min({_RECOMMENDED} - {_READY}, 0))")],
            limits=thresholds((1, "orange"), (3, "red")),
            empty="no recommender",
        ),
        stat(
            "Silent replicas",
            "Replicas that served before and give no value now. They count as at their target.",
            [query(f"sum(workload:infscale_missing_replicas:count{{{WORKLOAD}}})")],
            limits=thresholds((1, "red")),
            empty="no replicas",
        ),
        stat(
            "Refused requests",
            "Requests that engines refused, a second, over 5 minutes. Not every engine tells.",
            [query(f"sum(workload:infscale_rejected_requests:rate5m{{{WORKLOAD}}})")],
            unit="reqps",
            limits=thresholds((0.001, "red")),
            empty="not told",
        ),
        stat(
            "Last evaluation",
            "Time since the policy was last evaluated, of the workload where that is longest; 15 s is usual.",
            [query(f"max(time() - max {BY_WORKLOAD} (infscale_evaluation_timestamp_seconds{{{WORKLOAD}}}))")],
            unit="s",
            limits=thresholds((60, "orange"), (120, "red")),
            empty="no recommender",
        ),
    )


def _replicas() -> list[Json]:
    spec = f"workload:infscale_spec_replicas:max{{{WORKLOAD}}}"
    proposed = f"workload:infscale_proposed_replicas:hpa{{{WORKLOAD}}}"
    phases = f"workload_phase:infscale_replicas:count{{{WORKLOAD}}}"
    return row(
        "Replicas",
        timeseries(
            "Required, recommended, ready",
            "Required is what the load of this moment asks for. Recommended is what the policy makes of it; the HPA's "
            "line is what a plain HPA would ask for. Ready is what serves. All are sums over the workloads chosen.",
            [
                query(f"sum({proposed})", "required"),
                query(f"sum({_RECOMMENDED})", "recommended"),
                query(f"sum({_HPA})", "a plain HPA"),
                query(f"sum({spec})", "asked for"),
                query(f"sum({_READY})", "ready"),
            ],
            stepped=True,
            overrides=[
                colour("required", "light-orange", lineWidth=1),
                colour("recommended", "blue"),
                colour("a plain HPA", "purple", lineWidth=1, lineStyle={"fill": "dash", "dash": [6, 6]}),
                colour("asked for", "text", lineWidth=1),
                colour("ready", "green", fillOpacity=15),
            ],
        ),
        timeseries(
            "Replicas by phase",
            "Each replica in one phase: it serves, starts, is silent (served before, gives no value), or drains.",
            [query(f"sum by (phase) ({phases})", "{{phase}}")],
            stepped=True,
            stacked=True,
            overrides=[colour(phase, shade) for phase, shade in PHASE_SHADES.items()],
        ),
        timeline(
            "Why the count is what it is",
            "The reason of each evaluation. Green is the load alone; `stabilised` and `rate_limited` hold a change "
            "back for a time; `max`, `partial_samples`, `no_samples` and `error` want a look.",
            [
                query(
                    coded(
                        "infscale_decision_reason", "reason", REASON_SHADES, WORKLOAD, "workload_namespace, workload"
                    ),
                    "{{workload_namespace}}/{{workload}}",
                )
            ],
            code_words(REASON_SHADES),
            height=6,
            empty="no recommender",
        ),
        _workloads(),
    )


def _workloads() -> Json:
    whole = {"decimals": 0}
    counted = f"and workload:infscale_spec_replicas:max{{{WORKLOAD}}}"
    return table(
        "Workloads",
        "Each workload now. The load over the target is what an HPA divides: within 0.9 and 1.1 it keeps the count.",
        {"workload_namespace": "Namespace", "workload": "Workload"},
        [
            ("In flight", _each("workload:infscale_inflight_requests:sum"), whole),
            ("Waiting", _each("workload:infscale_waiting_requests:sum"), whole),
            ("Target", _each("workload:infscale_target_inflight_requests:max", counted), {}),
            (
                "Load / target",
                _each("workload:infscale_demand_per_target:ratio", ">= 0"),
                {"decimals": 2, "thresholds": thresholds((1.1, "orange"), (2, "red"))},
            ),
            (
                "TTFT p95",
                _each(f"{_TTFT}:p95_rate5m"),
                {"unit": "s", "thresholds": thresholds((_LATE_S / 2, "orange"), (_LATE_S, "red"))},
            ),
            ("Ready", _READY, whole),
            ("Recommended", _RECOMMENDED, whole),
            ("A plain HPA", _HPA, whole),
            (
                "Silent",
                _each("workload:infscale_missing_replicas:count"),
                {"decimals": 0, "thresholds": thresholds((1, "red"))},
            ),
            ("Fullest KV cache", _each("workload:infscale_kv_cache_usage_ratio:max"), {"unit": "percentunit"}),
        ],
        height=5,
    )


def _each(name: str, condition: str = "") -> str:
    """A recorded series without its name: lines of a table join by all labels that there are."""
    return f"max {BY_WORKLOAD} ({' '.join(filter(None, (f'{name}{{{WORKLOAD}}}', condition)))})"


def _load() -> list[Json]:
    room = (
        f"workload:infscale_target_inflight_requests:max{{{WORKLOAD}}} "
        f"* workload:infscale_status_replicas:max{{{WORKLOAD}}}"
    )
    return row(
        "Load and latency",
        timeseries(
            "In flight against the target",
            "Requests in flight, and how many there would be with each replica at its target. In flight above that "
            "asks for more replicas. Demand is what is scaled on: silent replicas are filled in, held requests added.",
            [
                query(f"sum(workload:infscale_inflight_requests:sum{{{WORKLOAD}}})", "in flight"),
                query(f"sum(workload:infscale_demand_requests:sum{{{WORKLOAD}}})", "demand"),
                query(f"sum({room})", "target of all replicas"),
                query(f"sum(workload:infscale_waiting_requests:sum{{{WORKLOAD}}})", "waiting"),
                query(f"sum(workload:infscale_pending_requests:sum{{{WORKLOAD}}})", "held"),
            ],
            overrides=[
                colour("in flight", "blue", fillOpacity=15),
                colour("demand", "orange", lineWidth=1, lineStyle={"fill": "dash", "dash": [6, 6]}),
                colour("target of all replicas", "green", lineInterpolation="stepAfter"),
                colour("waiting", "red", lineWidth=1),
                colour("held", "purple", lineWidth=1),
            ],
        ),
        timeseries(
            "Time to first token",
            "Of the worst workload, over 5 minutes; the dashed line is the objective. Buckets of different engines are "
            "never merged.",
            [
                query(f"max({_TTFT}:p50_rate5m{{{WORKLOAD}}})", "p50"),
                query(f"max({_TTFT}:p95_rate5m{{{WORKLOAD}}})", "p95"),
                query(f"max({_TTFT}:p99_rate5m{{{WORKLOAD}}})", "p99"),
            ],
            unit="s",
            empty="no traffic",
            limits=thresholds((_LATE_S, "red")),
            overrides=_quantile_shades(),
        ),
    )


def _throughput() -> list[Json]:
    return row(
        "Work",
        timeseries(
            "Tokens",
            "Tokens a second, generated and of prompts, over 5 minutes; draining replicas included.",
            [
                query(f"sum(workload:infscale_generation_tokens:rate5m{{{WORKLOAD}}})", "generated"),
                query(f"sum(workload:infscale_prompt_tokens:rate5m{{{WORKLOAD}}})", "prompts"),
            ],
            unit="count:tok/s",
            width=8,
            height=7,
            empty="no traffic",
        ),
        timeseries(
            "Time between tokens",
            "Of the worst workload, over 5 minutes.",
            [
                query(f"max({_GAP}:p50_rate5m{{{WORKLOAD}}})", "p50"),
                query(f"max({_GAP}:p95_rate5m{{{WORKLOAD}}})", "p95"),
                query(f"max({_GAP}:p99_rate5m{{{WORKLOAD}}})", "p99"),
            ],
            unit="s",
            width=8,
            height=7,
            empty="no traffic",
            overrides=_quantile_shades(),
        ),
        timeseries(
            "How full",
            "Requests in flight over the slots of the replicas that know theirs, and the fullest KV cache, each of the "
            "worst workload. Above 100 % of the slots requests wait.",
            [
                query(f"max(workload:infscale_inflight_per_capacity:ratio{{{WORKLOAD}}})", "slots"),
                query(f"max(workload:infscale_kv_cache_usage_ratio:max{{{WORKLOAD}}})", "fullest KV cache"),
            ],
            unit="percentunit",
            width=8,
            height=7,
            empty="not told",
        ),
    )


def _cost() -> list[Json]:
    return row(
        "Cost",
        timeseries(
            "Replica-minutes of the last hour",
            "What was paid for at each moment's last hour, each phase included: starting and draining replicas hold "
            "their GPUs too.",
            [
                query(
                    f"workload:infscale_replica_minutes:sum1h{{{WORKLOAD}}}",
                    "{{workload_namespace}}/{{workload}}",
                )
            ],
            unit="count:min",
            height=7,
            table=True,
        ),
        timeseries(
            "Cold start, p90 of a day",
            "From a replica's creation to its first served read, as the recommender measured it. The scale-down "
            "window should be longer, and a lookahead about this long.",
            [
                query(
                    f"workload:infscale_cold_start_seconds:p90_rate1d{{{WORKLOAD}}}",
                    "{{workload_namespace}}/{{workload}}",
                )
            ],
            unit="s",
            height=7,
            table=True,
            empty="no cold start",
        ),
    )


def _quantile_shades() -> list[Json]:
    return [colour("p50", "green", lineWidth=1), colour("p95", "orange"), colour("p99", "red", lineWidth=1)]
