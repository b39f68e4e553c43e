"""One look at everything that a retirement's next step depends on: `Seen`, out of the API server and the members.

It asks for nothing but reads, with one exception: while the target is being taken out of rotation, its lease is kept
(`withdrawer`). Called by `passes`, once a pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from infscale.client_watch import ClientWatch
from infscale.kube.cluster import Cluster
from infscale.kube.errors import NotFound
from infscale.kube.objects import Pod, Workload
from infscale.retire.command import Claim, claim, sidecar_port
from infscale.retire.envelope import Clients, Envelope
from infscale.retire.groups import Group, group_of
from infscale.retire.member import HELD, REFUSED, Verdict, held
from infscale.retire.reader import MemberReader
from infscale.retire.record import Record, State
from infscale.retire.rotation import still_connected, still_served
from infscale.retire.router import still_routed
from infscale.retire.rules import Reason, Rule
from infscale.retire.seen import Choice, Presence, Seen
from infscale.retire.siblings import (
    LEADER_WORKER_SET,
    STATEFUL_SET,
    active,
    autoscaler_trouble,
    fleet_of,
    highest,
    number_of,
    selector_of,
    settled_trouble,
)
from infscale.retire.target import choose, drift, freeze, never_was_ready
from infscale.retire.withdrawer import Withdrawer
from infscale.scrape import Target

_READERS = 8
"""Replicas that are read at once while one is chosen."""


class Looker:
    """Looks at one workload.

    Args:
        cluster: the API.
        namespace: of the workload.
        withdrawer: keeps the target's lease.
        rotation: the page of a router that ignores readiness; None where there is none.
        clock, wall_clock: monotonic and Unix seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        withdrawer: Withdrawer,
        *,
        rotation: Target | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster, self._namespace, self._withdrawer = cluster, namespace, withdrawer
        self._reader = MemberReader(cluster, namespace, clock=clock)
        self._rotation, self._clock, self._wall_clock = rotation, clock, wall_clock
        self._watch: tuple[str, ClientWatch] | None = None  # of a target without a sidecar, by its UID

    def look(self, record: Record, workload: Workload, now_s: float) -> Seen:
        """What the record's state needs to know.

        Raises:
            KubeError: the API server did not tell.
        """
        if record.state is State.ADMITTED:
            return Seen(choice=self.choice(workload))
        target = record.members[0]
        try:
            pod = self._cluster.pod(self._namespace, target.name)
        except NotFound:
            return Seen(presence=Presence.GONE)
        if pod.uid != target.uid:
            return Seen(presence=Presence.GONE)
        if pod.deleting:
            return Seen(presence=Presence.LEAVING)
        if record.state is State.SETTLING:
            return Seen()
        deleting, several = record.state is State.DELETING, workload.kind == LEADER_WORKER_SET
        needed = deleting or several or self._rotation is not None
        pods = self._cluster.pods(self._namespace, selector_of(workload)) if needed else []
        seen = self._never_ready(pod) or self._ready(record, workload, pod, pods, now_s)
        return replace(seen, fleet=fleet_of(workload, pods, record)) if deleting else seen

    def choice(self, workload: Workload) -> Choice:
        """Who is to leave; nothing is changed."""
        if refusal := autoscaler_trouble(workload, self._cluster.autoscalers(self._namespace, workload)):
            return Choice(refusal=refusal)
        if not workload.spec_replicas:
            return Choice(refusal=Reason(Rule.NO_TARGET, f"{workload} asks for no replica"))
        pods = active(self._cluster.pods(self._namespace, selector_of(workload)))
        if trouble := settled_trouble(workload, pods):
            return Choice(hold=trouble)
        if workload.kind == LEADER_WORKER_SET:
            return self._choice_of_group(workload, pods)
        if workload.kind == STATEFUL_SET:
            last = highest(workload, pods)
            return self._choose([pod for pod in pods if number_of(workload, pod) == last], fixed=True)
        return self._choose(pods)

    def _choose(self, pods: Sequence[Pod], *, fixed: bool = False) -> Choice:
        claims = {pod.name: _claim_alone(pod) for pod in pods}
        read = [pod for pod in pods if not never_was_ready(pod) and isinstance(claims[pod.name], Claim)]
        return choose(pods, claims, self._loads(read, claims), fixed=fixed)

    def _loads(self, pods: Sequence[Pod], claims: dict[str, Claim | Verdict]) -> dict[str, Verdict]:
        def load(pod: Pod) -> Verdict:
            """What one Pod has in flight, or what is not right with it."""
            found = claims[pod.name]
            return self._reader.load(pod, found) if isinstance(found, Claim) else found

        if not pods:
            return {}
        with ThreadPoolExecutor(min(_READERS, len(pods)), "load") as pool:
            return dict(zip([pod.name for pod in pods], pool.map(load, pods), strict=True))

    def _choice_of_group(self, workload: Workload, pods: Sequence[Pod]) -> Choice:
        """The highest group, whole; its leader first."""
        group = group_of(pods, highest(workload, pods) or 0)
        if isinstance(group, Reason):
            return Choice(hold=group)
        leader = group.pods[0]
        if found := _disagreement(group):
            return Choice(refusal=found.reason) if found.kind == REFUSED else Choice(hold=found.reason)
        claimed = claim(leader)
        read = [] if never_was_ready(leader) or isinstance(claimed, Verdict) else [leader]
        chosen = choose([leader], {leader.name: claimed}, self._loads(read, {leader.name: claimed}), fixed=True)
        members = list(chosen.members)
        for pod in group.pods[1:] if members else ():
            frozen = freeze(pod, _engine_container(pod))
            if isinstance(frozen, Reason):
                return Choice(hold=frozen)
            members.append(frozen)
        return replace(chosen, members=tuple(members))

    def _never_ready(self, pod: Pod) -> Seen | None:
        """A target that never was ready leaves without reads; its sidecar, where it runs, keeps it from getting so."""
        if not never_was_ready(pod):
            return None
        if pod.phase == "Running" and sidecar_port(pod):
            self._withdrawer.keep(pod)
        return Seen(never_ready=True)

    def _ready(self, record: Record, workload: Workload, pod: Pod, pods: Sequence[Pod], now_s: float) -> Seen:
        """Whether requests can reach the target, and what a read of it says; `pods`: the workload's, where needed."""
        if moved := drift(record.members[0], pod):
            return Seen(in_rotation=moved, verdict=Verdict(HELD, moved))
        not_kept = self._withdrawer.keep(pod) if sidecar_port(pod) else None
        if record.state is State.WITHDRAWING:
            envelope, verdict, own_connection = self._reader.envelope(pod), None, False
        else:
            read = self._reader.read(record.members[0], pod)
            envelope, own_connection = read.envelope, read.reaches_engine
            verdict = _members_verdict(record, workload, pods) or read.verdict
        in_rotation = (
            not_kept
            or self._not_withdrawn(envelope)
            or self._still_served(workload, pod)
            or self._still_routed(record, pods)
            or self._still_connected(pod, envelope, own_connection, now_s)
        )
        return Seen(in_rotation=in_rotation, verdict=verdict)

    def _not_withdrawn(self, envelope: Envelope | Reason | None) -> Reason | None:
        if isinstance(envelope, Envelope) and not envelope.withdrawn:
            self._withdrawer.forget()
            return Reason(Rule.NOT_WITHDRAWN, "its sidecar says that it is in rotation: it is asked again")
        return envelope if isinstance(envelope, Reason) else None

    def _still_served(self, workload: Workload, pod: Pod) -> Reason | None:
        """The Services in front of the Pod that answers. A LeaderWorkerSet's own Service only lists its group."""
        discovery = (workload.name, pod.name) if workload.kind == LEADER_WORKER_SET else ()
        return still_served(self._cluster.endpoints(self._namespace, pod), discovery)

    def _still_routed(self, record: Record, pods: Sequence[Pod]) -> Reason | None:
        if self._rotation is None:
            return None
        own = {member.uid for member in record.members}
        members, siblings = ([p for p in pods if (p.uid in own) is is_own] for is_own in (True, False))
        return still_routed(self._rotation, members, siblings)

    def _still_connected(
        self, pod: Pod, envelope: Envelope | Reason | None, own_connection: bool, now_s: float
    ) -> Reason | None:
        """The engine's clients.

        Where the page is the engine's own, the API server keeps the connection of our reads open: then only a client
        with bytes under way counts, once it was found that there was none.
        """
        clients = envelope.clients if isinstance(envelope, Envelope) else self._clients_by_exec(pod)
        if own_connection and clients is not None:
            queued = f"{clients.queued:g} connection(s) with bytes under way"
            return Reason(Rule.CLIENTS, queued) if clients.queued else None
        return still_connected(clients, now_s)

    def _clients_by_exec(self, pod: Pod) -> Clients | None:
        found = claim(pod)
        if isinstance(found, Verdict):
            return None
        if self._watch is None or self._watch[0] != pod.uid:
            looks = [lambda: self._reader.clients_by_exec(pod, found)]
            self._watch = (pod.uid, ClientWatch(looks, clock=self._clock, wall_clock=self._wall_clock))
        seen = self._watch[1].look()
        if seen is None:
            return None
        return Clients(seen.established, seen.queued, seen.last_seen_at, seen.looked_since, seen.looked_at)


