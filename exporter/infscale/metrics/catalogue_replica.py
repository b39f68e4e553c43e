"""The metrics of one replica, from the sidecar beside its engine, as rows of the catalogue."""

from __future__ import annotations

from infscale.metrics.contract import COUNTER, GAUGE, HISTOGRAM, VERSION, Label, Metric

STATE_MEANINGS = {
    "ok": ("the engine answered with its gauges", "as read"),
    "fresh": ("a new engine that has served nothing yet and has no gauges until it does", "0"),
    "asleep": ("the engine says that it sleeps", "as read"),
    "loading": ("the model is being loaded, or the port was never open yet", "none; the replica is starting"),
    "saturated": (
        "the port accepts connections but the read timed out",
        "the last ones, with their timestamp, for up to 15 minutes if requests were in flight; else none",
    ),
    "stale": ("requests are in flight and no counter moved for `--stale-after`", "as read"),
    "stats_disabled": ("a front end without the engine's own metrics", "none; the message names the flag to set"),
    "misconfigured": (
        "gauges are missing though counters moved, or HTTP 401, 404, 501",
        "none; the message names the flag to set",
    ),
    "not_an_engine": ("a router's page, HTML or JSON", "none; the message says what was found"),
    "unreachable": (
        "refused after it was there, reset, TLS or HTTP failure; a page cut, too large, or with an unusable gauge",
        "none; the replica is silent",
    ),
}
"""What each `state` of a replica means, and which values it publishes."""

FAILURE_MEANINGS = {
    "refused": "nothing listens on the port",
    "timeout": "no whole answer before the deadline",
    "reset": "the connection broke off",
    "http": "an HTTP status other than 200",
    "tls": "no TLS connection: certificate, name or protocol",
    "too_large": "a page over the size bound",
    "not_metrics": "an answer that is not a metrics page, or a router's",
    "missing": "a metrics page without the gauges",
    "unusable": "a gauge that is no count: NaN, negative or unreadable",
}
"""What each `reason` of a failed read of the engine means."""

ENGINE = Label("engine", "the engine's name: `vllm`, `sglang`, `llama.cpp`, ...")
MODEL_NAME = Label("model_name", "the first served name, or `--model-name`; adapters and aliases are never split")
OUTCOME = Label("outcome", "how a request ended, in the engine's own word")
REASON = Label("reason", "of a failed read of the engine: why it failed, see below", tuple(FAILURE_MEANINGS))
ROLE = Label("role", "`prefill` or `decode` where an engine has one of these alone; else empty")
STATE = Label("state", "of `infscale_engine_state`: what the replica is in; exactly one is 1", tuple(STATE_MEANINGS))

REPLICA_METRICS = (
    Metric(
        "infscale_inflight_requests",
        GAUGE,
        "Requests in the engine now: running, waiting and its other queues, each once. From the engine's own gauges.",
        (MODEL_NAME,),
    ),
    Metric(
        "infscale_running_requests",
        GAUGE,
        "Requests that the engine works on now. From its gauge of running requests; absent if it tells only a total.",
        (MODEL_NAME,),
    ),
    Metric(
        "infscale_waiting_requests",
        GAUGE,
        "Requests queued in the engine now. From its gauges of waiting requests; absent if it tells only a total.",
        (MODEL_NAME,),
    ),
    Metric(
        "infscale_kv_cache_usage_ratio",
        GAUGE,
        "Share of the KV cache in use, 0 to 1, of the fullest engine of the replica. From the engine's own gauge.",
        (MODEL_NAME,),
    ),
    Metric(
        "infscale_capacity_requests",
        GAUGE,
        "Requests that the replica can work on at once (slots). From the engine where it tells, else from --capacity.",
    ),
    Metric(
        "infscale_prompt_tokens_total",
        COUNTER,
        "Prompt tokens processed since the engine's start. The engine's own counter, passed through.",
        (MODEL_NAME,),
    ),
    Metric(
        "infscale_generation_tokens_total",
        COUNTER,
        "Tokens generated since the engine's start. The engine's own counter, passed through.",
        (MODEL_NAME,),
    ),
    Metric(
        "infscale_finished_requests_total",
        COUNTER,
        "Requests finished since the engine's start, by how they ended. The engine's own counter, passed through.",
        (MODEL_NAME, OUTCOME),
    ),
    Metric(
        "infscale_rejected_requests_total",
        COUNTER,
        "Requests that the engine refused since its start. The engine's own counter, passed through.",
        (MODEL_NAME, OUTCOME),
    ),
    Metric(
        "infscale_time_to_first_token_seconds",
        HISTOGRAM,
        "Seconds from a request's arrival to its first token. The engine's own histogram and buckets.",
        (ENGINE, MODEL_NAME),
    ),
    Metric(
        "infscale_inter_token_latency_seconds",
        HISTOGRAM,
        "Seconds between two tokens of one request. The engine's own histogram and buckets.",
        (ENGINE, MODEL_NAME),
    ),
    Metric(
        "infscale_request_queue_seconds",
        HISTOGRAM,
        "Seconds that a request waited in the engine's queue. The engine's own histogram and buckets.",
        (ENGINE, MODEL_NAME),
    ),
    Metric(
        "infscale_up",
        GAUGE,
        "1 when the last read gave the metrics of every engine of the replica, else 0.",
    ),
    Metric(
        "infscale_engine_state",
        GAUGE,
        "State of the replica: 1 for the state that it is in, 0 for the others. Of several engines the worst.",
        (STATE,),
    ),
    Metric(
        "infscale_engine_info",
        GAUGE,
        "Always 1; the labels tell the engine. They keep their last known values while reads fail.",
        (ENGINE, VERSION, MODEL_NAME, ROLE),
    ),
    Metric(
        "infscale_reading_timestamp_seconds",
        GAUGE,
        "When the values shown were read, in seconds since the Unix epoch; of several engines the oldest.",
    ),
    Metric(
        "infscale_scrape_duration_seconds",
        GAUGE,
        "Seconds that the last read of the engine took; of several engines the longest.",
    ),
    Metric(
        "infscale_scrape_failures_total",
        COUNTER,
        "Reads of the engine that failed, by reason.",
        (REASON,),
    ),
    Metric(
        "infscale_process_cpu_ratio",
        GAUGE,
        "CPU that the engine used between two reads over the Pod's request (1 is all of it). From the engine's"
        " process counter and --cpu-request.",
    ),
)
"""In the order of the page."""
