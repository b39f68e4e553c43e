"""The objects of the API server stand-in, with what the API server keeps for them: resourceVersion, generation, uid.

`apiserver.ApiServer` is a `Store` that answers HTTP. No watch, no validation, no defaults.
"""

from __future__ import annotations

import copy
import datetime
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str, str]  # plural, namespace, name


@dataclass(frozen=True)
class Kind:
    group: str
    version: str
    plural: str
    kind: str
    short: tuple[str, ...] = ()
    scale: bool = False

    @property
    def api_version(self) -> str:
        """As in an object's `apiVersion`: `apps/v1`, `v1`."""
        return f"{self.group}/{self.version}".lstrip("/")

    def named(self, name: str) -> str:
        """As in the API server's messages: `deployments.apps "vllm"`."""
        return f"{self.plural}.{self.group}".rstrip(".") + (f' "{name}"' if name else "")


KINDS = [
    Kind("", "v1", "pods", "Pod", ("po",)),
    Kind("apps", "v1", "deployments", "Deployment", ("deploy",), scale=True),
    Kind("apps", "v1", "replicasets", "ReplicaSet", ("rs",), scale=True),
    Kind("apps", "v1", "statefulsets", "StatefulSet", ("sts",), scale=True),
    Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", ("hpa",)),
    Kind("coordination.k8s.io", "v1", "leases", "Lease"),
    Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Kind("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject", ("so",)),
    Kind("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", ("lws",), scale=True),
]


class Refused(Exception):
    """An answer other than success."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code, self.reason, self.message = code, reason, message


class Store:
    """Namespaced objects. `clock` gives all times that are set."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.objects: dict[Key, Json] = {}
        self.version = 100
        self._uids = 16**12

    def now(self) -> str:
        """The clock's time as the API writes it."""
        return datetime.datetime.fromtimestamp(self.clock(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def add(self, obj: Json) -> Json:
        """Make an object; 409 if it is there already."""
        kind = next(k for k in KINDS if (k.api_version, k.kind) == (obj["apiVersion"], obj["kind"]))
        key = (kind.plural, obj["metadata"]["namespace"], obj["metadata"]["name"])
        with self.lock:
            if key in self.objects:
                raise Refused(409, "AlreadyExists", f"{kind.named(key[2])} already exists")
            meta = {"uid": self.new_uid(), "creationTimestamp": self.now(), "generation": 1, **obj["metadata"]}
            return self._put(key, {**copy.deepcopy(obj), "metadata": meta})

    def new_uid(self) -> str:
        """A UID. They fall, so that of two Pods about as old the younger leaves (in a real cluster it is chance)."""
        self._uids -= 1
        return f"00000000-0000-4000-8000-{self._uids:012x}"

    def get(self, plural: str, name: str, namespace: str = "ml") -> Json:
        """A copy of an object."""
        with self.lock:
            return copy.deepcopy(self.objects[plural, namespace, name])

    def change(self, plural: str, name: str, change: Callable[[Json], object], namespace: str = "ml") -> Json:
        """Change an object in place."""
        with self.lock:
            new = self.get(plural, name, namespace)
            change(new)
            return self.replace((plural, namespace, name), new)

    def replace(self, key: Key, new: Json) -> Json:
        """Store a new version of an object; 409 if it carries an old resourceVersion or another's UID."""
        with self.lock:
            old = self.objects[key]
            uid = old["metadata"]["uid"]
            if new["metadata"].get("uid") not in (None, "", uid):
                words = f"UID in precondition: {new['metadata']['uid']}, UID in object meta: {uid}"
                raise Refused(409, "Conflict", f"Operation cannot be fulfilled: Precondition failed: {words}")
            meta = {**new["metadata"], "uid": uid}
            if meta.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
                named = next(kind for kind in KINDS if kind.plural == key[0]).named(key[2])
                words = "the object has been modified; please apply your changes to the latest version and try again"
                raise Refused(409, "Conflict", f"Operation cannot be fulfilled on {named}: {words}")
            meta["generation"] = old["metadata"]["generation"] + (new.get("spec") != old.get("spec"))
            return self._put(key, {**new, "metadata": meta})

    def remove(self, plural: str, name: str, namespace: str = "ml") -> None:
        """Remove an object at once."""
        with self.lock:
            del self.objects[plural, namespace, name]

    def list(self, plural: str, selector: str = "", namespace: str = "ml") -> list[Json]:
        """Copies of the objects that a selector selects, by name; an empty namespace is all of them."""
        with self.lock:
            found = [o for (p, ns, _), o in sorted(self.objects.items()) if p == plural and namespace in ("", ns)]
            return copy.deepcopy([o for o in found if selects(selector, o["metadata"].get("labels") or {})])

    def _put(self, key: Key, obj: Json) -> Json:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = obj
        return copy.deepcopy(obj)


def selects(selector: str, labels: dict[str, str]) -> bool:
    """Whether labels fit a selector: `a=b,c!=d,e,!f,g in (h,i),j notin (k)`."""
    for part in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        match = re.fullmatch(r"\s*(!?[^\s=!]+)\s*(==|=|!=|in|notin)?\s*(.*?)\s*", part)
        if match is None:
            raise Refused(400, "BadRequest", f"unable to parse requirement: {part}")
        key, operator, values = match.groups()
        among = {value.strip() for value in values.strip("()").split(",")}
        if operator is None:
            fits = (key.lstrip("!") in labels) != key.startswith("!")
        else:
            fits = (labels.get(key) in among) == (operator in ("=", "==", "in"))
        if not fits:
            return False
    return True


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    base = old if isinstance(old, dict) else {}
    both = {**base, **{key: merged(base.get(key), value) for key, value in patch.items()}}
    return {key: value for key, value in both.items() if patch.get(key, 0) is not None}


def leaders_of(name: str) -> dict[str, str]:
    """What selects the leaders of a LeaderWorkerSet: its scale counts groups (its `status.hpaPodSelector`)."""
    return {"leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/worker-index": "0"}


def scale_of(obj: Json) -> Json:
    """The Scale of an object. What is 0 is left out, as the API server does it."""
    meta = obj["metadata"]
    labels = obj["spec"].get("selector", {}).get("matchLabels") or leaders_of(meta["name"])
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    status, replicas = obj.get("status") or {}, obj["spec"]["replicas"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": status.get("replicas", 0), "selector": selector},
    }
