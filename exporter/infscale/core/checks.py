"""Contradictions: whether a policy can be meant as it stands. Every way to write one ends here.

Each fault names the key of the grammar that is wrong, so that a reader of text, YAML or flags can point at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from infscale.core.policy import ScalingPolicy
from infscale.core.scaling import AUTO, MetricName, ScalePolicy
from infscale.core.settings import CHANGE, NUMBERS, PERIOD, TARGETS, Number, Value, number_text, settings_of
from infscale.errors import PolicyError

_WAKING = frozenset({MetricName.QUEUE, MetricName.WAITING, MetricName.RUNNING})
"""The metrics that requests have where there is no replica."""

_BEYOND_HPA = ("lookahead", "cooldown", "coverage", "guard", "knee")
"""The keys of what `hpa:` leaves out."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a policy.

    Attributes:
        key: the key of the grammar at fault (`min`, `down`, `upwindow`), or the name of a metric.
        words: why, and what was expected, for a person.
    """

    key: str
    words: str


def check_policy(policy: ScalePolicy) -> None:
    """Refuse a policy with a number out of its bounds, or that contradicts itself.

    Raises:
        PolicyError: the first fault, as `policy: max: the maximum 2 is below the minimum 3`.
    """
    for fault in faults(policy):
        raise PolicyError(f"policy: {fault.key}: {fault.words}")


def faults(policy: ScalePolicy) -> Iterator[Fault]:
    """All that is wrong with a policy, the plainest first; nothing for one that can be used."""
    yield from _goals(policy)
    settings = settings_of(policy)
    for key, value in settings.items():
        yield from _setting(key, value)
    if policy.max_replicas < policy.min_replicas:
        yield Fault("max", f"the maximum {policy.max_replicas} is below the minimum {policy.min_replicas}")
    yield from _zero(policy)
    for key in _BEYOND_HPA:
        if policy.plain and key in settings:
            yield Fault(key, "hpa: takes only what the HPA itself has, and it has no such setting")


def _goals(policy: ScalePolicy) -> Iterator[Fault]:
    if not policy.goals:
        yield Fault("metrics", "none is given; expected at least one, as queue:24")
    seen: set[MetricName] = set()
    for goal in policy.goals:
        if goal.metric in seen:
            yield Fault(goal.metric, "given twice; the smaller target alone would count, leave out the other")
        seen.add(goal.metric)
        number = TARGETS[goal.metric]
        if goal.target is None:
            if goal.metric is not MetricName.WORK:
                yield Fault(goal.metric, f"a target that is learned exists for work alone; expected {number.expected}")
        elif not number.allows(goal.target):
            yield Fault(goal.metric, f"expected {number.expected}, got {number_text(goal.target)}")


def _setting(key: str, value: Value) -> Iterator[Fault]:
    if isinstance(value, tuple):
        yield from _scaling_policies(key, value)
    elif key in NUMBERS and isinstance(value, int | float) and not (key == "lookahead" and value == AUTO):
        yield from _number(key, NUMBERS[key], value)


def _scaling_policies(key: str, policies: tuple[ScalingPolicy, ...]) -> Iterator[Fault]:
    if not policies:
        yield Fault(key, "expected at least one scaling policy, as 4/15")
    for policy in policies:
        yield from _number(key, CHANGE[policy.type], policy.value)
        yield from _number(key, PERIOD, policy.period_s, "a period in ")


def _number(key: str, number: Number, value: float, what: str = "") -> Iterator[Fault]:
    if not number.allows(value):
        yield Fault(key, f"expected {what}{number.expected}, got {number_text(value)}")


def _zero(policy: ScalePolicy) -> Iterator[Fault]:
    """Zero is left by a request that waits; what is measured on replicas has no sample where there is none.

    Source: the HPA's API has the same rule (validation.go: "must specify at least one Object or External metric to
    support scaling to zero replicas").
    """
    metrics = {goal.metric for goal in policy.goals}
    if policy.min_replicas == 0 and metrics and not metrics & _WAKING:
        names = " and ".join(sorted(metrics))
        verb = "has" if len(metrics) == 1 else "have"
        words = f"at 0 replicas {names} {verb} no sample and would never wake them; take min 1, or add queue"
        yield Fault("min", words)


def without_effect(policy: ScalePolicy) -> tuple[str, ...]:
    """What is set and changes nothing, in words for a person; no error, since a search varies one part at a time."""
    metrics = {goal.metric for goal in policy.goals}
    settings = settings_of(policy)
    measured = policy.guard is not None or MetricName.WORK in metrics
    idle = {
        "knee": (measured, "guard or the metric work uses it"),
        "promptweight": (measured, "guard or the metric work uses it"),
        "quantile": (MetricName.TTFT in metrics, "the metric ttft uses it"),
        "cooldown": (policy.min_replicas == 0, "min=0 uses it"),
    }
    unused = [(key, why) for key, (used, why) in idle.items() if key in settings and not used]
    return tuple(f"{key} has no effect: only {why}" for key, why in unused)
