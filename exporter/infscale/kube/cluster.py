"""`Cluster`: what infscale needs of Kubernetes, and `RestCluster`, which has it over a transport.

The recommender, `infscale kube`, the retirement, the activator and the fleet source `kubernetes` take a `Cluster`.
Names and namespaces are never guessed; nothing is written but by `set_replicas` and the three Lease methods.
"""

from __future__ import annotations

from typing import Protocol

from infscale.core.numbers import MAX_INT32
from infscale.errors import UsageError
from infscale.kube.decode import hpa_of, pod_of, scale_of, scaled_object_of, workload_of
from infscale.kube.errors import NotFound
from infscale.kube.kinds import workload_target
from infscale.kube.lease import Lease
from infscale.kube.leases import Leases
from infscale.kube.objects import Owner, Pod, Scale, Workload
from infscale.kube.rest import Rest
from infscale.kube.transport import Target


class Cluster(Protocol):
    """A Kubernetes cluster. Every method may raise any KubeError (`errors`), all of them bounded in time."""

    def workload(self, kind: str, namespace: str, name: str) -> Workload:
        """What is to be scaled.

        Args:
            kind: `deployment`, `statefulset`, `leaderworkerset`, or `GROUP/VERSION/PLURAL` of what has a scale.
            namespace: where.
            name: its name.

        Raises:
            UsageError: no such kind can be named.
        """
        ...

    def scale(self, workload: Workload) -> Scale:
        """Its scale now."""
        ...

    def set_replicas(self, workload: Workload, replicas: int, *, expected_resource_version: str) -> Scale:
        """Set how many replicas it asks for.

        Raises:
            Conflict: it has changed since the expected version, by whomever; read it again and decide anew.
        """
        ...

    def pods(self, namespace: str, selector: str) -> list[Pod]:
        """The Pods that a selector selects, in the API server's order (by name); an empty selector is refused."""
        ...

    def autoscalers(self, namespace: str, workload: Workload) -> tuple[Owner, ...]:
        """Every HPA and KEDA ScaledObject that scales the workload; without KEDA in the cluster the HPAs alone."""
        ...

    def acquire(self, namespace: str, name: str, identity: str, duration_s: int, now_s: float) -> Lease | None:
        """Get a Lease, or keep it where it is one's own already.

        Args:
            namespace: where.
            name: of the Lease.
            identity: who asks; no two processes may share it.
            duration_s: how long it is to be good without a renewal.
            now_s: now, Unix seconds.

        Returns:
            The Lease, or None while another has it (or got it first): ask again later. A Lease that was left behind is
            taken once this process has seen it unchanged for its duration.
        """
        ...

    def renew(self, lease: Lease, now_s: float) -> Lease | None:
        """Keep a Lease; None if it is another's by now (or gone): stop writing at once."""
        ...

    def release(self, lease: Lease, now_s: float) -> None:
        """Give a Lease back, so that another need not wait; does nothing if it is another's by now."""
        ...


class RestCluster:
    """A `Cluster` over the REST API."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._leases = Leases(rest)

    def workload(self, kind: str, namespace: str, name: str) -> Workload:
        """See `Cluster`."""
        target = workload_target(kind, namespace, name)
        fields = self._rest.call("GET", target)
        if target.group == "apps":
            return workload_of(fields, target)
        return workload_of(fields, target, self._scale(target))

    def scale(self, workload: Workload) -> Scale:
        """See `Cluster`."""
        return self._scale(workload.target)

    def set_replicas(self, workload: Workload, replicas: int, *, expected_resource_version: str) -> Scale:
        """See `Cluster`."""
        if not 0 <= replicas <= MAX_INT32:
            raise UsageError(f"{workload}: {replicas} replicas: expected 0 to {MAX_INT32}")
        if not expected_resource_version:
            raise UsageError(f"{workload}: without a resource version a write would overwrite another's")
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": workload.name,
                "namespace": workload.namespace,
                "resourceVersion": expected_resource_version,
            },
            "spec": {"replicas": replicas},
        }
        return scale_of(self._rest.call("PUT", _scale_target(workload.target), body=body))

    def pods(self, namespace: str, selector: str) -> list[Pod]:
        """See `Cluster`."""
        if not selector:
            raise UsageError(f"pods in namespace {namespace}: an empty selector selects every Pod: expected one label")
        return [pod_of(pod) for pod in self._rest.collection(Target("", "v1", "pods", namespace), selector)]

    def autoscalers(self, namespace: str, workload: Workload) -> tuple[Owner, ...]:
        """See `Cluster`."""
        hpas = self._rest.collection(Target("autoscaling", "v2", "horizontalpodautoscalers", namespace))
        try:
            scaled_objects = self._rest.collection(Target("keda.sh", "v1alpha1", "scaledobjects", namespace))
        except NotFound:
            scaled_objects = []
        owners = [hpa_of(hpa, workload.target, workload.kind) for hpa in hpas]
        owners += [scaled_object_of(scaled, workload.target, workload.kind) for scaled in scaled_objects]
        return tuple(owner for owner in owners if owner is not None)

    def acquire(self, namespace: str, name: str, identity: str, duration_s: int, now_s: float) -> Lease | None:
        """See `Cluster`."""
        return self._leases.acquire(namespace, name, identity, duration_s, now_s)

    def renew(self, lease: Lease, now_s: float) -> Lease | None:
        """See `Cluster`."""
        return self._leases.renew(lease, now_s)

    def release(self, lease: Lease, now_s: float) -> None:
        """See `Cluster`."""
        self._leases.release(lease, now_s)

    def _scale(self, target: Target) -> Scale:
        return scale_of(self._rest.call("GET", _scale_target(target)))


def _scale_target(target: Target) -> Target:
    return Target(target.group, target.version, target.plural, target.namespace, target.name, "scale")
