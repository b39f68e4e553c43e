"""A small controller for the stand-in: before each request, on the server's clock, Pods follow `spec.replicas`.

Of a Deployment the Pods belong to its ReplicaSet, and the real controller's order (`victims`) says which leave; of a
StatefulSet and of a LeaderWorkerSet the highest ordinal leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.kube import victims
from tests.kube.apiserver import ApiServer
from tests.kube.objects import ready
from tests.kube.store import Json, leaders_of, scale_of
from tests.kube.victims import is_ready, time_s

_LWS = "leaderworkerset.sigs.k8s.io"


@dataclass(frozen=True)
class Kubelet:
    """What becomes of Pods on their nodes.

    Attributes:
        ready_after_s: from a Pod's creation until its probe counts.
        gone_after_s: how long one that is deleted keeps its deletion timestamp.
        probe: whether a Pod is ready, by its name.
        ip, node: address and node of the n-th Pod.
    """

    ready_after_s: float = 0.0
    gone_after_s: float = 0.0
    probe: Callable[[str], bool] = lambda name: True
    ip: Callable[[int], str] = lambda number: f"10.0.0.{number}"
    node: Callable[[int], str] = lambda number: f"node-{number}"


def follow_replicas(server: ApiServer, plural: str, name: str, *, namespace: str = "ml", **kubelet: Any) -> None:
    """Make the Pods of a workload follow its replicas from now on; `kubelet` gives values of `Kubelet`."""
    before = server.hook
    controller = _CONTROLLERS[plural](server, plural, name, namespace, Kubelet(**kubelet))

    def step() -> None:
        before()
        controller.step()

    server.hook = step
    with server.lock:
        step()


def restart(server: ApiServer, pod: str, container: str, namespace: str = "ml") -> None:
    """What a kubelet writes after a container died and came back: another id, one restart more."""

    def change(obj: Json) -> None:
        for state in obj["status"]["containerStatuses"]:
            if state["name"] == container:
                state.update(containerID=f"containerd://{server.new_uid()}", restartCount=state["restartCount"] + 1)

    server.change("pods", pod, change, namespace)


class _Deployment:
    """Keeps a ReplicaSet, and its Pods."""

    def __init__(self, server: ApiServer, plural: str, name: str, namespace: str, kubelet: Kubelet) -> None:
        self.server, self.plural, self.name, self.namespace, self.kubelet = server, plural, name, namespace, kubelet
        self.made = 0

    def step(self) -> None:
        workload = self.server.get(self.plural, self.name, self.namespace)
        for pod in self.pods(workload):
            self.age(pod)
        self.follow(workload)
        self.report(workload)

    def follow(self, workload: Json) -> None:
        """Make and delete Pods until there are as many as asked for."""
        wanted = workload["spec"]["replicas"]
        owner = self._replica_set(workload)
        active = self.active(workload)
        leaving = max(0, len(active) - wanted)
        for pod in victims.in_order(active[::-1], self.server.clock())[:leaving]:
            self.delete(pod)
        for _ in range(wanted - len(active)):
            template = owner["spec"]["template"]
            self.make(f"{self.name}-{self.made + 1:05d}", template["metadata"], template["spec"], owner)

    def report(self, workload: Json) -> None:
        """Write the workload's status, if it has changed: every write is a new resourceVersion."""
        pods = self.active(workload)
        self.status(self.plural, workload, len(pods), sum(map(is_ready, pods)))

    def pods(self, workload: Json) -> list[Json]:
        """All its Pods, leaving ones included."""
        return self.server.list("pods", scale_of(workload)["status"]["selector"], self.namespace)

    def active(self, workload: Json) -> list[Json]:
        """Those that count. Source: controller_utils.go, `IsPodActive`."""
        return [
            pod
            for pod in self.pods(workload)
            if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    def status(self, plural: str, workload: Json, replicas: int, ready_replicas: int) -> None:
        """Write a status; a Deployment leaves out what is 0."""
        counts = {"replicas": replicas, "readyReplicas": ready_replicas}
        status = {"observedGeneration": workload["metadata"]["generation"], **{k: v for k, v in counts.items() if v}}
        status |= {} if plural == "deployments" else {"replicas": replicas}
        name = workload["metadata"]["name"]
        if self.server.get(plural, name, self.namespace)["status"] != status:
            self.server.change(plural, name, lambda w: w.update(status=status), self.namespace)

    def delete(self, pod: Json) -> None:
        now = self.server.now()
        change = {"deletionTimestamp": now, "deletionGracePeriodSeconds": 30}
        self.server.change("pods", pod["metadata"]["name"], lambda p: p["metadata"].update(change), self.namespace)

    def make(self, name: str, metadata: Json, spec: Json, owner: Json) -> Json | None:
        """A new Pod, assigned and running; None while one of that name is still leaving."""
        if ("pods", self.namespace, name) in self.server.objects:
            return None
        self.made += 1
        now, number = self.server.now(), self.made
        spec = {"nodeName": self.kubelet.node(number), **spec}
        apps, inits = spec["containers"], spec.get("initContainers", [])
        status: Json = {"phase": "Running", "podIP": self.kubelet.ip(number), "startTime": now}
        status |= {"conditions": [ready("False", now)], "containerStatuses": [self._state(app) for app in apps]}
        status |= {"initContainerStatuses": [self._state(init) for init in inits]} if inits else {}
        whole = {**metadata, "name": name, "namespace": self.namespace, "ownerReferences": [owner_of(owner)]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": whole, "spec": spec, "status": status}
        made = self.server.add(pod)
        self.age(made)
        return made

    def age(self, pod: Json) -> None:
        """Let time do its work on a Pod: it gets ready or not, or it is gone."""
        meta, kubelet, server = pod["metadata"], self.kubelet, self.server
        if "deletionTimestamp" in meta:
            if server.clock() - time_s(meta["deletionTimestamp"]) >= kubelet.gone_after_s:
                server.remove("pods", meta["name"], meta["namespace"])
            return
        old = server.clock() - time_s(meta["creationTimestamp"]) >= kubelet.ready_after_s
        if is_ready(pod) != (old and kubelet.probe(meta["name"])):
            conditions = [ready("False" if is_ready(pod) else "True", server.now())]
            server.change("pods", meta["name"], lambda p: p["status"].update(conditions=conditions), meta["namespace"])

    def owned(self, plural: str, obj: Json, owner: Json) -> Json:
        """An object of a controller's own, made once."""
        name = obj["metadata"]["name"]
        if (plural, self.namespace, name) in self.server.objects:
            return self.server.get(plural, name, self.namespace)
        meta = {**obj["metadata"], "namespace": self.namespace, "ownerReferences": [owner_of(owner)]}
        return self.server.add({**obj, "metadata": meta})

    def _replica_set(self, workload: Json) -> Json:
        """The ReplicaSet, which follows the Deployment's count and template."""
        spec, mark = workload["spec"], {"pod-template-hash": "6d8c5f7b9"}
        labels = {**spec["template"]["metadata"].get("labels", {}), **mark}
        template = {**spec["template"], "metadata": {**spec["template"]["metadata"], "labels": labels}}
        selector = {"matchLabels": {**spec["selector"].get("matchLabels", {}), **mark}}
        wanted = {"replicas": spec["replicas"], "selector": selector, "template": template}
        meta: Json = {"name": f"{self.name}-6d8c5f7b9", "labels": labels}
        made = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": meta,
            "spec": wanted,
            "status": {"replicas": 0},
        }
        found = self.owned("replicasets", made, workload)
        if found["spec"] != wanted:
            found = self.server.change("replicasets", meta["name"], lambda r: r.update(spec=wanted), self.namespace)
        pods = self.active(workload)
        self.status("replicasets", found, len(pods), sum(map(is_ready, pods)))
        return found

    def _state(self, container: Json) -> Json:
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "containerID": f"containerd://{self.server.new_uid()}",
            "state": {"running": {"startedAt": self.server.now()}},
        }


