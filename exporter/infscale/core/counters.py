"""What two looks at a fleet tell that one does not: rates, histogram growth, cold starts, idleness.

`remember` makes the next state's counters from the present fleet. Only what the policy needs is kept, and only of
replicas that are there. Used by `core.layer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from infscale.core.demand import View
from infscale.core.memory import MOST_COLD_STARTS, Memory, ScaleState
from infscale.core.replicas import Fleet, Phase
from infscale.core.scaling import MetricName, ScalePolicy
from infscale.core.ttft import Layouts, added
from infscale.core.work import Load, learned, load_of, mark_of, marked
from infscale.core.zero import is_idle, last_activity_s

LONGEST_GAP_S = 60.0
"""Between two looks whose difference dates a replica's first answer; a longer one would count as part of the start."""


@dataclass(frozen=True, slots=True)
class Differences:
    """What the present look and the last one tell together.

    Attributes:
        load: tokens per second.
        ttft: what came to the TTFT histograms, by layout, and how many replicas could tell.
        idle_s: for how long nothing was asked of the workload; None where that is not certain, or does not matter.
        cold_starts_s: the starts that ended since the last look.
    """

    load: Load
    ttft: tuple[Layouts, int]
    idle_s: float | None
    cold_starts_s: tuple[float, ...]


def remember(policy: ScalePolicy, fleet: Fleet, view: View, state: ScaleState) -> tuple[ScaleState, Differences]:
    """The state with the present counters, and what changed since the last ones."""
    metrics = {goal.metric for goal in policy.goals}
    to_zero = policy.min_replicas == 0 and not policy.plain
    tokens = to_zero or policy.guard is not None or MetricName.WORK in metrics
    histograms = MetricName.TTFT in metrics
    before = state.replicas
    after = _memories(fleet, before, tokens=tokens, histograms=histograms) if tokens or histograms else {}
    ttft = added(view.serving, before) if histograms else ({}, 0)
    idle = to_zero and is_idle(view, before, after)
    active_s = last_activity_s(fleet, state, idle=idle)
    starts_s = _cold_starts_s(fleet, view, state)
    state = replace(
        state,
        evaluated_s=fleet.now_s,
        last_activity_s=active_s if to_zero else state.last_activity_s,
        replicas=after,
        starting=tuple([replica.name for replica in view.starting]),
        cold_starts_s=(*state.cold_starts_s, *starts_s)[-MOST_COLD_STARTS:],
    )
    if tokens:
        state = replace(state, learned=learned(policy, view, state, fleet.now_s))
    idle_s = fleet.now_s - active_s if idle else None
    return state, Differences(load_of(policy, view, after, fleet.now_s), ttft, idle_s, starts_s)


def _memories(fleet: Fleet, before: Mapping[str, Memory], *, tokens: bool, histograms: bool) -> dict[str, Memory]:
    """The counters of each replica that is there; of one that gives none now, those of before."""
    memories = {}
    for replica in fleet.replicas:
        memory = before.get(replica.name, Memory())
        if replica.phase in (Phase.SERVING, Phase.DRAINING) and not fleet.failure:
            mark = mark_of(replica, fleet.now_s) if tokens else None
            memory = Memory(
                marked(memory.marks, mark) if mark is not None else memory.marks,
                replica.ttft if histograms and replica.ttft else memory.ttft,
            )
        if memory.marks or memory.ttft:
            memories[replica.name] = memory
    return memories


def _cold_starts_s(fleet: Fleet, view: View, state: ScaleState) -> tuple[float, ...]:
    """From creation to the first served read, of replicas that were seen before they served.

    A replica that already served at the first look tells when it was created, not when it was ready.
    """
    if state.evaluated_s is None or fleet.now_s - state.evaluated_s > LONGEST_GAP_S:
        return ()
    starting = set(state.starting)
    starts_s = []
    for replica in view.serving:
        if replica.created_s is None:
            continue
        if replica.name in starting or replica.created_s > state.evaluated_s:
            served_s = fleet.now_s if replica.served_s is None else replica.served_s
            if replica.created_s < served_s <= fleet.now_s:
                starts_s.append(served_s - replica.created_s)
    return tuple(starts_s)
