"""What is remembered of a retirement from pass to pass: the record. Pure values; `persisted` writes and reads them.

Times are Unix seconds, so that a controller that is started anew, on another machine even, goes on with the budgets
where they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from infscale.retire.rules import Rule


class State(Enum):
    """Where a retirement is; `protocol` says when it leaves."""

    ADMITTED = "Admitted"
    WITHDRAWING = "Withdrawing"
    DRAINING = "Draining"
    DELETING = "Deleting"
    SETTLING = "Settling"
    COMPLETED = "Completed"
    ABORTED = "Aborted"

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return self in (State.COMPLETED, State.ABORTED)

    @property
    def may_abort(self) -> bool:
        """Whether nothing was taken away yet: from Deleting on nothing aborts."""
        return self in (State.ADMITTED, State.WITHDRAWING, State.DRAINING)


@dataclass(frozen=True, slots=True)
class Frozen:
    """One Pod of the target, as it was when it was chosen.

    Attributes:
        name, uid: of the Pod.
        container: the engine's container.
        container_id: of that container; empty while it never ran. Its restart count was 0.
        owner_uid: of the Pod's controller.
        ip: the Pod's address; empty before it has one.
    """

    name: str
    uid: str
    container: str
    container_id: str
    owner_uid: str
    ip: str


@dataclass(frozen=True, slots=True)
class IdleRead:
    """The first of the two idle reads.

    Attributes:
        at_s: when it was made.
        engine_read_at_s: when the sidecar read the engine, on the sidecar's clock; None where nobody says.
        counters: a digest of the monotonic counters.
        started_at_s: the engine's start; None where the page does not tell.
    """

    at_s: float
    engine_read_at_s: float | None
    counters: str
    started_at_s: float | None


@dataclass(frozen=True, slots=True)
class Cut:
    """The scale, patched down by one; written before it is done, so that it is never done twice.

    Attributes:
        before, after: the replicas.
        at_s: when it was decided.
        done: whether the API server confirmed it.
    """

    before: int
    after: int
    at_s: float
    done: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A retirement.

    Attributes:
        workload: as a person names it: `deployment ml/vllm`.
        workload_uid: of the workload; another one of that name is not this one's.
        state: where it is.
        started_s: when it was admitted.
        since_s: when it entered its state.
        members: the target's Pods, the one that answers first; empty before it is chosen.
        idle: the first idle read, while it counts.
        cut: the patch of the scale.
        reason: why it ended as it did; empty before.
    """

    workload: str
    workload_uid: str
    state: State
    started_s: float
    since_s: float
    members: tuple[Frozen, ...] = ()
    idle: IdleRead | None = None
    cut: Cut | None = None
    reason: str = ""

    @property
    def target(self) -> str:
        """The name of the target's first Pod; empty before it is chosen."""
        return self.members[0].name if self.members else ""

    @property
    def called_off(self) -> bool:
        """Whether it was aborted because the replica was wanted again, and not because something held it."""
        return self.state is State.ABORTED and self.reason.startswith(f"{Rule.CANCELLED.value}: ")
