"""A stand-in for the Kubernetes API server: real paths and JSON shapes, good enough that kubectl runs against it.

    with ApiServer(certs.server) as server:
        server.add(objects.deployment(replicas=2))

It serves discovery, the `scale` subresource, label selectors, pages, merge patches, graceful Pod deletion and the Pods'
proxy (`podproxy`), refuses exec, checks a bearer token and a Role, and goes wrong on demand (`wire.Fault`).
`controller.follow_replicas` makes Pods follow `spec.replicas`, `slices.follow_endpoints` EndpointSlices the Pods.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.certs import Pair
from tests.kube import podproxy
from tests.kube.discovery import discovery
from tests.kube.store import KINDS, Json, Key, Kind, Refused, Store, merged, scale_of
from tests.kube.wire import Fault, Request, Server

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
USER = "system:serviceaccount:ml:infscale"


class ApiServer(Store):
    """The server; a context manager. Without a certificate it speaks plain HTTP (kubectl then sends no token).

    Attributes:
        token: the bearer token that it wants; empty for none.
        role: rules as in a Role; None allows everything.
        without: API groups that are not installed, as `keda.sh`.
        requests: what came in.
        faults: what goes wrong.
        hook: runs before each request: the controllers' moment.
        before_write: runs before a write is looked at: a rival's moment.
        pages: raise it, and the marks of pages handed out so far are too old.
        find_route: the local address that is a Pod's port (both as text); None: connection refused.
    """

    def __init__(self, pair: Pair | None = None, *, token: str = "", clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self.token = token
        self.role: list[Json] | None = None
        self.without: set[str] = set()
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.hook: Callable[[], object] = lambda: None
        self.before_write: Callable[[], object] = lambda: None
        self.pages = 1
        self.find_route: Callable[[str, str], tuple[str, int] | None] = lambda pod, port: self._routes.get((pod, port))
        self._routes: dict[tuple[str, str], tuple[str, int]] = {}
        self.stopping = threading.Event()
        self._server = Server(self, pair.server_context() if pair else None)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="apiserver")
        self.host, self.port = "127.0.0.1", int(self._server.server_address[1])
        self.url = f"{'https' if pair else 'http'}://{self.host}:{self.port}"

    def __enter__(self) -> ApiServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and end every connection; more than once does no harm."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()

    def kubeconfig(self, folder: Path, ca: Path) -> Path:
        """Write a kubeconfig (JSON is YAML) whose context `stand-in` leads here."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority": str(ca)}}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "stand-in", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "stand-in",
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def calls(self, method: str = "") -> list[Request]:
        """The requests for objects that came in, without kubectl's questions about versions and resources."""
        return [r for r in self.requests if "/namespaces/" in r.path and method in ("", r.method)]

    def route(self, pod: str, port: int, local_port: int, host: str = "127.0.0.1") -> None:
        """Let a Pod's port be a socket of this machine."""
        self._routes[pod, str(port)] = (host, local_port)

    def answer(self, request: Request) -> tuple[int, Json | podproxy.Route]:
        """Status and object for a request, or the way to a Pod. Raises Refused."""
        if self.token and request.authorization != f"Bearer {self.token}":
            raise Refused(401, "Unauthorized", "Unauthorized")
        kinds = [kind for kind in KINDS if kind.group not in self.without]
        parts = request.path.strip("/").split("/")
        found = discovery(kinds, parts)
        if found is not None:
            return 200, found
        kind, namespace, name, sub = _resource(kinds, parts)
        verb = VERBS.get(request.method, "get" if name else "list")
        self._check_role(verb, kind, namespace, name, sub)
        with self.lock:
            self.hook()
            if sub == "proxy":
                return 0, self._way_to_pod(namespace, parts[5], request)
            if sub == "exec":
                raise Refused(500, "InternalError", "error dialing backend: no kubelet is here")
            if verb == "list":
                return 200, self._list(kind, namespace, request.query)
            if verb in VERBS.values():
                self.before_write()
            if verb == "create":
                return 201, self.add({**request.body, "metadata": {**request.body["metadata"], "namespace": namespace}})
            if (kind.plural, namespace, name) not in self.objects:
                raise Refused(404, "NotFound", f"{kind.named(name)} not found")
            return 200, self._one(verb, (kind.plural, namespace, name), sub, request)

    def _one(self, verb: str, key: Key, sub: str, request: Request) -> Json:
        """What is done to an object that is there."""
        obj = self.get(key[0], key[2], key[1])
        shown = scale_of(obj) if sub == "scale" else obj
        if verb == "get":
            return shown
        if verb == "delete":
            return self._delete(key, obj, request.body or {})
        if verb == "patch" and not _is_merge(request):
            raise Refused(415, "UnsupportedMediaType", f"the body was in an unknown format: {request.content_type}")
        new = merged(shown, request.body) if verb == "patch" else request.body
        if sub != "scale":
            return self.replace(key, new)
        obj["spec"]["replicas"] = (new.get("spec") or {}).get("replicas", 0)
        obj["metadata"]["resourceVersion"] = new["metadata"].get("resourceVersion")
        return scale_of(self.replace(key, obj))

    def _way_to_pod(self, namespace: str, text: str, request: Request) -> podproxy.Route:
        """Where a call to a Pod's proxy goes; the port must be a number, as for the real one."""
        scheme, name, port = podproxy.split_name(text)
        if ("pods", namespace, name) not in self.objects:
            raise Refused(404, "NotFound", f'pods "{name}" not found')
        pod = self.get("pods", name, namespace)
        port = port or podproxy.default_port(pod)
        address = self.find_route(name, port)
        ip = pod["status"].get("podIP")
        if address is None and not ip:
            raise Refused(400, "BadRequest", "address not allowed")
        if address is None:
            why = "connect: connection refused" if port.isdigit() else f"lookup tcp/{port}: unknown port"
            raise podproxy.unreachable(f"dial tcp {ip}:{port}: {why}")
        return podproxy.Route(address, scheme == "https", request.method, "/" + request.raw_path.split("/proxy/", 1)[1])

    def _delete(self, key: Key, obj: Json, options: Json) -> Json:
        """A Pod gets its deletion timestamp (a controller takes it away), anything else is gone."""
        uid = (options.get("preconditions") or {}).get("uid")
        if uid not in (None, obj["metadata"]["uid"]):
            raise Refused(409, "Conflict", f"the UID in the precondition ({uid}) does not match the UID in record")
        if key[0] == "pods" and options.get("gracePeriodSeconds") != 0:
            obj["metadata"].setdefault("deletionTimestamp", self.now())
            return self.replace(key, obj)
        self.remove(key[0], key[2], key[1])
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _list(self, kind: Kind, namespace: str, query: dict[str, str]) -> Json:
        items = self.list(kind.plural, query.get("labelSelector", ""), namespace)
        epoch, _, start = query.get("continue", f"{self.pages}:0").partition(":")
        if epoch != str(self.pages):
            raise Refused(410, "Expired", "The provided continue parameter is too old to display a consistent list.")
        end = int(start) + int(query.get("limit") or len(items) or 1)
        more = {"continue": f"{epoch}:{end}", "remainingItemCount": len(items) - end} if end < len(items) else {}
        whole = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
        return {**whole, "metadata": {"resourceVersion": str(self.version), **more}, "items": items[int(start) : end]}

    def _check_role(self, verb: str, kind: Kind, namespace: str, name: str, sub: str) -> None:
        if self.role is None:
            return
        resource = f"{kind.plural}/{sub}" if sub else kind.plural
        name = podproxy.split_name(name)[1] if sub == "proxy" else name
        wanted = (("apiGroups", kind.group), ("resources", resource), ("verbs", verb))
        for rule in self.role:
            names = rule.get("resourceNames")
            if all(value in rule[key] or "*" in rule[key] for key, value in wanted) and (not names or name in names):
                return
        lack = f'cannot {verb} resource "{resource}" in API group "{kind.group}" in the namespace "{namespace}"'
        raise Refused(403, "Forbidden", f'{kind.named(name)} is forbidden: User "{USER}" {lack}')


def _resource(kinds: list[Kind], parts: list[str]) -> tuple[Kind, str, str, str]:
    """Kind, namespace, name and subresource of a path: /api/v1/..., /apis/GROUP/VERSION/..."""
    group, *rest = parts[1:] if parts[0] == "apis" else ["", *parts[1:]]
    namespace = rest[2] if rest[1:2] == ["namespaces"] and len(rest) > 3 else ""
    plural, name, sub, *_ = [*(rest[3:] if namespace else rest[1:]), "", "", ""]
    for kind in kinds:
        here = [kind.group, kind.version, kind.plural] == [group, *rest[:1], plural]
        subs = ("proxy", "exec") if kind.plural == "pods" else ("scale",) if kind.scale else ()
        if here and (not sub or sub in subs):
            return kind, namespace, name, sub
    raise Refused(404, "NotFound", "the server could not find the requested resource")


def _is_merge(request: Request) -> bool:
    """Whether a patch is a merge patch, or a strategic one that means the same: one without lists."""
    if "strategic-merge-patch" in request.content_type:
        return not _has_list(request.body)
    return "merge-patch" in request.content_type


def _has_list(value: object) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and any(map(_has_list, value.values())))
