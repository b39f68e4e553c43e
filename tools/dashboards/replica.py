"""`infscale / Replica`: which replica is full, hangs or does not answer; needs the sidecars alone, and no rules."""

from __future__ import annotations

from tools.dashboards.builder import Json, dashboard, query, row, thresholds
from tools.dashboards.panels import stat, table, timeseries
from tools.dashboards.panels import state_timeline as timeline
from tools.dashboards.series import (
    MODEL,
    POD,
    RATE,
    STATE_SHADES,
    code_words,
    coded,
    decisions,
    replica_variables,
)

_BY_POD = "by (namespace, pod)"
_EACH = "{{pod}}"


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "infscale-replica",
        "infscale / Replica",
        "One replica beside the others: its queue, cache, tokens and state, and how its engine is read.",
        replica_variables(),
        [_now(), _state(), _queue(), _work(), _latency(), _scrape()],
        annotations=[decisions()],
    )


def _gauge(metric: str) -> str:
    """A gauge by replica, its models added up; a sidecar that two jobs scrape counts once."""
    return f"sum {_BY_POD} (max by (namespace, pod, model_name) ({metric}{{{MODEL}}}))"


def _rate(metric: str) -> str:
    """The rate of a counter by replica, as `_gauge`."""
    return f"sum {_BY_POD} (max by (namespace, pod, model_name) (rate({metric}{{{MODEL}}}{RATE})))"


def _quantile(quantile: float, metric: str) -> str:
    """A quantile by replica: the worst of its engines and models, whose buckets are not merged."""
    buckets = f"max by (namespace, pod, engine, model_name, le) (rate({metric}_bucket{{{MODEL}}}{RATE}))"
    return f"max {_BY_POD} (histogram_quantile({quantile}, {buckets}) >= 0)"


def _now() -> list[Json]:
    up = f"max {_BY_POD} (infscale_up{{{POD}}})"
    states = f'max {_BY_POD} (infscale_engine_state{{{POD}, state=~"saturated|stale"}})'
    return row(
        "What is wrong now",
        stat(
            "Engines not read",
            "Replicas whose last read gave no metrics. The state below says why; one that starts is among them.",
            [query(f"count({up}) - sum({up})")],
            limits=thresholds((1, "red")),
            empty="no sidecars",
        ),
        stat(
            "Hanging or too busy",
            "Replicas that are `stale` (requests in flight, nothing moves) or `saturated` (too busy to answer).",
            [query(f"sum({states})")],
            limits=thresholds((1, "orange")),
            empty="no sidecars",
        ),
        stat(
            "Longest queue",
            "Waiting requests of the replica that has most.",
            [query(f"max({_gauge('infscale_waiting_requests')})")],
            limits=thresholds((1, "orange"), (10, "red")),
            empty="no values",
        ),
        stat(
            "Fullest KV cache",
            "Of the fullest replica. A full cache preempts requests.",
            [query(f"max(infscale_kv_cache_usage_ratio{{{MODEL}}})")],
            unit="percentunit",
            limits=thresholds((0.9, "orange"), (0.98, "red")),
            empty="not told",
        ),
        stat(
            "Oldest values",
            "Age of the values of the replica that was read longest ago. A saturated one shows its last values for "
            "15 minutes.",
            [query(f"max(time() - max {_BY_POD} (infscale_reading_timestamp_seconds{{{POD}}}))")],
            unit="s",
            limits=thresholds((60, "orange"), (300, "red")),
            empty="no values",
        ),
        stat(
            "Failed reads",
            "Failed reads of engines, a second.",
            [query(f"sum(max by (namespace, pod, reason) (rate(infscale_scrape_failures_total{{{POD}}}{RATE})))")],
            unit="reqps",
            limits=thresholds((0.001, "orange")),
            empty="no sidecars",
        ),
    )


def _state() -> list[Json]:
    return row(
        "State",
        timeline(
            "State of each replica",
            "What the sidecar says of its engine. A gap: the sidecar itself was not scraped.",
            [query(coded("infscale_engine_state", "state", STATE_SHADES, POD, "namespace, pod"), _EACH)],
            code_words(STATE_SHADES),
            height=12,
            empty="no sidecars",
        ),
    )


