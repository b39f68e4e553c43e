"""A small controller for the stand-in: before each request, on the server's clock, Pods follow `spec.replicas`."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from tests.kube.apiserver import ApiServer
from tests.kube.objects import ready
from tests.kube.store import Json, scale_of


def follow_replicas(
    server: ApiServer,
    plural: str,
    name: str,
    *,
    ready_after_s: float = 0.0,
    gone_after_s: float = 0.0,
    ip: Callable[[int], str] = lambda number: f"10.0.0.{number}",
) -> None:
    """Make the Pods of a workload follow its replicas from now on.

    A new Pod is Running at once and ready after `ready_after_s`; one that leaves (those that are not ready first, then
    the youngest) keeps its deletion timestamp for `gone_after_s`. `ip` gives the n-th Pod's address.
    """
    before, made = server.hook, [0]

    def step() -> None:
        before()
        workload = server.get(plural, name)
        for pod in _pods(server, workload):
            _age(server, pod, ready_after_s, gone_after_s)
        pods = [p for p in _pods(server, workload) if "deletionTimestamp" not in p["metadata"]]
        pods.sort(key=lambda p: (not _is_ready(p), p["metadata"]["creationTimestamp"], p["metadata"]["name"]))
        wanted = workload["spec"]["replicas"]
        for pod in pods[wanted:]:
            server.change(
                "pods", pod["metadata"]["name"], lambda p: p["metadata"].update(deletionTimestamp=server.now())
            )
        for _ in range(wanted - len(pods)):
            made[0] += 1
            pod = _new_pod(server, workload, f"{name}-{made[0]:05d}", ip(made[0]))
            _age(server, server.add(pod), ready_after_s, gone_after_s)
        _report(server, plural, workload)

    server.hook = step
    with server.lock:
        step()


def _pods(server: ApiServer, workload: Json) -> list[Json]:
    return server.list("pods", scale_of(workload)["status"]["selector"])


def _new_pod(server: ApiServer, workload: Json, name: str, ip: str) -> Json:
    meta, template = workload["metadata"], workload["spec"]["template"]
    owner = {"apiVersion": workload["apiVersion"], "kind": workload["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": dict(template["metadata"]["labels"]),
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": template["spec"],
        "status": {
            "phase": "Running",
            "podIP": ip,
            "startTime": server.now(),
            "conditions": [ready("False", server.now())],
        },
    }


def _age(server: ApiServer, pod: Json, ready_after_s: float, gone_after_s: float) -> None:
    """Let time do its work on a Pod: it gets ready, or it is gone."""
    meta = pod["metadata"]
    if "deletionTimestamp" in meta:
        if _age_s(server, meta["deletionTimestamp"]) >= gone_after_s:
            server.remove("pods", meta["name"], meta["namespace"])
    elif not _is_ready(pod) and _age_s(server, meta["creationTimestamp"]) >= ready_after_s:
        conditions = [ready("True", server.now())]
        server.change("pods", meta["name"], lambda p: p["status"].update(conditions=conditions), meta["namespace"])


def _report(server: ApiServer, plural: str, workload: Json) -> None:
    """Write the workload's status, if it has changed: every write is a new resourceVersion."""
    pods = [p for p in _pods(server, workload) if "deletionTimestamp" not in p["metadata"]]
    status = {"replicas": len(pods), "readyReplicas": sum(map(_is_ready, pods))}
    status = {"observedGeneration": workload["metadata"]["generation"], **{k: v for k, v in status.items() if v}}
    if workload["status"] != status:
        server.change(plural, workload["metadata"]["name"], lambda w: w.update(status=status))


def _is_ready(pod: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def _age_s(server: ApiServer, since: str) -> float:
    return server.clock() - datetime.datetime.fromisoformat(since).timestamp()
