"""A HorizontalPodAutoscaler's `spec` as settings of a policy. `infscale.manifest` calls it."""

from __future__ import annotations

from collections.abc import Mapping

from infscale import checks
from infscale.checks import Place
from infscale.core.policy import TargetType
from infscale.core.scaling import MetricName
from infscale.core.settings import NUMBERS, Value
from infscale.manifest_metrics import ABOVE_0, Findings, add_metric, add_resource, some_goal
from infscale.policy_yaml import behavior_settings, number_at

_TARGETS = {
    TargetType.AVERAGE_VALUE: "averageValue",
    TargetType.VALUE: "value",
    TargetType.UTILIZATION: "averageUtilization",
}
_FIELDS = ("scaleTargetRef", "minReplicas", "maxReplicas", "metrics", "behavior")

Json = Mapping[str, object]


def hpa_settings(spec: Json, place: Place, found: Findings) -> dict[str, Value]:
    """The settings that an HPA's `spec` gives; its metrics go to `found`.

    Source: pkg/apis/autoscaling/v2/defaults.go for what it leaves out.

    Raises:
        ConfigError: what cannot be read, with its path.
    """
    checks.mapping(spec, place, _FIELDS)
    if "maxReplicas" not in spec:
        raise place.key("maxReplicas").error(f"missing: expected {NUMBERS['max'].expected}")
    settings: dict[str, Value] = {
        key: number_at(spec[name], place.key(name), NUMBERS[key])
        for key, name in (("min", "minReplicas"), ("max", "maxReplicas"))
        if name in spec
    }
    if "behavior" in spec:
        settings.update(behavior_settings(spec["behavior"], place.key("behavior")))
    at = place.key("metrics")
    metrics = checks.items(spec.get("metrics", ()), at)
    for index, metric in enumerate(metrics):
        _hpa_metric(checks.mapping(metric, at.item(index)), at.item(index), found)
    if not metrics:
        found.add(MetricName.CPU, 80.0, at)
        found.note(at, "none, which means cpu at 80 percent of the request")
    some_goal(found, at)
    return settings


def _hpa_metric(metric: Json, place: Place, found: Findings) -> None:
    kind = checks.text(metric.get("type"), place.key("type"))
    key = kind[:1].lower() + kind[1:]
    at = place.key(key)
    if kind not in ("External", "Object", "Pods", "Resource", "ContainerResource"):
        raise place.key("type").error(f"no such type of metric, {kind!r}")
    fields = checks.mapping(metric.get(key), at)
    target_type, target = _target(fields.get("target"), at.key("target"))
    if kind == "Resource":
        add_resource(found, checks.text(fields.get("name"), at.key("name")), target_type, target, at)
    elif kind == "ContainerResource":
        found.note(at, "no equivalent for the CPU or memory of one container")
    else:
        identifier = checks.mapping(fields.get("metric"), at.key("metric"))
        name = checks.text(identifier.get("name"), at.key("metric").key("name"))
        if "scaledobject.keda.sh/name" in str(identifier.get("selector")):
            raise at.error("KEDA made this HPA; read the ScaledObject that it stands for instead")
        add_metric(found, name, target_type, target, at)


def _target(value: object, place: Place) -> tuple[TargetType, object]:
    """What the target means and its value as it stands there."""
    fields = checks.mapping(value, place)
    name = checks.text(fields.get("type"), place.key("type"))
    if name not in tuple(TargetType):
        raise place.key("type").error(f"expected one of {', '.join(TargetType)}, got {name!r}")
    kind = TargetType(name)
    if fields.get(_TARGETS[kind]) is None:
        raise place.key(_TARGETS[kind]).error(f"missing: a target of type {kind} has its number there")
    number_at(fields[_TARGETS[kind]], place.key(_TARGETS[kind]), ABOVE_0)
    return kind, fields[_TARGETS[kind]]
