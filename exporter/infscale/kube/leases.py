"""Reads and writes Leases by the rules of `lease`.

Every write carries the resourceVersion that was read, so that of two that want a Lease one gets it.
"""

from __future__ import annotations

from collections.abc import Callable

from infscale.kube.errors import Conflict, NotFound
from infscale.kube.fields import Fields, rfc3339
from infscale.kube.lease import Lease, Step, given_back, next_step, renewed, taken
from infscale.kube.rest import Rest
from infscale.kube.transport import Target


class Leases:
    """Leases, and since when each has been seen as it stands. One per process; the methods may raise any KubeError."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._seen: dict[Target, tuple[str, float]] = {}

    def acquire(self, namespace: str, name: str, identity: str, duration_s: int, now_s: float) -> Lease | None:
        """Get the Lease, or keep it: see `cluster.Cluster.acquire`."""
        target = _target(namespace, name)

        def step(lease: Lease) -> Lease | None:
            """The Lease to write, by the rules of `lease`; None: it is another's."""
            match next_step(lease, identity, now_s, self._unchanged_since(target, lease, now_s)):
                case Step.RENEW:
                    return renewed(lease, duration_s, now_s)
                case Step.TAKE:
                    return taken(lease, identity, duration_s, now_s)
                case _:
                    return None

        try:
            return self._change(target, step)
        except NotFound:
            return self._create(target, Lease(namespace, name, identity, duration_s, now_s, now_s, 0, ""))

    def renew(self, lease: Lease, now_s: float) -> Lease | None:
        """Keep a Lease: see `cluster.Cluster.renew`."""
        return self._change_own(lease, lambda present: renewed(present, lease.duration_s, now_s))

    def release(self, lease: Lease, now_s: float) -> None:
        """Give a Lease back: see `cluster.Cluster.release`."""
        self._change_own(lease, lambda present: given_back(present, now_s))

    def _change_own(self, lease: Lease, change: Callable[[Lease], Lease]) -> Lease | None:
        def step(present: Lease) -> Lease | None:
            """The Lease to write while it is ours; None: it is another's by now."""
            return change(present) if present.holder == lease.holder else None

        try:
            return self._change(_target(lease.namespace, lease.name), step)
        except NotFound:
            return None

    def _change(self, target: Target, step: Callable[[Lease], Lease | None]) -> Lease | None:
        """Read, decide, write; once more if another wrote in between, which may have been a person adding a label."""
        for _ in range(2):
            present = self._rest.call("GET", target)
            wanted = step(_lease_of(present, target))
            if wanted is None:
                return None
            body = {**present.json, "spec": {**present.at("spec").json, **_spec(wanted)}}
            try:
                return _lease_of(self._rest.call("PUT", target, body=body), target)
            except Conflict:
                continue
        return None

    def _create(self, target: Target, lease: Lease) -> Lease | None:
        collection = Target(target.group, target.version, target.plural, target.namespace)
        body = {
            "apiVersion": f"{target.group}/{target.version}",
            "kind": "Lease",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "spec": _spec(lease),
        }
        try:
            return _lease_of(self._rest.call("POST", collection, body=body), target)
        except Conflict:
            return None  # another was first

    def _unchanged_since(self, target: Target, lease: Lease, now_s: float) -> float:
        version, since_s = self._seen.get(target, ("", now_s))
        if version != lease.resource_version:
            since_s = now_s
        self._seen[target] = (lease.resource_version, since_s)
        return since_s


def _target(namespace: str, name: str) -> Target:
    return Target("coordination.k8s.io", "v1", "leases", namespace, name)


def _lease_of(lease: Fields, target: Target) -> Lease:
    spec = lease.at("spec")
    return Lease(
        namespace=target.namespace,
        name=target.name,
        holder=spec.text("holderIdentity", ""),
        duration_s=spec.whole("leaseDurationSeconds", 0),
        acquired_s=spec.time_s("acquireTime"),
        renewed_s=spec.time_s("renewTime"),
        transitions=spec.whole("leaseTransitions", 0),
        resource_version=lease.at("metadata").text("resourceVersion"),
    )


def _spec(lease: Lease) -> dict[str, object]:
    """What is written. No holder is null, not empty: the API server refuses an empty one."""
    return {
        "holderIdentity": lease.holder or None,
        "leaseDurationSeconds": lease.duration_s,
        "acquireTime": None if lease.acquired_s is None else rfc3339(lease.acquired_s),
        "renewTime": None if lease.renewed_s is None else rfc3339(lease.renewed_s),
        "leaseTransitions": lease.transitions,
    }
