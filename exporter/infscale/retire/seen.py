"""What one look at the cluster saw, as values: `look` makes them, `protocol` decides by them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from infscale.retire.member import Verdict
from infscale.retire.record import Frozen
from infscale.retire.rules import Reason


class Presence(Enum):
    """Whether the target is there."""

    HERE = "here"
    LEAVING = "leaving"
    """It has its deletion timestamp."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Choice:
    """What choosing the target came to: its Pods, or why there is none (yet, or for good)."""

    members: tuple[Frozen, ...] = ()
    hold: Reason | None = None
    refusal: Reason | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workload around the target.

    Attributes:
        replicas: what it asks for now.
        active: the replicas that are there and do not leave, the target included.
        trouble: a sibling that is pending or unready, a roll-out, a count that has not settled; None if all is well.
        steered: whether who leaves is chosen by deletion cost (a Deployment), not by ordinal.
        cost: the target's deletion cost now, where the annotation is ours; None where there is none.
        foreign_cost: the target's deletion cost where another wrote it.
        lowest_other: the lowest deletion cost of a sibling; None without siblings.
    """

    replicas: int
    active: int
    trouble: Reason | None = None
    steered: bool = True
    cost: int | None = None
    foreign_cost: int | None = None
    lowest_other: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look saw. Which parts are filled depends on the record's state.

    Attributes:
        fault: the look itself failed.
        choice: while Admitted: who it is to be.
        presence: of the target.
        never_ready: the target never was ready, and is not now.
        in_rotation: why requests may still reach the target; None if they cannot.
        verdict: of the read of the member that answers; None where none was made.
        fleet: the workload, while Deleting.
    """

    fault: Reason | None = None
    choice: Choice | None = None
    presence: Presence = Presence.HERE
    never_ready: bool = False
    in_rotation: Reason | None = None
    verdict: Verdict | None = None
    fleet: Fleet | None = None
