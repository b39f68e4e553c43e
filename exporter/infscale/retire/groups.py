"""A replica of several Pods: a group of a LeaderWorkerSet, whose leader (rank 0) answers for all of it. Pure.

Source of the labels: sigs.k8s.io/lws api/leaderworkerset/v1/leaderworkerset_types.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from infscale.kube.objects import Pod
from infscale.retire.rules import Reason, Rule

NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
SEAT_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
SIZE_ANNOTATION = "leaderworkerset.sigs.k8s.io/size"

LEADER_SEAT = 0


@dataclass(frozen=True, slots=True)
class Group:
    """A whole group: its index, and its Pods by their seat, the leader first."""

    index: int
    pods: tuple[Pod, ...]


def index_of(pod: Pod) -> int | None:
    """The index of the group that a Pod belongs to; None where it belongs to none."""
    return _number(pod.labels.get(GROUP_LABEL))


def group_of(pods: Sequence[Pod], index: int) -> Group | Reason:
    """The group with an index, or what is not right with it, by name."""
    members = [pod for pod in pods if index_of(pod) == index]
    seats = [(_number(pod.labels.get(SEAT_LABEL)), pod) for pod in members]
    if without := [pod.name for seat, pod in seats if seat is None]:
        return _not_whole(index, f"{', '.join(without)} has no seat (label {SEAT_LABEL})")
    taken = Counter(seat for seat, _ in seats)
    for seat, count in sorted(taken.items(), key=lambda item: item[0] or 0):
        if count > 1:
            names = ", ".join(pod.name for own, pod in seats if own == seat)
            what = f"two leaders: {names}" if seat == LEADER_SEAT else f"seat {seat} is taken twice: {names}"
            return _not_whole(index, what)
    if not taken[LEADER_SEAT]:
        return _not_whole(index, f"no leader (seat {LEADER_SEAT}) among {', '.join(p.name for p in members) or 'none'}")
    ordered = tuple(pod for _, pod in sorted(seats, key=lambda pair: pair[0] or 0))
    size = _number(ordered[0].annotations.get(SIZE_ANNOTATION))
    if size is None:
        return _not_whole(index, f"leader {ordered[0].name} does not tell its size (annotation {SIZE_ANNOTATION})")
    if size != len(ordered) or max(seat or 0 for seat, _ in seats) >= size:
        return _not_whole(index, f"{len(ordered)} of {size} Pods: {', '.join(pod.name for pod in ordered)}")
    return Group(index, ordered)


def _not_whole(index: int, what: str) -> Reason:
    return Reason(Rule.GROUP, f"group {index}: {what}")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
