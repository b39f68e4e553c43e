"""A ScaledObject's `spec` as settings of a policy. `infscale.manifest` calls it."""

from __future__ import annotations

from collections.abc import Mapping

from infscale import checks
from infscale.checks import Place
from infscale.core.policy import TargetType
from infscale.core.settings import NUMBERS, Value
from infscale.manifest_metrics import ABOVE_0, Findings, add_metric, add_resource, some_goal
from infscale.policy_yaml import behavior_settings, number_at

_FIELDS = (
    *("scaleTargetRef", "pollingInterval", "initialCooldownPeriod", "cooldownPeriod", "idleReplicaCount"),
    *("minReplicaCount", "maxReplicaCount", "fallback", "advanced", "triggers"),
)
_MAX, _COOLDOWN_S = 100, 300  # what KEDA takes where a ScaledObject says nothing; its minimum is then 0
_FOREIGN = {
    "pollingInterval": "infscale has its own interval of evaluation",
    "initialCooldownPeriod": "infscale's cooldown begins with the last activity",
    "fallback": "infscale fills in the replicas that are silent, and holds the count when too many are",
}
"""What a ScaledObject may say and infscale does another way."""

_QUERIES = {"prometheus": ("query", "threshold"), "metrics-api": ("url", "targetValue")}
"""The triggers that ask for a number, with the fields of what they ask for and of the target."""

Json = Mapping[str, object]


def scaled_object_settings(spec: Json, place: Place, found: Findings) -> dict[str, Value]:
    """The settings that a ScaledObject's `spec` gives; its triggers go to `found`.

    Source: keda.sh/docs, the ScaledObject specification, for what it leaves out.

    Raises:
        ConfigError: what cannot be read, with its path.
    """
    checks.mapping(spec, place, _FIELDS)
    settings: dict[str, Value] = {"min": 0, "max": _MAX, "cooldown": _COOLDOWN_S}
    names = {"min": "minReplicaCount", "max": "maxReplicaCount", "cooldown": "cooldownPeriod"}
    for key, name in names.items():
        if name in spec:
            settings[key] = number_at(spec[name], place.key(name), NUMBERS[key])
    if "idleReplicaCount" in spec:
        _idle(spec["idleReplicaCount"], place.key("idleReplicaCount"), settings, found)
    if settings["min"] != 0:
        del settings["cooldown"]  # KEDA's counts for the way to zero alone
    for name, words in _FOREIGN.items():
        if name in spec:
            found.note(place.key(name), f"no equivalent: {words}")
    if "advanced" in spec:
        settings.update(_advanced(spec["advanced"], place.key("advanced")))
    at = place.key("triggers")
    for index, trigger in enumerate(checks.items(spec.get("triggers"), at)):
        _trigger(checks.mapping(trigger, at.item(index)), at.item(index), found)
    some_goal(found, at)
    return settings


def _idle(value: object, place: Place, settings: dict[str, Value], found: Findings) -> None:
    """`idleReplicaCount: 0` (KEDA takes no other) is a minimum of 0 that goes back to `minReplicaCount` at once."""
    if number_at(value, place, NUMBERS["min"]) != 0:
        raise place.error(f"expected 0, the only count that KEDA takes, got {checks.described(value)}")
    if settings["min"] != 1:
        found.note(place, "read as a minimum of 0; infscale leaves 0 for as many replicas as are needed, from 1 up")
    settings["min"] = 0


def _advanced(value: object, place: Place) -> dict[str, Value]:
    advanced = checks.mapping(value, place)
    if advanced.get("scalingModifiers"):
        raise place.key("scalingModifiers").error("a formula over the triggers has no equivalent")
    config = advanced.get("horizontalPodAutoscalerConfig")
    if config is None:
        return {}
    at = place.key("horizontalPodAutoscalerConfig")
    behavior = checks.mapping(config, at).get("behavior")
    return {} if behavior is None else behavior_settings(behavior, at.key("behavior"))


def _trigger(trigger: Json, place: Place, found: Findings) -> None:
    kind = checks.text(trigger.get("type"), place.key("type"))
    if kind != "cpu" and kind not in _QUERIES:
        found.note(place, f"no equivalent for a trigger of type {kind}")
        return
    at = place.key("metadata")
    metadata = checks.mapping(trigger.get("metadata", {}), at)
    if kind == "cpu":
        # Before KEDA 2.18 the type could stand in the metadata.
        target_type = _target_type(trigger.get("metricType") or metadata.get("type") or "Utilization", place)
        add_resource(found, "cpu", target_type, _number(metadata, "value", at), at)
    else:
        words, target = _QUERIES[kind]
        query = checks.text(metadata.get(words), at.key(words))
        target_type = _target_type(trigger.get("metricType") or "AverageValue", place)
        add_metric(found, query, target_type, _number(metadata, target, at), at)
    for key in ("activationThreshold", "activationTargetValue", "activationValue"):
        if metadata.get(key) not in (None, "0", ""):
            found.note(at.key(key), "no equivalent: any request that waits wakes the workload")


def _target_type(value: object, place: Place) -> TargetType:
    if value not in tuple(TargetType):
        raise place.key("metricType").error(f"expected one of {', '.join(TargetType)}, got {checks.described(value)}")
    return TargetType(str(value))


def _number(metadata: Json, key: str, place: Place) -> str:
    """A target as it stands there: KEDA takes text alone."""
    value = checks.text(metadata.get(key), place.key(key))
    number_at(value, place.key(key), ABOVE_0)
    return value