def _claim_alone(pod: Pod) -> Claim | Verdict:
    """The engine of a Pod that is a replica by itself."""
    found = claim(pod)
    if isinstance(found, Claim) and found.nodes > 1:
        why = f"pod {pod.name} is one of {found.nodes} of an engine (--nnodes), and nothing names the others"
        return held(Rule.GROUP, f"{why}: run it as a LeaderWorkerSet")
    return found


def _disagreement(group: Group) -> Verdict | None:
    """What the members' commands say against the leader's, which answers for all: a role, or another engine.

    A worker that no profile claims is well: with Ray the leader alone runs the engine.
    """
    leader = claim(group.pods[0])
    for pod in group.pods[1:]:
        found = claim(pod)
        if isinstance(found, Verdict) and found.reason.rule is not Rule.UNCLAIMED:
            return Verdict(found.kind, Reason(found.reason.rule, f"pod {pod.name}: {found.reason.detail}"))
        if isinstance(found, Claim) and isinstance(leader, Claim) and found.engine != leader.engine:
            why = f"leader {group.pods[0].name} runs {leader.engine}, {pod.name} runs {found.engine}"
            return held(Rule.DISAGREE, why)
    return None


def _members_verdict(record: Record, workload: Workload, pods: Sequence[Pod]) -> Verdict | None:
    """For a target of several Pods: whether the group is whole still, and each the same; None if all is well."""
    if workload.kind != LEADER_WORKER_SET:
        return None
    by_uid = {pod.uid: pod for pod in pods}
    leader = by_uid.get(record.members[0].uid)
    index = number_of(workload, leader) if leader else None
    group = group_of(pods, -1 if index is None else index)
    if isinstance(group, Reason):
        return Verdict(HELD, group)
    if len(group.pods) != len(record.members):
        return held(Rule.GROUP, f"group {index} has {len(group.pods)} Pods, and had {len(record.members)}")
    if found := _disagreement(group):
        return found
    for frozen, pod in zip(record.members, group.pods, strict=True):
        if moved := drift(frozen, pod):
            return Verdict(HELD, moved)
    return None


def _engine_container(pod: Pod) -> str:
    """The container whose restarts count: the engine's, or the first of a worker that runs none itself."""
    found = claim(pod)
    return found.container.name if isinstance(found, Claim) else pod.containers[0].name
