"""Who is the one that scales: the rules of a Lease (coordination.k8s.io/v1), without any I/O.

A holder renews its Lease; another takes it once it has seen it unchanged for the Lease's duration *on its own clock*.
The times in the Lease are for people: they are the holder's clock, and one that is wrong must neither lose the Lease
nor keep it for ever. Source: client-go tools/leaderelection, `tryAcquireOrRenew` and `isLeaseValid`. `leases` does the
I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as it stands.

    Attributes:
        namespace: where.
        name: its name.
        holder: who has it: an identity that no other process shares; empty if it was given back.
        duration_s: how long it is good without a renewal.
        acquired_s: when the holder got it (Unix seconds, the holder's clock); None if it does not say.
        renewed_s: when it was last renewed, likewise.
        transitions: how often it changed hands.
        resource_version: changes with each write.
    """

    namespace: str
    name: str
    holder: str
    duration_s: int
    acquired_s: float | None
    renewed_s: float | None
    transitions: int
    resource_version: str


class Step(Enum):
    """What to do about a Lease that one wants."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def next_step(lease: Lease | None, identity: str, now_s: float, unchanged_since_s: float) -> Step:
    """What to do now.

    Args:
        lease: as it stands; None if there is none.
        identity: who asks.
        now_s: now.
        unchanged_since_s: when the asker first saw it as it stands, on the clock of `now_s`.
    """
    if lease is None:
        return Step.CREATE
    if lease.holder == identity:
        return Step.RENEW
    if not lease.holder or now_s - unchanged_since_s >= lease.duration_s:
        return Step.TAKE
    return Step.WAIT


def renewed(lease: Lease, duration_s: int, now_s: float) -> Lease:
    """The Lease to write for its holder to keep it."""
    return replace(lease, duration_s=duration_s, renewed_s=now_s)


def taken(lease: Lease, identity: str, duration_s: int, now_s: float) -> Lease:
    """The Lease to write for it to change hands."""
    return replace(
        lease,
        holder=identity,
        duration_s=duration_s,
        acquired_s=now_s,
        renewed_s=now_s,
        transitions=lease.transitions + 1,
    )


def given_back(lease: Lease, now_s: float) -> Lease:
    """The Lease to write for anybody to take it at once. Source: client-go, `release`: duration 1 s, no holder."""
    return replace(lease, holder="", duration_s=1, renewed_s=now_s)
