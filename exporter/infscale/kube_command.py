"""What `infscale kube` does in one turn: look, decide with the shared core, keep the state, and scale if asked to.

The turn is the evaluator's, for a person: what was seen is returned with the decision, a state that cannot be used is
refused, and a write that met another's is tried anew, with a new look and a new decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from infscale.applier import KubeApplier
from infscale.asked import Asked, settled
from infscale.core.layer import decide
from infscale.core.memory import MOST_READS, Read, ScaleState
from infscale.core.scale_decision import ScaleDecision
from infscale.core.scaling import ScalePolicy
from infscale.kube.cluster import Cluster
from infscale.kube.errors import KubeError
from infscale.kube.objects import Scale, Workload
from infscale.pod_pages import Look, PodPages
from infscale.state_file import write_state

TRIES = 3
"""Turns in a row, at most, while others write the same workload in between."""


@dataclass(frozen=True)
class Scaled:
    """What came of a decision.

    Attributes:
        applied: the workload asks for the decided count now.
        message: why it does not, or what else is to be known, in one line; empty where there is nothing to tell.
        changed: it does not, and another has written the workload meanwhile: look and decide anew.
        part_way: it does not, but was brought so far on the way there; None where it was not.
    """

    applied: bool
    message: str = ""
    changed: bool = False
    part_way: int | None = None


class Scaler(Protocol):
    """Scales a workload: by a plain write (`PlainScaler`), or down through the retirement protocol."""

    def scale(self, workload: Workload, decision: ScaleDecision, now_s: float) -> Scaled:
        """Do what was decided, or a step of it; also called where nothing changes, to go on with what was begun."""
        ...

    def stop(self) -> None:
        """Nothing is scaled any more: another may take over at once."""
        ...


class PlainScaler:
    """Writes the count, as the one that holds the Lease, and never beside another autoscaler.

    Args:
        applier: does it.
        cluster: is asked what came of it.
    """

    def __init__(self, applier: KubeApplier, cluster: Cluster) -> None:
        self._applier, self._cluster = applier, cluster

    def scale(self, workload: Workload, decision: ScaleDecision, now_s: float) -> Scaled:
        """See `Scaler`. Where it cannot be read what came of a write, the write's own word counts."""
        message = self._applier.apply(decision, now_s)
        if decision.desired == decision.current:
            return Scaled(False, message)
        try:
            scale = self._cluster.scale(workload)
        except KubeError:
            return Scaled(not message, message)
        if scale.spec_replicas == decision.desired:
            return Scaled(True, message)
        return self._not_applied(workload, decision, scale, message)

    def _not_applied(self, workload: Workload, decision: ScaleDecision, scale: Scale, message: str) -> Scaled:
        return Scaled(False, message, changed=scale.resource_version != workload.resource_version)

    def stop(self) -> None:
        """See `Scaler`."""
        self._applier.stop()


class RetiringScaler(PlainScaler):
    """Scales down through the retirement protocol, one replica at a time.

    Its record stands on the workload: that it has changed is no other's write.
    """

    def _not_applied(self, workload: Workload, decision: ScaleDecision, scale: Scale, message: str) -> Scaled:
        now, current, desired = scale.spec_replicas, decision.current, decision.desired
        between = current is not None and desired is not None and desired < now < current
        return Scaled(False, message, part_way=now if between else None)


@dataclass(frozen=True)
class Turn:
    """What one turn came to: what was seen, what was decided on that, and what came of it (None in a dry run)."""

    look: Look
    decision: ScaleDecision
    scaled: Scaled | None

    @property
    def change(self) -> bool:
        """Whether another count than the present one was decided."""
        return self.decision.direction != "none"


class KubeTurns:
    """Turns over one workload.

    Args:
        pages: its Pods.
        policy: what is asked for.
        state: the memory to begin with; `AT_ONCE`: no window holds the count.
        state_path: where it is kept; None: nowhere.
        scaler: scales; None: a dry run.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        pages: PodPages,
        policy: ScalePolicy,
        *,
        state: ScaleState,
        state_path: Path | None = None,
        scaler: Scaler | None = None,
        wall_clock: Callable[[], float],
    ) -> None:
        self._pages, self._policy, self._state, self._state_path = pages, policy, state, state_path
        self._scaler, self._wall_clock = scaler, wall_clock

    def turn(self) -> Turn:
        """One turn; where another wrote the workload in between, a few of them.

        Raises:
            SourceError: the workload or its Pods could not be read; nothing was scaled.
            StateError: the state cannot be kept; nothing more is scaled.
        """
        turn = self._turn()
        for _ in range(TRIES - 1):
            if turn.scaled is None or not turn.scaled.changed:
                break
            turn = self._turn()
        return turn

    def stop(self) -> None:
        """Nothing is scaled any more: another may take over at once."""
        if self._scaler is not None:
            self._scaler.stop()

    def _turn(self) -> Turn:
        """Look, decide, scale.

        The state is kept before anything is written, so that a change which a crash interrupts counts as made.
        """
        look, before = self._pages.look(self._wall_clock(), self._state.reads), self._state
        decision, after = decide(self._policy, look.fleet, before)
        decision = replace(decision, replicas=look.fleet.replicas)
        after = replace(after, reads=_kept(before, look))
        if self._scaler is None:
            self._keep(self._undone(before, after, decision, look))
            return Turn(look, decision, None)
        self._keep(after)
        scaled = self._scaler.scale(look.workload, decision, look.fleet.now_s)
        if not scaled.applied:
            self._keep(self._undone(before, after, decision, look, scaled.part_way))
        return Turn(look, decision, scaled)

    def _undone(
        self, before: ScaleState, after: ScaleState, decision: ScaleDecision, look: Look, part_way: int | None = None
    ) -> ScaleState:
        """The memory of a decision that was carried out in part or not: no other change counts against the limits."""
        if decision.current is None or decision.desired is None or decision.desired == decision.current:
            return after
        asked = Asked(before.hpa, look.fleet.now_s, decision.current, decision.desired)
        return settled(self._policy, after, asked, decision.current if part_way is None else part_way)

    def _keep(self, state: ScaleState) -> None:
        self._state = state
        if self._state_path is not None:
            write_state(self._state_path, state)


def _kept(before: ScaleState, look: Look) -> dict[str, Read]:
    """The Pods' counters for the next turn; of one that gave none now those of before."""
    found = {seen.pod.name: seen.read or before.reads.get(seen.pod.name) for seen in look.pods}
    return dict([(name, read) for name, read in found.items() if read is not None][:MOST_READS])