def _queue() -> list[Json]:
    return row(
        "Queue",
        timeseries(
            "Waiting",
            "Requests queued in the engine. One replica alone: requests are not spread; all of them: too few replicas.",
            [query(_gauge("infscale_waiting_requests"), _EACH)],
            table=True,
            empty="not told",
        ),
        timeseries(
            "In flight",
            "Running and waiting requests together: what is scaled on.",
            [query(_gauge("infscale_inflight_requests"), _EACH)],
            table=True,
        ),
        timeseries(
            "Running",
            "Requests that the engine works on.",
            [query(_gauge("infscale_running_requests"), _EACH)],
            table=True,
            empty="not told",
        ),
        timeseries(
            "KV cache",
            "Share of the KV cache in use, of the fullest engine of the replica.",
            [query(f"max {_BY_POD} (infscale_kv_cache_usage_ratio{{{MODEL}}})", _EACH)],
            unit="percentunit",
            top=1,
            table=True,
            empty="not told",
        ),
    )


def _work() -> list[Json]:
    finished = f"max by (namespace, pod, model_name, outcome) (rate(infscale_finished_requests_total{{{MODEL}}}{RATE}))"
    refused = f"max by (namespace, pod, model_name, outcome) (rate(infscale_rejected_requests_total{{{MODEL}}}{RATE}))"
    slots = f"max {_BY_POD} (infscale_capacity_requests{{{POD}}})"
    return row(
        "Work",
        timeseries(
            "Generated tokens",
            "Tokens a second. In flight without tokens is a replica that hangs.",
            [query(_rate("infscale_generation_tokens_total"), _EACH)],
            unit="count:tok/s",
            table=True,
        ),
        timeseries(
            "Prompt tokens",
            "Tokens of prompts a second. A wave of long prompts stalls what is generated.",
            [query(_rate("infscale_prompt_tokens_total"), _EACH)],
            unit="count:tok/s",
            table=True,
        ),
        timeseries(
            "Ended requests",
            "Requests a second that ended, by the engine's own word for how, and those that it refused.",
            [
                query(f"sum by (outcome) ({finished}) > 0", "ended: {{outcome}}"),
                query(f"sum by (outcome) ({refused}) > 0", "refused: {{outcome}}"),
            ],
            unit="reqps",
            empty="not told",
        ),
        timeseries(
            "Slots in use",
            "Requests in flight over the slots of the replica. Absent where neither the engine nor --capacity tells.",
            [query(f"{_gauge('infscale_inflight_requests')} / {slots}", _EACH)],
            unit="percentunit",
            table=True,
            empty="not told",
        ),
    )


def _latency() -> list[Json]:
    return row(
        "Latency",
        timeseries(
            "Time to first token, p95",
            "Of each replica, from its engine's own buckets.",
            [query(_quantile(0.95, "infscale_time_to_first_token_seconds"), _EACH)],
            unit="s",
            width=8,
            table=True,
            empty="no traffic",
        ),
        timeseries(
            "Time in the queue, p95",
            "Of each replica, from its engine's own buckets.",
            [query(_quantile(0.95, "infscale_request_queue_seconds"), _EACH)],
            unit="s",
            width=8,
            table=True,
            empty="no traffic",
        ),
        timeseries(
            "Time between tokens, p95",
            "Of each replica, from its engine's own buckets.",
            [query(_quantile(0.95, "infscale_inter_token_latency_seconds"), _EACH)],
            unit="s",
            width=8,
            table=True,
            empty="no traffic",
        ),
    )


def _scrape() -> list[Json]:
    failures = f"max by (namespace, pod, reason) (rate(infscale_scrape_failures_total{{{POD}}}{RATE}))"
    return row(
        "How the engine is read",
        timeseries(
            "Failed reads by reason",
            "Failed reads of engines a second. `refused`: it does not listen; `timeout`: too busy; `missing`: a page "
            "without the gauges.",
            [query(f"sum by (reason) ({failures}) > 0", "{{reason}}")],
            unit="reqps",
            width=8,
            empty="none failed",
        ),
        timeseries(
            "Time of a read",
            "How long the last read of the engine took. The sidecar gives up after its --engine.timeout.",
            [query(f"max {_BY_POD} (infscale_scrape_duration_seconds{{{POD}}})", _EACH)],
            unit="s",
            width=8,
            table=True,
        ),
        timeseries(
            "CPU of the engine",
            "Over the Pod's request. Absent where --cpu-request is not set.",
            [query(f"max {_BY_POD} (infscale_process_cpu_ratio{{{POD}}})", _EACH)],
            unit="percentunit",
            width=8,
            table=True,
            empty="not told",
        ),
        table(
            "Engines",
            "What each replica serves, as last known.",
            {
                "namespace": "Namespace",
                "workload": "Workload",
                "pod": "Pod",
                "engine": "Engine",
                "model_name": "Model",
                "role": "Role",
            },
            [
                (
                    "Known",
                    f"max by (namespace, workload, pod, engine, model_name, role) (infscale_engine_info{{{MODEL}}})",
                    {"custom.hidden": True},
                )
            ],
            height=6,
            empty="no sidecars",
        ),
    )
