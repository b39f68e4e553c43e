"""A workload in miniature for retirements: the API server stand-in, its controllers, and a sidecar in each Pod.

Every read and write goes over real sockets, on one clock that the test drives.
"""

from __future__ import annotations

import datetime
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infscale.kube.cluster import RestCluster
from infscale.kube.incluster import InCluster
from infscale.kube.rest import Rest
from infscale.kube.transport import Transport
from infscale.retire.passes import Progress, Retirer
from infscale.retire.persisted import ANNOTATION, FileStore
from infscale.retire.record import State
from tests.certs import Certs
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.controller import follow_replicas
from tests.kube.slices import follow_endpoints
from tests.retire.plain import Plain
from tests.retire.sidecars import TOKEN, FakeSidecar

START_S = 1_800_000_000.0
SELECTORS = {
    "deployments": "app=vllm",
    "statefulsets": "app=vllm",
    "leaderworkersets": "leaderworkerset.sigs.k8s.io/name=vllm,leaderworkerset.sigs.k8s.io/worker-index=0",
}
MAKERS: dict[str, Callable[..., objects.Json]] = {
    "deployments": objects.deployment,
    "statefulsets": objects.stateful_set,
    "leaderworkersets": objects.leader_worker_set,
}
KINDS = {"deployments": "deployment", "statefulsets": "statefulset", "leaderworkersets": "leaderworkerset"}


def engine(*arguments: str, **more: Any) -> objects.Json:
    """The engine's container."""
    command = ["vllm", "serve", "m", *arguments]
    ports = [{"name": "http", "containerPort": 8000}]
    return objects.container("engine", command=command, ports=ports, **more)


def sidecar_container() -> objects.Json:
    """The sidecar's container, a native one."""
    ports = [{"name": "infscale", "containerPort": 10047}]
    return objects.container("infscale", "100m", ports=ports, restartPolicy="Always")


class Rig:
    """The workload `vllm` in namespace `ml`.

    Attributes:
        now_s: the clock, Unix seconds.
        api: the API server.
        sidecars: by Pod name.
        starting: Pods that are not ready yet.
    """

    def __init__(
        self,
        folder: Path,
        *,
        plural: str = "deployments",
        replicas: int = 3,
        container: objects.Json | None = None,
        annotations: dict[str, str] | None = None,
        gone_after_s: float = 3.0,
        sidecar: bool = True,
        service: str = "",
        exec_by: str = "",
        certs: Certs | None = None,
    ) -> None:
        """Makes it, all ready and idle for a minute.

        Args:
            folder: for files.
            plural: the kind of workload.
            replicas: how many it begins with.
            container: the engine's, if it is to be another.
            annotations: of the Pods.
            gone_after_s: how long a Pod that is deleted terminates.
            sidecar: whether the Pods have one.
            service: selector of the Service, if it is to be another.
            exec_by: a program that is run as kubectl for exec.
            certs: for the product's own access from within a Pod, over TLS, which bounds each call; else plain HTTP.
        """
        self.now_s, self.plural, self.folder = START_S, plural, folder
        self._exec_by, self._certs = exec_by, certs
        self.sidecars: dict[str, FakeSidecar] = {}
        self.starting: set[str] = set()
        self.clock: Callable[[], float] = lambda: self.now_s
        self.api = ApiServer(certs.server if certs else None, token="t0ken", clock=lambda: self.clock())
        self.api.find_route = self._route
        workload = MAKERS[plural](replicas=replicas)
        spec = workload["spec"]
        template = (
            spec["leaderWorkerTemplate"]["workerTemplate"] if "leaderWorkerTemplate" in spec else spec["template"]
        )
        template["spec"] = {"containers": [container or engine()]}
        template["spec"] |= {"initContainers": [sidecar_container()]} if sidecar else {}
        template["metadata"]["annotations"] = annotations or {}
        self.api.add(workload)
        follow_replicas(
            self.api, plural, "vllm", gone_after_s=gone_after_s, probe=self._probe, ip=lambda n: f"10.0.0.{n}"
        )
        follow_endpoints(self.api, "vllm", service or SELECTORS[plural])
        (folder / "token").write_text(f"{TOKEN}\n")
        self.api.__enter__()
        self.now_s += 60

    @property
    def pods(self) -> list[str]:
        """The names of the Pods that do not leave."""
        return [p["metadata"]["name"] for p in self.api.list("pods") if "deletionTimestamp" not in p["metadata"]]

    @property
    def replicas(self) -> int:
        """What the workload asks for."""
        asked: int = self.api.get(self.plural, "vllm")["spec"]["replicas"]
        return asked

    @property
    def record(self) -> str:
        """The persisted record, as it stands on the workload."""
        text: str = self.api.get(self.plural, "vllm")["metadata"]["annotations"][ANNOTATION]
        return text

    def live(self, now_s: float) -> None:
        """Let the clock be the wall clock, from which the workload began a minute ago."""
        for plural, _, name in list(self.api.objects):
            obj = self.api.get(plural, name)
            text = json.dumps(obj).replace(_rfc3339(START_S), _rfc3339(now_s - 60))
            self.api.objects[plural, "ml", name] = json.loads(text)
        self.clock = time.time

    def sidecar(self, pod: str) -> FakeSidecar:
        """The sidecar of a Pod, made when it is first asked for."""
        if pod not in self.sidecars:
            self.sidecars[pod] = FakeSidecar(lambda: self.clock())
        return self.sidecars[pod]

    def cluster(self, timeout_s: float = 20.0) -> RestCluster:
        """Access to the API as a process of its own would have it."""
        transport: Transport = Plain(self.api, self._exec_by)
        if self._certs:
            (self.folder / "kube-token").write_text("t0ken")
            transport = InCluster(self.api.host, self.api.port, self.folder / "kube-token", self._certs.ca)
        return RestCluster(Rest(transport, timeout_s=timeout_s, sleep=lambda _: None))

    def retirer(self, *, file: str = "", token: bool = True, **options: Any) -> Retirer:
        """A controller as it begins: it remembers nothing."""
        return Retirer(
            self.cluster(),
            KINDS[self.plural],
            "ml",
            "vllm",
            store=FileStore(self.folder / file) if file else None,
            token_file=str(self.folder / "token") if token else None,
            clock=lambda: self.now_s,
            wall_clock=lambda: self.now_s,
            **options,
        )

    def step(self, retirer: Retirer) -> Progress:
        """A pass, and a second."""
        progress = retirer.step(self.now_s)
        self.now_s += 1
        return progress

    def run(self, retirer: Retirer, until: State | None = None, passes: int = 400) -> list[Progress]:
        """Passes until a state is reached, or it is over."""
        steps = []
        for _ in range(passes):
            steps.append(self.step(retirer))
            if steps[-1].final or steps[-1].exhausted or steps[-1].state is until is not None:
                return steps
        raise AssertionError(f"not over after {passes} passes: {steps[-1]}")

    def close(self) -> None:
        """Take all down."""
        self.api.close()
        for sidecar in self.sidecars.values():
            sidecar.close()

    def _probe(self, pod: str) -> bool:
        return pod not in self.starting and not (pod in self.sidecars and self.sidecars[pod].withdrawn)

    def _route(self, pod: str, port: str) -> tuple[str, int] | None:
        return ("127.0.0.1", self.sidecar(pod).server.port) if port == "10047" else None


def _rfc3339(time_s: float) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def states(steps: list[Progress]) -> list[str]:
    """The states that a run went through, each once."""
    return [state for state, _ in itertools.groupby(step.state.value if step.state else "" for step in steps)]
