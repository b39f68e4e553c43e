"""To zero and back: idleness, the cooldown, the last replica, and the first one.

Used by `core.layer` where the minimum is 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from infscale.core.decision import Reason, Step
from infscale.core.demand import View, usable
from infscale.core.memory import Memory, ScaleState
from infscale.core.policy import ScalingRules, SelectPolicy
from infscale.core.replicas import Fleet, Replica
from infscale.core.scaling import ScalePolicy
from infscale.core.work import fell

SHORTEST_COOLDOWN_S = 300.0
COOLDOWN_COLD_STARTS = 3


def is_idle(view: View, before: Mapping[str, Memory], after: Mapping[str, Memory]) -> bool:
    """Whether it is certain that nothing is asked of the workload.

    Certain: every replica that should gave a value, and so did the activator where there is one. Nothing: no request
    runs, waits or is held, and no token counter moved since the last look: requests shorter than the time between two
    looks leave no other trace. Requests on draining replicas are somebody's too: the last replica outlives them.
    """
    if view.failure or view.held_unknown or view.held > 0 or len(view.serving) < view.expected:
        return False
    leaving = [replica for replica in view.draining if usable(replica.inflight)]
    seen = [*view.serving, *leaving]
    if not seen or not all(usable(replica.inflight) for replica in seen):
        return False
    return not any(_busy(replica) or _moved(replica.name, before, after) for replica in seen)


def last_activity_s(fleet: Fleet, state: ScaleState, *, idle: bool) -> float:
    """When there was or may have been a request: now where it is not idle, now where it is unknown."""
    known = [
        min(time_s, fleet.now_s) for time_s in (state.last_activity_s, fleet.last_activity_s) if time_s is not None
    ]
    return max(known) if idle and known else fleet.now_s


def cooldown_s(policy: ScalePolicy, state: ScaleState) -> float:
    """How long it has to be idle: as given, else the larger of 300 s and three cold starts."""
    if policy.cooldown_s is not None:
        return policy.cooldown_s
    return max(SHORTEST_COOLDOWN_S, COOLDOWN_COLD_STARTS * state.cold_start_s)


def to_zero(
    policy: ScalePolicy, state: ScaleState, current: int, replicas: int, idle_s: float | None
) -> tuple[Step, ...]:
    """After the cooldown 1 first, whatever the windows and limits, then 0; before it never below 1.

    `idle_s` is how long it was idle; None: it is not certain that it is.
    """
    wait_s = cooldown_s(policy, state)
    said = "not certain that it is idle" if idle_s is None else f"idle for {idle_s:.6g} of {wait_s:.6g} s"
    steps = []
    if replicas == 0:
        steps.append(Step("to_zero", 0, 1, Reason.COOLDOWN, f"1 instead of 0: {said}"))
    if (
        idle_s is not None
        and idle_s >= wait_s
        and not _disabled(policy.behavior.scale_down if policy.behavior else None)
    ):
        after = 1 if current > 1 else 0
        steps.append(Step("to_zero", max(1, replicas), after, Reason.IDLE_TO_ZERO, f"{after}: {said}"))
    return tuple(steps)


def from_zero(policy: ScalePolicy, view: View, replicas: int) -> tuple[Step, ...]:
    """From 0 any held request gives at least 1.

    The HPA's own limit can stand against that: a percentage of nothing is nothing, and an up window waits.
    """
    if replicas > 0 or view.held <= 0 or _disabled(policy.behavior.scale_up if policy.behavior else None):
        return ()
    return (Step("from_zero", 0, 1, Reason.ACTIVATE_FROM_ZERO, f"1: {view.held:.6g} requests are held"),)


def _disabled(rules: ScalingRules | None) -> bool:
    return rules is not None and rules.select_policy is SelectPolicy.DISABLED


def _busy(replica: Replica) -> bool:
    return any(value is not None and value > 0 for value in (replica.inflight, replica.running, replica.waiting))


def _moved(name: str, before: Mapping[str, Memory], after: Mapping[str, Memory]) -> bool:
    """Whether tokens were counted between the last look and this one; after a restart, since the restart."""
    old, new = before.get(name, Memory()).marks, after.get(name, Memory()).marks
    if not old or not new:
        return False
    last, now = old[-1], new[-1]
    if fell(last, now):
        return now.generation_tokens > 0 or now.prompt_tokens > 0
    return now.generation_tokens > last.generation_tokens or now.prompt_tokens > last.prompt_tokens