class _StatefulSet(_Deployment):
    """Pods by ordinals."""

    def follow(self, workload: Json) -> None:
        wanted = workload["spec"]["replicas"]
        for pod in self.active(workload):
            if int(pod["metadata"]["name"].rpartition("-")[2]) >= wanted:
                self.delete(pod)
        template = workload["spec"]["template"]
        for ordinal in range(wanted):
            self.make(f"{self.name}-{ordinal}", template["metadata"], template["spec"], workload)


class _LeaderWorkerSet(_Deployment):
    """Groups by ordinals; a leader and its workers come and go together.

    Source: LeaderWorkerSet api/leaderworkerset/v1 (labels, annotation of the size) and its controllers: a StatefulSet
    makes the leaders, and one for each leader its workers.
    """

    def follow(self, workload: Json) -> None:
        template = workload["spec"]["leaderWorkerTemplate"]
        size, wanted = template["size"], workload["spec"]["replicas"]
        worker, leader = template["workerTemplate"], template.get("leaderTemplate") or template["workerTemplate"]
        for pod in self.pods(workload):
            if "deletionTimestamp" not in pod["metadata"] and _group_of(pod) >= wanted:
                self.delete(pod)
        leaders = self._makes_pods(self.name, workload, leader, wanted)
        for group in range(wanted):
            name = f"{self.name}-{group}"
            first = self.make(name, self._metadata(leader, group, 0, size), leader["spec"], leaders)
            first = first or self.server.get("pods", name, self.namespace)
            workers = self._makes_pods(name, first, worker, size - 1) if size > 1 else leaders
            for number in range(1, size):
                self.make(f"{name}-{number}", self._metadata(worker, group, number, size), worker["spec"], workers)

    def pods(self, workload: Json) -> list[Json]:
        return self.server.list("pods", f"{_LWS}/name={self.name}", self.namespace)

    def report(self, workload: Json) -> None:
        groups: dict[int, list[bool]] = {}
        for pod in self.active(workload):
            groups.setdefault(_group_of(pod), []).append(is_ready(pod))
        size = workload["spec"]["leaderWorkerTemplate"]["size"]
        whole = sum(len(group) == size and all(group) for group in groups.values())
        self.status(self.plural, workload, len(groups), whole)

    def _metadata(self, template: Json, group: int, number: int, size: int) -> Json:
        meta = template.get("metadata", {})
        labels = {f"{_LWS}/name": self.name, f"{_LWS}/group-index": str(group), f"{_LWS}/worker-index": str(number)}
        marks = {f"{_LWS}/size": str(size)}
        marks |= {f"{_LWS}/leader-name": f"{self.name}-{group}"} if number else {}
        return {"labels": {**meta.get("labels", {}), **labels}, "annotations": {**meta.get("annotations", {}), **marks}}

    def _makes_pods(self, name: str, owner: Json, template: Json, replicas: int) -> Json:
        selector = {"matchLabels": leaders_of(self.name)}
        spec = {"replicas": replicas, "selector": selector, "serviceName": self.name, "template": template}
        made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}
        return self.owned("statefulsets", {**made, "status": {"replicas": 0}}, owner)


_CONTROLLERS = {"deployments": _Deployment, "statefulsets": _StatefulSet, "leaderworkersets": _LeaderWorkerSet}


def owner_of(owner: Json) -> Json:
    """A reference to the controller that an object belongs to."""
    meta = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**named, "controller": True, "blockOwnerDeletion": True}


def _group_of(pod: Json) -> int:
    return int(pod["metadata"]["labels"][f"{_LWS}/group-index"])


def groups(server: ApiServer, name: str, namespace: str = "ml") -> Iterator[tuple[int, list[str]]]:
    """The groups of a LeaderWorkerSet and the names of their Pods."""
    found: dict[int, list[str]] = {}
    for pod in server.list("pods", f"{_LWS}/name={name}", namespace):
        found.setdefault(_group_of(pod), []).append(pod["metadata"]["name"])
    yield from sorted(found.items())
