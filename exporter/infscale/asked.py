"""What was asked for, and what came of it: only a change that was really made counts against the scaling policies.

The core notes a change when it decides it, as the HPA's controller does, which makes it in the same breath. Here an HPA
or KEDA makes it some seconds later, the API may refuse it, and in a dry run nobody makes it. The evaluator looks at the
next count that it reads and corrects the note. Without that, a recommendation that is followed late (KEDA polls each
30 s) would be withdrawn one evaluation after it was given, since it stood as done already. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from infscale.core.decide import record_change
from infscale.core.memory import ScaleState
from infscale.core.scaling import ScalePolicy
from infscale.core.signals import hpa_policy
from infscale.core.state import State


@dataclass(frozen=True)
class Asked:
    """A change that was decided.

    Attributes:
        before: the HPA layer's memory without it.
        time_s: when, Unix seconds.
        current: the count at that time.
        desired: the count that was decided.
    """

    before: State
    time_s: float
    current: int
    desired: int


def settled(policy: ScalePolicy, state: ScaleState, asked: Asked, replicas: int) -> ScaleState:
    """The state with as much of a change as was made.

    Source: horizontal.go, `reconcileAutoscaler`: an event is stored after the scale was updated, and only then.

    Args:
        policy: by which it was decided.
        state: the memory with the change as decided.
        asked: the change.
        replicas: the count as it was read next; what lies beyond the decided one was another's doing.
    """
    low, high = sorted((asked.current, asked.desired))
    made = min(max(replicas, low), high)
    if made == asked.desired:
        return state
    hpa = replace(
        state.hpa,
        scale_up_events=asked.before.scale_up_events,
        scale_down_events=asked.before.scale_down_events,
        scaled_to_zero=asked.before.scaled_to_zero,
    )
    return replace(state, hpa=record_change(hpa_policy(policy), hpa, asked.time_s, asked.current, made))
