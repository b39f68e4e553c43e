"""A Deployment on the stand-in whose Pods are read through the API server: engines or sidecars on real sockets."""

from __future__ import annotations

import json
from typing import Any

from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.controller import follow_replicas
from tests.raw_server import Call, RawServer

START_S = 1_800_000_000.0
ENGINE = [{"name": "http", "containerPort": 8000}]
SIDECAR = [{"name": "infscale", "containerPort": 10047}, {"name": "infscale-probe", "containerPort": 10048}]

_PAGE = """\
vllm:num_requests_running{{model_name="m"}} {running}
vllm:num_requests_waiting{{model_name="m"}} {waiting}
vllm:generation_tokens_total{{model_name="m"}} {tokens}
"""


class Street:
    """The Deployment `ml/vllm`; a context manager.

    Attributes:
        now_s: the clock, Unix seconds.
        load: requests in flight, shared by the Pods that do not leave.
        quiet: Pods that do not answer.
        pages: what a Pod answers instead: status and body.
        server: the API server.
    """

    def __init__(
        self, server: ApiServer, replicas: int = 1, *, sidecar: bool = False, annotations: Any = None, **kubelet: Any
    ) -> None:
        self.now_s, self.load, self.tokens = START_S, 0, 0
        self.quiet: set[str] = set()
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.asked: list[str] = []
        self.server = server
        spec = {"containers": [objects.container(ports=ENGINE)]}
        if sidecar:
            spec["initContainers"] = [objects.container("infscale", "50m", restartPolicy="Always", ports=SIDECAR)]
        template = {"metadata": {"labels": {"app": "vllm"}, "annotations": annotations or {}}, "spec": spec}
        server.clock = lambda: self.now_s
        server.add(objects.deployment(replicas=replicas, template=template))
        follow_replicas(server, "deployments", "vllm", ip=lambda number: f"127.0.1.{number}", **kubelet)
        self.listener = RawServer(self._answer, host="0.0.0.0")
        server.find_route = self._route

    def __enter__(self) -> Street:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    @property
    def replicas(self) -> int:
        """What the Deployment asks for."""
        asked: int = self.server.get("deployments", "vllm")["spec"]["replicas"]
        return asked

    def _route(self, pod: str, port: str) -> tuple[str, int] | None:
        self.asked.append(port)
        ip = self.server.get("pods", pod)["status"]["podIP"]
        return None if pod in self.quiet else (ip, self.listener.port)

    def _answer(self, call: Call) -> None:
        here = call.connection.getsockname()[0]
        pods = self.server.list("pods")
        names = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        name = next((pod["metadata"]["name"] for pod in pods if pod["status"]["podIP"] == here), None)
        if name is None:
            return  # no Pod of this street: a stray client
        if name in self.pages:
            status, body = self.pages[name]
            call.page(body, status=status)
            return
        share, rest = divmod(self.load, max(1, len(names)))
        inflight = share + (names.index(name) < rest) if name in names else 0
        running = min(inflight, 2)
        self.tokens += 10 if self.load else 0
        if call.path == "/api/v1/reading":
            told = {"state": "ok", "inflight": inflight, "running": running, "waiting": inflight - running}
            call.page(json.dumps({**told, "draining": False, "engines": [{"engine": "sglang"}]}).encode())
            return
        call.page(_PAGE.format(running=running, waiting=inflight - running, tokens=self.tokens).encode())
