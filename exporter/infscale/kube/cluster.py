"""`Cluster`: what infscale needs of Kubernetes, and `RestCluster`, which has it over a transport.

The recommender, `infscale kube`, the retirement, the activator and the fleet source `kubernetes` take a `Cluster`.
Names and namespaces are never guessed; nothing is written but by `set_replicas`, the two `annotate` methods,
`delete_pod` and the three Lease methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from infscale.core.numbers import MAX_INT32
from infscale.errors import UsageError
from infscale.kube.decode import endpoints_of, hpa_of, pod_of, scale_of, scaled_object_of, workload_of
from infscale.kube.errors import NotFound
from infscale.kube.fields import Fields
from infscale.kube.kinds import workload_target
from infscale.kube.lease import Lease
from infscale.kube.leases import Leases
from infscale.kube.objects import Endpoint, ExecAnswer, Owner, Pod, ProxyAnswer, Scale, Workload
from infscale.kube.podcalls import annotations_patch, over_proxy, pod_target, port_of, run_in
from infscale.kube.rest import Rest
from infscale.kube.transport import MERGE_PATCH, Method, Target


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

    def pod(self, namespace: str, name: str) -> Pod:
        """One Pod, read anew."""
        ...

    def annotate_pod(self, pod: Pod, annotations: Mapping[str, str | None]) -> Pod:
        """Set annotations of a Pod, and take away those that are None.

        Raises:
            Conflict: it has changed since it was read, or is another of the same name; nothing was written.
        """
        ...

    def annotate(self, workload: Workload, annotations: Mapping[str, str | None]) -> Workload:
        """Set annotations of a workload likewise."""
        ...

    def delete_pod(self, namespace: str, name: str, *, uid: str) -> None:
        """Delete a Pod, within its grace period.

        Raises:
            Conflict: the Pod of that name is another than the one with this UID; it was not deleted.
        """
        ...

    def endpoints(self, namespace: str, pod: Pod) -> tuple[Endpoint, ...]:
        """Every endpoint of an EndpointSlice that is the Pod, whatever the Service."""
        ...

    def pod_proxy(
        self,
        namespace: str,
        name: str,
        port: int | str,
        path: str,
        *,
        scheme: str = "http",
        method: Method = "GET",
        headers: Mapping[str, str] = {},
        timeout_s: float,
        max_bytes: int,
    ) -> ProxyAnswer:
        """One call to a Pod through the API server's proxy, never repeated; redirects are not followed.

        Args:
            namespace: where.
            name: of the Pod.
            port: its number; or its name, which costs one look at the Pod more.
            path: with the query.
            scheme: `http` or `https` (the API server does not look at the Pod's certificate).
            method: of HTTP; POST needs the verb create for pods/proxy, GET the verb get.
            headers: for the Pod; the API server takes `Authorization` for itself.
            timeout_s: for the call, to the last byte.
            max_bytes: of the body.

        Returns:
            The Pod's own answer, whatever its status.

        Raises:
            PodUnreachable: nothing listens there, or the Pod has no port of that name.
            KubeError: the API server's own refusals, by their classes; TimedOut: no whole answer in time.
        """
        ...

    def exec(
        self, namespace: str, name: str, container: str, command: Sequence[str], *, timeout_s: float, max_bytes: int
    ) -> ExecAnswer:
        """Run a command in a container, without a terminal and without input.

        Raises:
            KubeError: access from a Pod cannot do it; or any refusal.
        """
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
        return self._workload(self._rest.call("GET", target), target)

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

    def pod(self, namespace: str, name: str) -> Pod:
        """See `Cluster`."""
        return pod_of(self._rest.call("GET", pod_target(namespace, name)))

    def annotate_pod(self, pod: Pod, annotations: Mapping[str, str | None]) -> Pod:
        """See `Cluster`."""
        body = annotations_patch(annotations, pod.uid, pod.resource_version)
        target = pod_target(pod.namespace, pod.name)
        return pod_of(self._rest.call("PATCH", target, body=body, content_type=MERGE_PATCH))

    def annotate(self, workload: Workload, annotations: Mapping[str, str | None]) -> Workload:
        """See `Cluster`."""
        body = annotations_patch(annotations, workload.uid, workload.resource_version)
        fields = self._rest.call("PATCH", workload.target, body=body, content_type=MERGE_PATCH)
        return self._workload(fields, workload.target)

    def delete_pod(self, namespace: str, name: str, *, uid: str) -> None:
        """See `Cluster`."""
        if not uid:
            raise UsageError(f"pod {namespace}/{name}: without a UID another Pod of that name could be deleted")
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        self._rest.call("DELETE", pod_target(namespace, name), body=body)

    def endpoints(self, namespace: str, pod: Pod) -> tuple[Endpoint, ...]:
        """See `Cluster`."""
        slices = self._rest.collection(Target("discovery.k8s.io", "v1", "endpointslices", namespace))
        return tuple(endpoint for one in slices for endpoint in endpoints_of(one, pod))

    def pod_proxy(
        self,
        namespace: str,
        name: str,
        port: int | str,
        path: str,
        *,
        scheme: str = "http",
        method: Method = "GET",
        headers: Mapping[str, str] = {},
        timeout_s: float,
        max_bytes: int,
    ) -> ProxyAnswer:
        """See `Cluster`."""
        if isinstance(port, str):
            port = int(port) if port.isascii() and port.isdigit() else port_of(self.pod(namespace, name), port)
        return over_proxy(
            self._rest.transport,
            namespace,
            name,
            port,
            path,
            scheme=scheme,
            method=method,
            headers=headers,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
        )

    def exec(
        self, namespace: str, name: str, container: str, command: Sequence[str], *, timeout_s: float, max_bytes: int
    ) -> ExecAnswer:
        """See `Cluster`."""
        return run_in(
            self._rest.transport, namespace, name, container, command, timeout_s=timeout_s, max_bytes=max_bytes
        )

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

    def _workload(self, fields: Fields, target: Target) -> Workload:
        return workload_of(fields, target, None if target.group == "apps" else self._scale(target))

    def _scale(self, target: Target) -> Scale:
        return scale_of(self._rest.call("GET", _scale_target(target)))


def _scale_target(target: Target) -> Target:
    return Target(target.group, target.version, target.plural, target.namespace, target.name, "scale")
