"""Which replica leaves, frozen as it is; and whether a Pod is still the one that was frozen. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from infscale.kube.objects import Pod
from infscale.retire.command import Claim
from infscale.retire.member import HELD, REFUSED, Verdict
from infscale.retire.record import Frozen
from infscale.retire.rules import Reason, Rule
from infscale.retire.seen import Choice

FIRST_STATUS_S = 1.0
"""The kubelet writes a Pod's start and its first Ready condition at once, but each is cut to whole seconds."""

_ORDINAL = re.compile(r".+-([0-9]+)")


def never_was_ready(pod: Pod) -> bool:
    """Whether a Pod never was ready: it has no Ready condition yet, or one that is as it was at the Pod's start.

    Source: kubernetes pkg/kubelet/status/status_manager.go: the condition's transition time is set with the first
    status, as the start time is, and again only when its status changes.
    """
    if pod.ready == "True":
        return False
    if any(container.restart_count for container in pod.containers):
        return False  # it may have been ready in the life before
    if pod.ready is None or pod.start_s is None or pod.ready_since_s is None:
        return pod.phase == "Pending"
    return pod.ready_since_s - pod.start_s <= FIRST_STATUS_S


def freeze(pod: Pod, container: str) -> Frozen | Reason:
    """A Pod as it is now, or why it cannot be frozen: by Pod UID, container id and restart count 0."""
    engine = pod.container(container)
    if engine is None:
        return Reason(Rule.DRIFTED, f"pod {pod.name} has no container {container}")
    if engine.restart_count:
        return _restarted(pod, engine.restart_count)
    if pod.owner is None:
        return Reason(Rule.NO_TARGET, f"pod {pod.name} belongs to no controller: scaling down would not take it away")
    return Frozen(pod.name, pod.uid, container, engine.container_id or "", pod.owner.uid, pod.ip)


def drift(frozen: Frozen, pod: Pod) -> Reason | None:
    """How a Pod differs from what was frozen; None if it is the same. Where nothing ran yet, the first start counts."""
    engine = pod.container(frozen.container)
    if pod.uid != frozen.uid:
        return Reason(Rule.DRIFTED, f"pod {pod.name} is another one: UID {pod.uid}, not {frozen.uid}")
    if engine is None:
        return Reason(Rule.DRIFTED, f"pod {pod.name} has no container {frozen.container} any more")
    if engine.restart_count:
        return _restarted(pod, engine.restart_count)
    if frozen.container_id and engine.container_id != frozen.container_id:
        return Reason(Rule.RESTARTED, f"pod {pod.name}: container {frozen.container} is another one than was chosen")
    if (pod.owner.uid if pod.owner else "") != frozen.owner_uid:
        return Reason(Rule.DRIFTED, f"pod {pod.name} belongs to another controller than when it was chosen")
    if frozen.ip and pod.ip != frozen.ip:
        return Reason(Rule.DRIFTED, f"pod {pod.name} has another address: {pod.ip or 'none'}, not {frozen.ip}")
    return None


def _restarted(pod: Pod, count: int) -> Reason:
    return Reason(Rule.RESTARTED, f"pod {pod.name}: its engine restarted {count} time(s): its past is unknown")


def ordinal(pod: Pod) -> int | None:
    """A StatefulSet's number of a Pod: the end of its name."""
    match = _ORDINAL.fullmatch(pod.name)
    return int(match[1]) if match else None


def choose(
    pods: Sequence[Pod], claims: Mapping[str, Claim | Verdict], loads: Mapping[str, Verdict], *, fixed: bool = False
) -> Choice:
    """The target among the replicas that may be chosen: still starting first, then the least in flight.

    Args:
        pods: one for each replica.
        claims: by Pod name: its engine, or the verdict where it has none.
        loads: by Pod name: what those that were ready have in flight; a Pod that is not there never was ready.
        fixed: there is one candidate only (the highest ordinal), whatever its load.

    Returns:
        The target; or why there is none: refused where every replica is, held where one may do later.
    """
    unfit: list[Verdict] = []
    fit: list[tuple[tuple[float, float, float, str], Frozen]] = []
    for pod in pods:
        found = claims[pod.name]
        load = found if isinstance(found, Verdict) else loads.get(pod.name)
        if isinstance(found, Verdict) or (load and (load.kind == REFUSED or (load.inflight is None and not fixed))):
            unfit.append(load or Verdict(HELD, Reason(Rule.NO_TARGET, "nothing is known of it")))
            continue
        frozen = freeze(pod, found.container.name)
        if isinstance(frozen, Reason):
            unfit.append(Verdict(HELD, frozen))
            continue
        inflight = load.inflight or 0.0 if load else 0.0
        fit.append(((load is not None, inflight, -pod.creation_s, pod.name), frozen))
    if fit:
        return Choice((min(fit)[1],))
    if not unfit:
        return Choice(refusal=Reason(Rule.NO_TARGET, "the workload has no replica that could leave"))
    holding = [verdict.reason for verdict in unfit if verdict.kind == HELD]
    return Choice(hold=holding[0]) if holding else Choice(refusal=unfit[0].reason)
