"""The one query that asks Prometheus for a whole workload, and its answer as rows. Called by `prometheus`. Pure.

Several vectors travel in one answer: joined with `or`, those without a name of their own marked with the label `told`.
Everything is taken with max by Pod, so that a sidecar scraped under two jobs counts once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infscale.errors import SourceError, UsageError
from infscale.fleet.source import WorkloadName

TOLD = "infscale_told"
AGE, SERVED, COUNTS_AGE = "age", "served", "counts_age"
"""Values of the label `told`: seconds since the last scrape of a target; whether it was up in the last hour; seconds
since the counts of kube-state-metrics were read."""

SERVED_RANGE = "1h"

_VALUES = (
    "inflight_requests", "running_requests", "waiting_requests", "kv_cache_usage_ratio", "process_cpu_ratio",
    "prompt_tokens_total", "generation_tokens_total", "draining",
)  # fmt: skip
_COUNTS = {
    "deployment": {
        "kube_deployment_spec_replicas": "spec",
        "kube_deployment_status_replicas": "status",
        "kube_deployment_status_replicas_ready": "ready",
    },
    "statefulset": {
        "kube_statefulset_replicas": "spec",
        "kube_statefulset_status_replicas": "status",
        "kube_statefulset_status_replicas_ready": "ready",
    },
}
COUNTS = {metric: count for names in _COUNTS.values() for metric, count in names.items()}
"""What each metric of kube-state-metrics counts."""

_KUBERNETES_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Row:
    """One series of the answer."""

    labels: dict[str, str]
    value: float

    @property
    def name(self) -> str:
        """Its metric; empty where `told` says what it is."""
        return self.labels.get("__name__", "")

    @property
    def replica(self) -> str:
        """The replica that it is of: the Pod, or without one the target."""
        return self.labels.get("pod") or self.labels.get("instance", "")


def query(workload: WorkloadName, *, ttft: bool) -> str:
    """The query for a workload's replicas and counts.

    Raises:
        UsageError: the workload is not told, or its name is none.
    """
    for what, text in (("namespace", workload.namespace), ("name", workload.name)):
        if not _KUBERNETES_NAME.fullmatch(text):
            raise UsageError(
                f"fleet source prometheus: workload {what} {text!r}: expected --workload NAMESPACE/NAME, as the labels"
                " namespace and workload of the sidecars' series have it"
            )
    own = f'namespace="{workload.namespace}",workload="{workload.name}"'
    by = "__name__,pod,instance"
    parts = [
        f'max by ({by},model_name) ({{__name__=~"infscale_({"|".join(_VALUES)})",{own}}})',
        f"max by ({by},state) (infscale_engine_state{{{own}}} == 1)",
        # A scrape that failed leaves `up` behind, and nothing of ours.
        _told(AGE, f"min by (pod,instance) (time() - timestamp(up{{{own}}}))"),
        _told(SERVED, f"max by (pod,instance) (max_over_time(infscale_up{{{own}}}[{SERVED_RANGE}]))"),
    ]
    if ttft:
        parts.append(f"max by ({by},model_name,engine,le) (infscale_time_to_first_token_seconds_bucket{{{own}}})")
    for kind, names in _COUNTS.items():
        counts = f'{{__name__=~"{"|".join(names)}",namespace="{workload.namespace}",{kind}="{workload.name}"}}'
        parts.append(f"max by (__name__,{kind}) ({counts})")
        spec = f'{next(iter(names))}{{namespace="{workload.namespace}",{kind}="{workload.name}"}}'
        parts.append(_told(COUNTS_AGE, f"min by ({kind}) (time() - timestamp({spec}))"))
    return " or ".join(parts)


def _told(what: str, vector: str) -> str:
    return f'label_replace({vector}, "{TOLD}", "{what}", "", "")'


def _labels(metric: Any) -> dict[str, str]:
    labels = dict(metric)
    if not all(isinstance(value, str) for value in labels.values()):
        raise TypeError
    return labels


def rows(body: bytes) -> Iterator[Row]:
    """The series of an instant query's answer, without those that are no number.

    Raises:
        SourceError: the query failed, or this is no answer of Prometheus.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise SourceError(f"not JSON but {body[:60]!r}: expected Prometheus' HTTP API") from None
    if isinstance(answer, dict) and answer.get("status") == "error":
        raise SourceError(f"{answer.get('errorType')}: {str(answer.get('error'))[:300]}")
    try:
        series: list[Any] = answer["data"]["result"]
        if answer["data"]["resultType"] != "vector":
            raise TypeError
        found = [Row(_labels(one["metric"]), float(one["value"][1])) for one in series]
    except (TypeError, KeyError, IndexError, ValueError, OverflowError):
        raise SourceError("an answer that is no vector: expected Prometheus' HTTP API") from None
    return (row for row in found if math.isfinite(row.value) and row.value >= 0)
