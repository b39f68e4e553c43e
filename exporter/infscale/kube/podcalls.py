"""Calls about one Pod: a page over the API server's proxy, a command in a container, a patch of annotations.

Called by `cluster`. What goes to the Pod is never sent twice. What the Pod answers is told apart from what the API
server answers in its place: its own refusals are Status objects (apimachinery pkg/apis/meta/v1 `Status`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from infscale.errors import UsageError
from infscale.kube.errors import PodUnreachable
from infscale.kube.objects import ExecAnswer, Pod, ProxyAnswer
from infscale.kube.rest import message, refusal
from infscale.kube.transport import Answer, Method, Target, Transport

_NO_WAY = "error trying to reach service"
"""How the API server begins when the Pod does not take its connection (apimachinery pkg/util/proxy/transport.go)."""

PATH = re.compile(r"[!-~]*")
"""What can be sent as a path: printable ASCII without blanks."""

_HEADER = re.compile(r"[\w-]+")


def over_proxy(
    transport: Transport,
    namespace: str,
    name: str,
    port: int,
    path: str,
    *,
    scheme: str,
    method: Method,
    headers: Mapping[str, str],
    timeout_s: float,
    max_bytes: int,
) -> ProxyAnswer:
    """One call to a Pod: see `cluster.Cluster.pod_proxy`."""
    target = Target("", "v1", "pods", namespace, name, "proxy")
    _check(target, path, scheme, headers)
    prefix = "https:" if scheme == "https" else ""
    place = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{prefix}{quote(name, safe='')}:{port}/proxy"
    answer = transport.proxy(
        method, f"{place}/{path.lstrip('/')}", headers=headers, timeout_s=timeout_s, max_bytes=max_bytes
    )
    if not _is_status(answer):
        return ProxyAnswer(answer.status, answer.body)
    said = message(answer.body)
    if answer.status in (502, 503, 504) and _NO_WAY in said:
        why = said.partition(f"{_NO_WAY}: ")[2] or said
        raise PodUnreachable(
            f"pod {namespace}/{name}: nothing answers the API server on port {port}: {why}", status=answer.status
        )
    raise refusal(method, target, answer)


def run_in(
    transport: Transport,
    namespace: str,
    name: str,
    container: str,
    command: Sequence[str],
    *,
    timeout_s: float,
    max_bytes: int,
) -> ExecAnswer:
    """One command in a container: see `cluster.Cluster.exec`."""
    answer = transport.exec(namespace, name, container, command, timeout_s=timeout_s, max_bytes=max_bytes)
    if isinstance(answer, ExecAnswer):
        return answer
    raise refusal("POST", Target("", "v1", "pods", namespace, name, "exec"), answer)


def pod_target(namespace: str, name: str) -> Target:
    """Where a Pod is in the API. Raises UsageError."""
    if not namespace or not name:
        raise UsageError(f"pod {namespace}/{name}: expected a namespace and a name")
    return Target("", "v1", "pods", namespace, name)


def annotations_patch(annotations: Mapping[str, str | None], uid: str, resource_version: str) -> dict[str, object]:
    """A merge patch that is refused where the object is another, or has changed since it was read."""
    if not uid or not resource_version:
        raise UsageError("annotations: without a UID and a resource version a write would overwrite another's")
    return {"metadata": {"uid": uid, "resourceVersion": resource_version, "annotations": dict(annotations)}}


def port_of(pod: Pod, port: str) -> int:
    """The number of a port that is given by its name; the API server's proxy to a Pod takes numbers only.

    Raises:
        PodUnreachable: the Pod has no port of that name.
    """
    number = pod.port(port)
    if number is None:
        named = [found.name for container in pod.containers for found in container.ports if found.name]
        raise PodUnreachable(
            f"pod {pod.namespace}/{pod.name}: no container names a port {port!r} (named are:"
            f" {', '.join(named) or 'none'}): add infscale's sidecar to the Pods, or tell the port's number"
        )
    return number


def _check(target: Target, path: str, scheme: str, headers: Mapping[str, str]) -> None:
    """Refuse what would be another request than it looks like. Raises UsageError."""
    if scheme not in ("http", "https"):
        raise UsageError(f"{target}: the scheme {scheme!r}: expected http or https")
    if not PATH.fullmatch(path):
        raise UsageError(f"{target}: the path {path[:80]!r}: expected printable ASCII without blanks, as /metrics")
    for header, value in headers.items():
        if not _HEADER.fullmatch(header) or not value.isprintable() or not value.isascii():
            raise UsageError(f"{target}: the header {header[:40]!r} or its value cannot be sent: expected one line")


def _is_status(answer: Answer) -> bool:
    """Whether the API server itself refused."""
    if answer.status < 300 or b'"Status"' not in answer.body[: 64 * 1024]:
        return False
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(told, dict):
        return False
    own = told.get("kind"), told.get("apiVersion"), told.get("code")
    return own == ("Status", "v1", answer.status)
