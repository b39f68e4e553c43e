"""Builders of API objects for the stand-in: each gives the JSON of a manifest; the server adds what is its own."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def container(name: str = "vllm", cpu: str | None = "8", **more: Any) -> Json:
    """A container; `cpu=None` asks for none."""
    return {"name": name, "image": "example/x:1", "resources": {"requests": {"cpu": cpu} if cpu else {}}, **more}


def _workload(api_version: str, kind: str, name: str, namespace: str, replicas: int, spec: Json) -> Json:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container()]}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **spec
        },
        "status": {},
    }  # fmt: skip


def deployment(name: str = "vllm", namespace: str = "ml", replicas: int = 1, **spec: Any) -> Json:
    """A Deployment whose Pods are labelled `app=NAME`."""
    return _workload("apps/v1", "Deployment", name, namespace, replicas, spec)


def stateful_set(name: str = "vllm", namespace: str = "ml", replicas: int = 1, **spec: Any) -> Json:
    """A StatefulSet likewise."""
    return _workload("apps/v1", "StatefulSet", name, namespace, replicas, {"serviceName": name, **spec})


def leader_worker_set(name: str = "vllm", namespace: str = "ml", replicas: int = 1, size: int = 2) -> Json:
    """A LeaderWorkerSet: no `spec.selector` and no `spec.template`; its scale tells the selector."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container()]}}
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}
    workload = _workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, namespace, replicas, {})
    return {**workload, "spec": spec}


def pod(name: str, namespace: str = "ml", *, app: str = "vllm", spec: Json | None = None, **status: Any) -> Json:
    """A Pod labelled `app=APP`; phase Running where nothing else is said."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": spec or {"containers": [container()]},
        "status": {"phase": "Running", **status},
    }


def ready(status: str, since: str) -> Json:
    """A Ready condition."""
    return {"type": "Ready", "status": status, "lastTransitionTime": since}


def _reference(kind: str, name: str, api_version: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, "name": name}


def hpa(
    name: str = "vllm",
    namespace: str = "ml",
    *,
    kind: str = "Deployment",
    target: str = "vllm",
    api_version: str = "apps/v1",
    **spec: Any,
) -> Json:
    """An HPA of a workload."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": _reference(kind, target, api_version), "maxReplicas": 8, **spec},
    }


def scaled_object(name: str = "vllm", namespace: str = "ml", *, reference: Json | None = None, **spec: Any) -> Json:
    """A ScaledObject of a workload; `{"name": "vllm"}` is all that KEDA needs as a reference."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": reference or {"name": "vllm"}, "triggers": [], **spec},
    }


def lease(name: str = "infscale-vllm", namespace: str = "ml", **spec: Any) -> Json:
    """A Lease."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def endpoint_slice(
    name: str = "vllm-x7k2p", namespace: str = "ml", *endpoints: Json, service: str = "vllm", port: int = 8000
) -> Json:
    """An EndpointSlice of a Service."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


def endpoint(address: str, *, pod: Json | None = None, **conditions: bool) -> Json:
    """An endpoint of a slice; `pod` holds name, namespace and uid."""
    reference = {"targetRef": {"kind": "Pod", **pod}} if pod else {}
    return {"addresses": [address], "conditions": conditions, **reference}


def role_rule(group: str, resource: str, *verbs: str) -> Json:
    """A rule of a Role."""
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
