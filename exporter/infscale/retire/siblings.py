"""The workload around the target: its replicas, and what is not as it must be before one is taken away. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infscale.kube.deletion_cost import is_foreign
from infscale.kube.objects import DELETION_COST, Owner, Pod, Workload
from infscale.retire.groups import NAME_LABEL, SEAT_LABEL, index_of
from infscale.retire.record import Record
from infscale.retire.rules import Reason, Rule
from infscale.retire.seen import Fleet
from infscale.retire.target import ordinal

DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET = "Deployment", "StatefulSet", "LeaderWorkerSet"
KINDS = (DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET)


def selector_of(workload: Workload) -> str:
    """What selects all Pods of a workload; the scale of a LeaderWorkerSet tells its leaders alone."""
    return f"{NAME_LABEL}={workload.name}" if workload.kind == LEADER_WORKER_SET else workload.selector


def active(pods: Iterable[Pod]) -> list[Pod]:
    """The Pods that are there to stay: neither leaving nor at their end."""
    return [pod for pod in pods if not pod.deleting and not pod.ended]


def number_of(workload: Workload, pod: Pod) -> int | None:
    """The ordinal of the replica that a Pod is or belongs to; None where it has none."""
    if workload.kind == LEADER_WORKER_SET:
        return index_of(pod)
    return ordinal(pod) if workload.kind == STATEFUL_SET else None


def highest(workload: Workload, pods: Sequence[Pod]) -> int | None:
    """The highest ordinal: the replica that a StatefulSet or LeaderWorkerSet gives up first."""
    return max((number for pod in pods if (number := number_of(workload, pod)) is not None), default=None)


def autoscaler_trouble(workload: Workload, owners: Iterable[Owner]) -> Reason | None:
    """The autoscalers that would choose who leaves by themselves."""
    scaling = [f"{owner.kind} {owner.name}" for owner in owners if not owner.scale_down_disabled]
    if not scaling:
        return None
    why = f"{', '.join(scaling)} scales {workload} down, and then the replica that leaves is the ReplicaSet's choice"
    return Reason(Rule.AUTOSCALER, f"{why}: set its scaleDown.selectPolicy to Disabled")


def settled_trouble(workload: Workload, pods: Sequence[Pod]) -> Reason | None:
    """A roll-out or a scaling that is under way; `pods` are the active ones."""
    if workload.kind != LEADER_WORKER_SET and workload.observed_generation < workload.generation:
        return Reason(Rule.UNSETTLED, f"the controller of {workload} has not seen its latest change yet")
    count = _count(workload, pods)
    if count != workload.spec_replicas:
        return Reason(Rule.UNSETTLED, f"{workload} asks for {workload.spec_replicas} replicas and has {count}")
    owners = {pod.owner.uid if pod.owner else "" for pod in pods}
    if workload.kind == DEPLOYMENT and len(owners) > 1:
        return Reason(Rule.UNSETTLED, f"{workload} rolls out: its Pods belong to {len(owners)} ReplicaSets")
    return None


def fleet_of(workload: Workload, pods: Sequence[Pod], record: Record) -> Fleet:
    """The workload around the record's target.

    Args:
        workload: as it is now.
        pods: all of its Pods.
        record: the retirement, its target chosen.
    """
    there = active(pods)
    own = {member.uid for member in record.members}
    siblings = [pod for pod in there if pod.uid not in own]
    target = next((pod for pod in pods if pod.uid == record.members[0].uid), None)
    cost = target.deletion_cost if target and DELETION_COST in target.annotations else None
    ours = target is not None and not is_foreign(target)
    trouble = (
        settled_trouble(workload, there)
        or (_ordinal_trouble(workload, there, target) if target else None)
        or _unready(siblings)
    )
    return Fleet(
        replicas=workload.spec_replicas,
        active=_count(workload, there),
        trouble=trouble,
        steered=workload.kind == DEPLOYMENT,
        cost=cost if ours else None,
        foreign_cost=None if ours else cost,
        lowest_other=min((pod.deletion_cost for pod in siblings), default=None),
    )


def _count(workload: Workload, pods: Sequence[Pod]) -> int:
    """Replicas; of a LeaderWorkerSet its groups, told by their leaders."""
    if workload.kind == LEADER_WORKER_SET:
        return sum(pod.labels.get(SEAT_LABEL) == "0" for pod in pods)
    return len(pods)


def _ordinal_trouble(workload: Workload, pods: Sequence[Pod], target: Pod) -> Reason | None:
    own, last = number_of(workload, target), highest(workload, pods)
    if own == last:
        return None
    return Reason(Rule.ORDINAL, f"pod {target.name} is number {own}, and {workload} gives up number {last} first")


def _unready(siblings: Iterable[Pod]) -> Reason | None:
    names = [pod.name for pod in siblings if pod.phase != "Running" or pod.ready != "True"]
    if not names:
        return None
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return Reason(Rule.SIBLINGS, f"{', '.join(names[:3])}{more}: the replicas that stay must be there to serve")
