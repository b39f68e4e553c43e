"""Limits: how far the count may go in one evaluation, and the history of changes that this rests on.

Without `behavior` the limit is a constant of the controller and needs no history; with it, each scaling policy counts
the changes of its own period. Used by `core.decide`.
"""

from __future__ import annotations

from infscale.core.decision import Condition, Reason, Step
from infscale.core.numbers import MAX_INT32, MIN_INT32, int32, whole_toward_zero, whole_up
from infscale.core.policy import Behavior, Policy, PolicyType, ScalingPolicy, ScalingRules, SelectPolicy
from infscale.core.state import ScaleEvent, State, stored

Events = tuple[ScaleEvent, ...]

_REASONS = {
    "ScaleUpLimit": Reason.RATE_LIMITED,
    "ScaleDownLimit": Reason.RATE_LIMITED,
    "TooManyReplicas": Reason.MAX,
    "TooFewReplicas": Reason.MIN,
    "DesiredWithinRange": None,
}


def limit(policy: Policy, state: State, now_s: float, current: int, desired: int) -> tuple[Step, Condition]:
    """The count that the limits let through, with the HPA's ScalingLimited condition."""
    if policy.behavior is None:
        replicas, cause = without_behavior(policy, current, desired)
    else:
        replicas, cause = with_behavior(policy, policy.behavior, state, now_s, current, desired)
    limited = replicas != desired
    words = f"{replicas} instead of {desired}: {cause}" if limited else f"{desired}: {cause}"
    return Step("limit", desired, replicas, _REASONS[cause], words), Condition("ScalingLimited", limited, cause)


def without_behavior(policy: Policy, current: int, desired: int) -> tuple[int, str]:
    """At most the larger of 2*S and 4, between the bounds; and the HPA's reason.

    Source: pkg/controller/podautoscaler/horizontal.go, `convertDesiredReplicasWithRules`, `calculateScaleUpLimit`.
    """
    controller = policy.controller
    up_limit = max(controller.scale_up_limit_factor * float(current), controller.scale_up_limit_minimum)
    most, too_many = policy.max_replicas, "TooManyReplicas"
    if most > whole_toward_zero(up_limit):
        most, too_many = whole_toward_zero(up_limit), "ScaleUpLimit"
    if desired < policy.min_replicas:
        return policy.min_replicas, "TooFewReplicas"
    if desired > most:
        return most, too_many
    return desired, "DesiredWithinRange"


def with_behavior(
    policy: Policy, behavior: Behavior, state: State, now_s: float, current: int, desired: int
) -> tuple[int, str]:
    """At most what the scaling policies of the direction allow, and within its bound; and the HPA's reason.

    An unchanged count is not held against any bound.

    Source: horizontal.go, `convertDesiredReplicasWithBehaviorRate`.
    """
    events = state.scale_up_events, state.scale_down_events
    if desired > current:
        up_limit = max(current, scale_up_limit(current, *events, behavior.scale_up, now_s))
        most, cause = policy.max_replicas, "TooManyReplicas"
        if most > up_limit:
            most, cause = up_limit, "ScaleUpLimit"
        if desired > most:
            return most, cause
    elif desired < current:
        down_limit = min(current, scale_down_limit(current, *events, behavior.scale_down, now_s))
        least, cause = policy.min_replicas, "TooFewReplicas"
        if least < down_limit:
            least, cause = down_limit, "ScaleDownLimit"
        if desired < least:
            return least, cause
    return desired, "DesiredWithinRange"


def scale_up_limit(current: int, added: Events, removed: Events, rules: ScalingRules, now_s: float) -> int:
    """The largest count that the up policies allow; `Disabled` allows the current one.

    For each policy: what the count was when its period began, plus `value` Pods, or times 1 + value/100 rounded up (so
    that a small count can grow at all). The percentage is float64: 50 + 10 % is 56, as 50 * 1.1 is 55.00000000000001.

    Source: horizontal.go, `calculateScaleUpLimitWithScalingRules`.
    """
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    allowed = []
    for policy in rules.policies:
        start = _period_start(current, added, removed, policy, now_s)
        if policy.type is PolicyType.PODS:
            allowed.append(int32(start + policy.value))
        else:
            allowed.append(whole_up(float(start) * (1 + float(policy.value) / 100)))
    if rules.select_policy is SelectPolicy.MIN:
        return min(allowed, default=MAX_INT32)
    return max(allowed, default=MIN_INT32)


def scale_down_limit(current: int, added: Events, removed: Events, rules: ScalingRules, now_s: float) -> int:
    """The smallest count that the down policies allow; `Disabled` allows the current one.

    For each policy: what the count was when its period began, less `value` Pods, or times 1 - value/100 with the
    fraction dropped. The percentage is float64: 90 - 30 % is 62, as 90 * 0.7 is 62.99999999999999. `Max` means the
    largest change, which is the smallest count.

    Source: horizontal.go, `calculateScaleDownLimitWithBehaviors`.
    """
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    allowed = []
    for policy in rules.policies:
        start = _period_start(current, added, removed, policy, now_s)
        if policy.type is PolicyType.PODS:
            allowed.append(int32(start - policy.value))
        else:
            allowed.append(whole_toward_zero(float(start) * (1 - float(policy.value) / 100)))
    if rules.select_policy is SelectPolicy.MIN:
        return max(allowed, default=MIN_INT32)
    return min(allowed, default=MAX_INT32)


def _period_start(current: int, added: Events, removed: Events, policy: ScalingPolicy, now_s: float) -> int:
    """The count when the policy's period began, as far as the core's own changes tell, in both directions."""
    return current - changed_within(policy.period_s, added, now_s) + changed_within(policy.period_s, removed, now_s)


def changed_within(period_s: float, events: Events, now_s: float) -> int:
    """The sum of the changes of age **<** period. Source: horizontal.go, `getReplicasChangePerPeriod`."""
    return sum(event.change for event in events if now_s - event.time_s < period_s)


def longest_period_s(rules: ScalingRules) -> int:
    """How long a change of this direction can matter. Source: horizontal.go, `getLongestPolicyPeriod`."""
    return max((policy.period_s for policy in rules.policies), default=0)


def store_event(events: Events, change: int, rules: ScalingRules, now_s: float) -> Events:
    """The history of one direction with a change added, in the place of the last outdated one where there is one.

    Outdated is of age **>** the direction's longest period.

    Source: horizontal.go, `storeScaleEvent` and `markScaleEventsOutdated`.
    """
    return stored(events, ScaleEvent(change, now_s), longest_period_s(rules))
