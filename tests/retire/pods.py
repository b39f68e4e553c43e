"""Pods for tests of what is pure."""

from __future__ import annotations

from typing import Any

from infscale.kube.objects import Container, OwnerReference, Pod, Port, Role

SIDECAR = Container("infscale", Role.SIDECAR, 100, ports=(Port("infscale", 10047),))


def engine(command: tuple[str, ...] = ("vllm", "serve", "m"), **more: Any) -> Container:
    """The engine's container; it runs."""
    given: dict[str, Any] = {"ports": (Port("http", 8000),), "container_id": "containerd://a", "running": True, **more}
    return Container("engine", Role.APP, 8000, command=command, **given)


def pod(name: str = "vllm-1", *containers: Container, **more: Any) -> Pod:
    """A Pod that has been ready for a minute."""
    given: dict[str, Any] = {
        "uid": f"uid-{name}",
        "phase": "Running",
        "creation_s": 1000.0,
        "start_s": 1000.0,
        "deletion_s": None,
        "ready": "True",
        "ready_since_s": 1060.0,
        "ip": "10.0.0.1",
        "labels": {"app": "vllm"},
        "annotations": {},
        "namespace": "ml",
        "resource_version": "1",
        "owner": OwnerReference("ReplicaSet", "vllm-6d8c", "rs"),
        **more,
    }
    return Pod(name, containers=containers or (engine(), SIDECAR), **given)
