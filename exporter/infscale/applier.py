"""The recommender's `--apply`: one writer, which holds a Lease and refuses to scale beside another autoscaler.

Called by the evaluator after each decision. It never scales on a decision whose replica count is not the present one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from infscale.core.replicas import Phase, Replica
from infscale.core.scale_decision import ScaleDecision
from infscale.errors import UsageError
from infscale.kube.cluster import Cluster
from infscale.kube.deletion_cost import DeletionCosts
from infscale.kube.errors import KubeError
from infscale.kube.kinds import workload_target
from infscale.kube.lease import Lease
from infscale.kube.objects import Owner, Workload
from infscale.retirement import Retirement

log = logging.getLogger(__name__)

SHORTEST_LEASE_S = 5
"""A renewal is two calls of the API, which may be slow once."""

_RENEWALS = 3
"""Evaluations within a Lease: a writer that hangs is followed by another once it has missed as many."""

_BY_COST = ("Deployment", "ReplicaSet")
"""Kinds whose Pods a ReplicaSet chooses among, by their deletion cost."""


def lease_s(interval_s: float) -> int:
    """How long a Lease is good without a renewal, where each evaluation renews it: 45 s for the usual 15 s."""
    return max(SHORTEST_LEASE_S, round(_RENEWALS * interval_s))


class KubeApplier:
    """Scales one workload of a cluster.

    Args:
        cluster: the API.
        kind, namespace, name: the workload.
        identity: who writes; no two processes may share it.
        down_only: only ever scale down; what scales up is another's, whose own way down is closed.
        retirement: scales down instead of a plain write: one replica at a time, proven idle.
        lease_s: how long the Lease is good without a renewal.
        wall_clock: Unix seconds.

    Raises:
        UsageError: no such kind can be named.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        namespace: str,
        name: str,
        identity: str,
        *,
        down_only: bool = False,
        retirement: Retirement | None = None,
        lease_s: int = lease_s(15.0),
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        target = workload_target(kind, namespace, name)
        self._cluster, self._identity, self._wall_clock = cluster, identity, wall_clock
        self._kind, self._namespace, self._name = kind, namespace, name
        self._down_only, self._lease_s, self._retirement = down_only, lease_s, retirement
        # Whatever the kind was called on the command line (`deploy`, `Deployment`): one workload, one Lease.
        self._lease_name = f"infscale-{target.resource}.{target.group}-{name}"
        self._lease: Lease | None = None
        self._costs = DeletionCosts(cluster)

    def check(self) -> None:
        """Refuse at the start what would be refused at every write. What cannot be read now is looked at then.

        Raises:
            UsageError: another autoscaler scales the workload.
        """
        try:
            workload = self._workload()
            owners = self._cluster.autoscalers(self._namespace, workload)
        except KubeError as error:
            log.warning("nothing is scaled for now", extra={"reason": str(error)})
            return
        if refusal := self._refusal(workload, owners):
            raise UsageError(f"--apply: {refusal}")
        for owner in owners:
            if owner.kind == "ScaledObject" and owner.min_replicas == 0:
                reason = f"{self._named(owner)} has minReplicaCount 0: KEDA itself goes to 0 after its cooldownPeriod"
                log.warning("another scales down", extra={"reason": reason})

    def apply(self, decision: ScaleDecision, now_s: float) -> str:
        """See `infscale.evaluator.Applier`. A call that failed may still have been carried out: the next look tells."""
        try:
            return self._apply(decision, now_s)
        except KubeError as error:
            return f"not scaled: {error}"

    def stop(self) -> None:
        """See `infscale.evaluator.Applier`."""
        if self._retirement is not None:
            self._retirement.stop()
        if self._lease is None:
            return
        try:
            self._cluster.release(self._lease, self._wall_clock())
        except KubeError as error:
            log.warning("the Lease is not given back, and runs out", extra={"reason": str(error)})
        self._lease = None

    def _apply(self, decision: ScaleDecision, now_s: float) -> str:
        if not self._holds_lease(now_s):
            if self._retirement is not None:
                self._retirement.pause()
            return f"not scaled: another recommender holds the Lease {self._namespace}/{self._lease_name}"
        if self._retirement is not None and decision.direction != "down":
            # Also where nothing could be decided: nothing is taken away on missing data.
            why = "nothing could be decided" if decision.desired is None else f"{decision.desired} replicas are wanted"
            self._retirement.keep(f"{why} ({decision.reason.value})")
        if (
            decision.desired is None
            or decision.current is None
            or not self._is_ours(decision.current, decision.desired)
        ):
            return ""
        workload = self._workload()
        if refusal := self._refusal(workload, self._cluster.autoscalers(self._namespace, workload)):
            return f"not scaled: {refusal}"
        if self._retirement is not None and decision.desired < decision.current:
            if workload.spec_replicas != decision.current:
                return _changed(workload, workload.spec_replicas, decision.current)
            return self._retirement.down()
        note = self._steer(workload, decision.current - decision.desired, decision)
        scale = self._cluster.scale(workload)
        if scale.spec_replicas != decision.current:
            return _changed(workload, scale.spec_replicas, decision.current)
        self._cluster.set_replicas(workload, decision.desired, expected_resource_version=scale.resource_version)
        fields = {"workload": str(workload), "from": decision.current, "to": decision.desired}
        log.info("scaled", extra={**fields, "reason": decision.reason.value})
        return note

    def _steer(self, workload: Workload, leaving: int, decision: ScaleDecision) -> str:
        """Before a scale-down: let the replicas with the least in flight leave, where costs decide that.

        A StatefulSet and a LeaderWorkerSet always take the highest ordinal. Returns what is to be known of it.
        """
        choice = workload.kind in _BY_COST and leaving > 0 and workload.spec_replicas == decision.current
        if not choice or not decision.replicas:
            return ""
        inflight = {replica.name: _inflight(replica) for replica in decision.replicas}
        return self._costs.steer(self._namespace, workload.selector, leaving, inflight)

    def _is_ours(self, current: int, desired: int) -> bool:
        return desired < current or (desired > current and not self._down_only)

    def _holds_lease(self, now_s: float) -> bool:
        """Keep the Lease, or get it where nobody has it."""
        had = self._lease is not None
        if self._lease is not None:
            self._lease = self._cluster.renew(self._lease, now_s)
        if self._lease is None:
            self._lease = self._cluster.acquire(self._namespace, self._lease_name, self._identity, self._lease_s, now_s)
        if had != (self._lease is not None):
            level, what = (logging.WARNING, "the Lease is lost") if had else (logging.INFO, "the Lease is ours")
            log.log(level, what, extra={"lease": f"{self._namespace}/{self._lease_name}", "identity": self._identity})
        return self._lease is not None

    def _workload(self) -> Workload:
        return self._cluster.workload(self._kind, self._namespace, self._name)

    def _refusal(self, workload: Workload, owners: Sequence[Owner]) -> str:
        """Why another autoscaler forbids to scale, with its name and what to do; empty if none does."""
        others = [owner for owner in owners if not (self._down_only and owner.scale_down_disabled)]
        if not others:
            return ""
        names = ", ".join(self._named(owner) for owner in others)
        if self._down_only:
            return f"{names} scales {workload} down too: set its scaleDown.selectPolicy to Disabled, or remove it"
        beside = ", or scale down alone with --apply=down" if all(o.scale_down_disabled for o in others) else ""
        return f"{names} scales {workload}, and two writers would fight: remove it{beside}"

    def _named(self, owner: Owner) -> str:
        return f"{owner.kind} {self._namespace}/{owner.name}"


def _changed(workload: Workload, now: int, decided_on: int) -> str:
    return f"not scaled: {workload} asks for {now} by now, not {decided_on}: deciding anew"


def _inflight(replica: Replica) -> float | None:
    """Requests that a replica has in flight; None: not known, which is not 0. One that never was ready has none."""
    return 0.0 if replica.phase is Phase.STARTING else replica.inflight
