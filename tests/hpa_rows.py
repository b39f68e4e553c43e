"""From a row of HPA test vectors to the core's types. Used by `tests.hpa_vectors`.

Ages become times before an instant 0, so that they compare exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from infscale.core.numbers import LONG_AGO_S
from infscale.core.observation import ContainerMilli, Measurement, Pod, PodSample
from infscale.core.policy import (
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    Behavior,
    Controller,
    MetricTarget,
    Policy,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
    Source,
    TargetType,
)
from infscale.core.state import Recommendation, ScaleEvent

NOW_S = 0.0

Row = Mapping[str, Any]

METRICS = {
    "resource_utilization": (Source.RESOURCE, TargetType.UTILIZATION),
    "resource_average": (Source.RESOURCE, TargetType.AVERAGE_VALUE),
    "pods_average": (Source.PODS, TargetType.AVERAGE_VALUE),
    "object_value": (Source.OBJECT, TargetType.VALUE),
    "object_average": (Source.OBJECT, TargetType.AVERAGE_VALUE),
    "external_value": (Source.EXTERNAL, TargetType.VALUE),
    "external_average": (Source.EXTERNAL, TargetType.AVERAGE_VALUE),
}


def ago(age_s: float | None) -> float:
    """The time of that age; no age at all is the controller's zero time."""
    return LONG_AGO_S if age_s is None else NOW_S - age_s


def given(row: Row, key: str, default: Any) -> Any:
    """The row's value; what is missing or null takes the default."""
    value = row.get(key)
    return default if value is None else value


def containers(values_milli: Iterable[int | None] | None) -> tuple[ContainerMilli, ...]:
    """Values by container, which are named container1, container2 and so on."""
    return tuple((f"container{number}", value) for number, value in enumerate(values_milli or (), 1))


def pod_of(row: Row, read_succeeded_as_running: bool) -> Pod:
    """A Pod. Without `ready` it has no Ready condition, without `start_age_s` no start time (null is long ago)."""
    phase = row.get("phase", "Running")
    return Pod(
        name=row["name"],
        phase="Running" if phase == "Succeeded" and read_succeeded_as_running else phase,
        ready=row.get("ready"),
        start_time_s=ago(row["start_age_s"]) if "start_age_s" in row else None,
        transition_time_s=ago(row.get("transition_age_s")),
        deleting=bool(row.get("deleting")),
        requests_milli=containers(row.get("requests_milli")),
    )


def metric_of(row: Row) -> tuple[MetricTarget, Measurement]:
    """A metric's target and what was measured for it."""
    kind = row["metric_source"]
    if kind not in METRICS:
        # A type that no API server lets through: a metric that does exist only with Pods, and cannot be read.
        return (
            MetricTarget(Source.PODS, TargetType.AVERAGE_VALUE, 1000, kind),
            Measurement(failure=f"unknown metric source type {kind!r}"),
        )
    source, target_type = METRICS[kind]
    container = row.get("container") or ""
    if container and source is Source.RESOURCE:
        source = Source.CONTAINER_RESOURCE
    samples = tuple(
        PodSample(s["pod"], containers(s["values_milli"]), ago(s.get("ts_age_s")), given(s, "window_s", 60))
        for s in row.get("pod_samples") or ()
    )
    return (
        MetricTarget(source, target_type, row["target"], kind, row.get("resource") or "", container),
        Measurement(
            samples_milli=tuple(row.get("samples_milli") or ()),
            pod_samples=samples,
            failure="the metric could not be fetched" if row.get("fail") else "",
        ),
    )


def rules_of(row: Row | None, default: ScalingRules) -> ScalingRules:
    """One direction of `behavior`; a missing key takes the API's default."""
    row = row or {}
    policies = row.get("policies")
    if policies is not None:
        default = replace(
            default, policies=tuple(ScalingPolicy(PolicyType(p["type"]), p["value"], p["period_s"]) for p in policies)
        )
    return replace(
        default,
        select_policy=SelectPolicy(given(row, "select_policy", default.select_policy)),
        stabilization_window_s=given(row, "stabilization_window_s", default.stabilization_window_s),
        tolerance=row.get("tolerance"),
    )


def behavior_of(row: Row | None) -> Behavior | None:
    """`behavior`, or None where the row has none."""
    if row is None:
        return None
    return Behavior(
        scale_up=rules_of(row.get("scale_up"), DEFAULT_SCALE_UP),
        scale_down=rules_of(row.get("scale_down"), DEFAULT_SCALE_DOWN),
    )


def controller_of(row: Row) -> Controller:
    """Flags and version; what the row does not say is the default controller's."""
    flags = {
        name: row[name]
        for name in (
            "tolerance",
            "configurable_tolerance",
            "downscale_stabilization_s",
            "cpu_initialization_period_s",
            "initial_readiness_delay_s",
            "scale_up_limit_factor",
            "scale_up_limit_minimum",
        )
        if row.get(name) is not None
    }
    controller = Controller(**flags)
    return replace(controller, version=(1, 37)) if row.get("scale_from_zero") == "condition" else controller


def policy_of(row: Row, metrics: Iterable[MetricTarget] = (), behavior: Behavior | None = None) -> Policy:
    """Bounds and controller of a row, with metrics and `behavior` as given."""
    policy = Policy(tuple(metrics), behavior=behavior, controller=controller_of(row))
    return replace(
        policy,
        min_replicas=given(row, "min_replicas", policy.min_replicas),
        max_replicas=given(row, "max_replicas", policy.max_replicas),
    )


def log_of(rows: Iterable[Row] | None) -> tuple[Recommendation, ...]:
    """The log of proposals."""
    return tuple(Recommendation(row["replicas"], ago(row.get("age_s"))) for row in rows or ())


def events_of(rows: Iterable[Row] | None) -> tuple[ScaleEvent, ...]:
    """The changes of one direction."""
    return tuple(ScaleEvent(row["change"], ago(row.get("age_s"))) for row in rows or ())


def pods_of(row: Row, semantics: str) -> tuple[Pod, ...]:
    """The Pods of a row."""
    return tuple(pod_of(pod, semantics == "pre_succeeded_ignored") for pod in row.get("pods") or ())
