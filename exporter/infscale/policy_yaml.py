"""A policy as a mapping, and as YAML: nested, with the HPA's own field names under `behavior`.

Scenario files and configuration hold policies this way, `infscale.manifest` reads an HPA's `behavior` through here.
Keys outside of `behavior` are those of the text grammar (`infscale.core.grammar`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from infscale import checks
from infscale.checks import Place
from infscale.core.checks import faults
from infscale.core.policy import PolicyType, ScalingPolicy, SelectPolicy
from infscale.core.scaling import AUTO, Goal, MetricName, ScalePolicy
from infscale.core.settings import (
    CHANGE,
    FIELDS,
    NUMBERS,
    PERIOD,
    RULES,
    SHORT,
    TARGETS,
    Number,
    Value,
    policy_of,
    settings_of,
)
from infscale.quantity import quantity
from infscale.yaml_file import load_yaml

BEHAVIOR = {"up": "scaleUp", "down": "scaleDown"}
_HPA_FIELD = {
    "": "policies",
    "select": "selectPolicy",
    "window": "stabilizationWindowSeconds",
    "tolerance": "tolerance",
}
PATHS = {
    direction + ending: f"behavior.{BEHAVIOR[direction]}.{_HPA_FIELD[ending]}"
    for direction in BEHAVIOR
    for ending in RULES
}
"""Where the keys of the text grammar for `behavior` stand in a mapping."""


def load_policy(path: str) -> ScalePolicy:
    """The policy in a YAML file.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or holds no policy that can be used.
    """
    return policy_from_mapping(load_yaml(path), source=path)


def policy_from_mapping(value: object, path: str = "", *, source: str = "") -> ScalePolicy:
    """Check a mapping and make it a policy.

    Args:
        value: `{metrics: {queue: 24}, min: 0, behavior: {scaleDown: {...}}, ...}`; null is as not given.
        path: where it stands in its file, as `policies[0]`; it begins every error.
        source: the file's name.

    Raises:
        ConfigError: with the path of the wrong value, what was expected and what stood there.
    """
    place = Place(source, path)
    given = _given(value, place, ("metrics", "hpa", *FIELDS, "behavior"))
    settings: dict[str, Value] = {}
    for key in FIELDS:
        if key in given:
            auto = key == "lookahead" and given[key] == "auto"
            settings[key] = AUTO if auto else number_at(given[key], place.key(key), NUMBERS[key])
    if "behavior" in given:
        settings.update(behavior_settings(given["behavior"], place.key("behavior")))
    plain = given.get("hpa", False)
    if not isinstance(plain, bool):
        raise place.key("hpa").error(f"expected true or false, got {checks.described(plain)}")
    policy = policy_of(_goals(given.get("metrics"), place.key("metrics")), settings, plain=plain)
    for fault in faults(policy):
        raise _place(place, fault.key).error(fault.words)
    return policy


def _given(value: object, place: Place, known: tuple[str, ...]) -> Mapping[str, object]:
    """A mapping without what is null; a key of the text grammar is told where it stands here."""
    if isinstance(value, Mapping):
        for key in value:
            if key not in known and (path := _path_of(str(key))):
                raise place.key(str(key)).error(f"unknown key, in a mapping it is {path}")
    return {key: item for key, item in checks.mapping(value, place, known).items() if item is not None}


def _path_of(key: str) -> str:
    if key in SHORT:
        return PATHS[SHORT[key][0]]
    return f"{PATHS['uptolerance']} and {PATHS['downtolerance']}" if key == "tolerance" else PATHS.get(key, "")


def _place(place: Place, key: str) -> Place:
    """Where the key of a fault stands."""
    if key in tuple(MetricName):
        key = f"metrics.{key}"
    for name in PATHS.get(key, key).split("."):
        place = place.key(name)
    return place


def _goals(value: object, place: Place) -> tuple[Goal, ...]:
    if value is None:
        raise place.error("missing: expected a metric with its target, as {queue: 24}")
    goals = []
    for name, target in checks.mapping(value, place, [metric.value for metric in MetricName]).items():
        metric = MetricName(name)
        learned = metric is MetricName.WORK and target == "learned"
        goals.append(Goal(metric, None if learned else number_at(target, place.key(name), TARGETS[metric])))
    return tuple(goals)


def behavior_settings(value: object, place: Place) -> dict[str, Value]:
    """The settings that an HPA's `behavior` gives: keys of the grammar, without short ones.

    A `behavior` in which nothing is set still counts as set; `upwindow` at its default stands for it.

    Raises:
        ConfigError: as `policy_from_mapping`.
    """
    settings: dict[str, Value] = {}
    given = _given(value, place, tuple(BEHAVIOR.values()))
    for direction, name in BEHAVIOR.items():
        if name in given:
            settings.update(_rules(direction, given[name], place.key(name)))
    return settings or {"upwindow": 0}


def _rules(direction: str, value: object, place: Place) -> dict[str, Value]:
    settings: dict[str, Value] = {}
    given = _given(value, place, tuple(_HPA_FIELD.values()))
    for ending, name in _HPA_FIELD.items():
        if name not in given:
            continue
        at, key, item = place.key(name), direction + ending, given[name]
        if ending == "":
            settings[key] = tuple(_policy(one, at.item(index)) for index, one in enumerate(checks.items(item, at)))
            if not settings[key]:
                raise at.error("expected at least one scaling policy")
        elif ending == "select":
            settings[key] = SelectPolicy(_choice(item, at, tuple(SelectPolicy)))
        else:
            settings[key] = number_at(item, at, NUMBERS[key])
    return settings


def _policy(value: object, place: Place) -> ScalingPolicy:
    given = _given(value, place, ("type", "value", "periodSeconds"))
    for key in ("type", "value", "periodSeconds"):
        if key not in given:
            raise place.key(key).error("missing, as in {type: Pods, value: 1, periodSeconds: 60}")
    kind = PolicyType(_choice(given["type"], place.key("type"), tuple(PolicyType)))
    change = number_at(given["value"], place.key("value"), CHANGE[kind])
    return ScalingPolicy(kind, int(change), int(number_at(given["periodSeconds"], place.key("periodSeconds"), PERIOD)))


def _choice(value: object, place: Place, choices: tuple[str, ...]) -> str:
    """One of some words; the spelling of the text grammar (`max`) does too."""
    word = checks.text(value, place, expected=f"one of {', '.join(choices)}")
    by_case = {choice.lower(): choice for choice in choices}
    if word.lower() not in by_case:
        raise place.error(f"expected one of {', '.join(choices)}, got {checks.described(value)}")
    return by_case[word.lower()]


def number_at(value: object, place: Place, number: Number) -> float:
    """A number, or a quantity of Kubernetes in text (`"0.05"`, `"500m"`), within the bounds of what takes it.

    Raises:
        ConfigError: it is none, or out of bounds.
    """
    read = value
    if isinstance(value, str) and (exact := quantity(value)) is not None:
        read = float(exact)
    if isinstance(read, bool) or not isinstance(read, int | float) or not number.allows(read):
        raise place.error(f"expected {number.expected}, got {checks.described(value)}")
    return int(read) if number.whole else float(read)


def policy_to_mapping(policy: ScalePolicy) -> dict[str, Any]:
    """The mapping that `policy_from_mapping` makes the same policy from; what is at its default is left out."""
    settings = settings_of(policy)
    mapping: dict[str, Any] = {"hpa": True} if policy.plain else {}
    mapping["metrics"] = {
        goal.metric.value: "learned" if goal.target is None else _number(goal.target) for goal in policy.goals
    }
    mapping.update((key, _written(key, settings[key])) for key in FIELDS if key in settings)
    if policy.behavior is not None:
        mapping["behavior"] = behavior_mapping(policy)
    return mapping


def behavior_mapping(policy: ScalePolicy) -> dict[str, Any]:
    """The `behavior` of a policy as an HPA has it, without what the HPA fills in itself; empty where nothing is set."""
    settings = settings_of(policy) if policy.behavior is not None else {}
    behavior = {}
    for direction, name in BEHAVIOR.items():
        keys = {field: direction + ending for ending, field in _HPA_FIELD.items()}
        rules = {field: _written(key, settings[key]) for field, key in keys.items() if key in settings}
        if rules:
            behavior[name] = rules
    return behavior


def policy_to_yaml(policy: ScalePolicy) -> str:
    """The policy as YAML; `load_policy` makes the same policy from it."""
    return yaml.safe_dump(policy_to_mapping(policy), sort_keys=False)


def _written(key: str, value: Value) -> object:
    if isinstance(value, SelectPolicy):
        return value.value
    if isinstance(value, tuple):
        return [{"type": p.type.value, "value": p.value, "periodSeconds": p.period_s} for p in value]
    return "auto" if key == "lookahead" and value == AUTO else _number(value)


def _number(number: float) -> float:
    """24.0 as 24."""
    return int(number) if float(number).is_integer() and abs(number) < 1e15 else number
