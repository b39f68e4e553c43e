"""The API server stand-in's way to Pods: their proxy leads to real sockets of this machine. `wire` calls `relay`.

    server.route("vllm-00001", 8000, page_server.port)      # a Pod's port is that local port
    server.find_route = lambda pod, port: ...               # or whatever a test finds; None: connection refused

The answer is passed on byte by byte as it comes, so that what a listener does wrong (drips, hangs, resets) arrives.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from tests.kube.store import Json, Refused

_NAME = re.compile(r"(?:(https?):)?([^:]+)(?::([^:]*))?")
_NOT_PASSED = ("authorization", "connection", "host", "content-length", "transfer-encoding", "keep-alive", "te")


@dataclass(frozen=True)
class Route:
    """Where a call to a Pod goes: a local address, over TLS or not, and what is asked there."""

    address: tuple[str, int]
    tls: bool
    method: str
    path: str


def split_name(text: str) -> tuple[str, str, str]:
    """`[SCHEME:]NAME[:PORT]` (apimachinery `SplitSchemeNamePort`) as scheme, name and port."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise Refused(400, "BadRequest", f'invalid pod request "{text}"')
    return match[1] or "http", match[2], match[3] or ""


def default_port(pod: Json) -> str:
    """The first port that a container names, as the API server takes it where none is told."""
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
    return str(ports[0]["containerPort"]) if ports else "80"


def unreachable(why: str) -> Refused:
    """What the API server answers where the Pod does not take its connection."""
    return Refused(503, "ServiceUnavailable", f"error trying to reach service: {why}")


def relay(
    route: Route, headers: Mapping[str, str], body: bytes, client: socket.socket, stopping: threading.Event
) -> None:
    """Ask the Pod and pass its answer on until either side ends. Raises Refused where no answer begins."""
    host, port = route.address
    try:
        pod: socket.socket = socket.create_connection((host, port), timeout=5)
    except OSError as error:
        raise unreachable(f"dial tcp {host}:{port}: connect: {(error.strerror or 'timed out').lower()}") from None
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: pod.close())
        try:
            if route.tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # as the API server does it
                pod = context.wrap_socket(pod)
            pod.sendall(_request(route, headers, body))
            first = _receive(pod, stopping)
        except OSError as error:
            raise unreachable(str(error.strerror or error)) from None
        if not first:
            raise unreachable("EOF")
        with contextlib.suppress(OSError):
            while first:
                client.sendall(first)
                first = _receive(pod, stopping)


def _receive(pod: socket.socket, stopping: threading.Event) -> bytes:
    """The next bytes; none at the end, or when the stand-in stops."""
    pod.settimeout(0.1)
    while not stopping.is_set():
        with contextlib.suppress(TimeoutError):
            return pod.recv(65536)
    return b""


def _request(route: Route, headers: Mapping[str, str], body: bytes) -> bytes:
    passed = [(name, value) for name, value in headers.items() if name.lower() not in _NOT_PASSED]
    passed += [("Host", f"{route.address[0]}:{route.address[1]}"), ("Connection", "close")]
    if body or route.method not in ("GET", "HEAD"):
        passed.append(("Content-Length", str(len(body))))
    head = [f"{route.method} {route.path} HTTP/1.1", *(f"{name}: {value}" for name, value in passed)]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body
