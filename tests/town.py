"""A workload in miniature: the API server stand-in with a Deployment, Pods that follow it, and an engine in each Pod.

All on one clock that the test drives; every read and write goes over real sockets. The engines' own pages are read
(`--fleet.engine-port`), each at the loopback address of its Pod.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from infscale.applier import KubeApplier
from infscale.core.grammar import parse_policy
from infscale.evaluator import Evaluator
from infscale.fleet.engines import EngineSettings
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings, Source
from infscale.kube.cluster import RestCluster
from infscale.kube.incluster import InCluster
from infscale.kube.rest import Rest
from tests.certs import Certs
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.controller import follow_replicas
from tests.raw_server import Call, RawServer

START_S = 1_800_000_000.0
NAME = "deployment/ml/vllm"

_PAGE = """\
vllm:num_requests_running{{model_name="m"}} {requests}
vllm:num_requests_waiting{{model_name="m"}} 0
vllm:generation_tokens_total{{model_name="m"}} {tokens}
"""


def address(number: int) -> str:
    """Of the Pod `vllm-0000N`; the first is 1."""
    return f"127.0.1.{number}"


class Town:
    """The workload; a context manager.

    Attributes:
        now_s: the clock, Unix seconds.
        load: requests in flight, shared by the Pods that are there and do not leave.
        quiet: addresses of engines that do not answer.
        api: the API server.
    """

    def __init__(self, folder: Path, certs: Certs, replicas: int, *, ready_after_s: float = 0.0) -> None:
        self.now_s = START_S
        self.load = 0
        self.quiet: set[str] = set()
        self.api = ApiServer(certs.server, token="t0ken", clock=lambda: self.now_s)
        self.api.add(objects.deployment(replicas=replicas))
        follow_replicas(self.api, "deployments", "vllm", ip=address, ready_after_s=ready_after_s)
        self.engines = RawServer(self._page, host="0.0.0.0")
        self._folder, self._ca, self._tokens = folder, certs.ca, 0
        (folder / "token").write_text("t0ken")

    @property
    def replicas(self) -> int:
        """What the Deployment asks for."""
        asked: int = self.api.get("deployments", "vllm")["spec"]["replicas"]
        return asked

    def clock(self) -> float:
        """The time, as what is tested takes it."""
        return self.now_s

    def cluster(self, timeout_s: float = 20.0) -> RestCluster:
        """Access to the API as a process of its own would have it; tries again at once."""
        transport = InCluster(self.api.host, self.api.port, self._folder / "token", self._ca)
        return RestCluster(Rest(transport, timeout_s=timeout_s, sleep=lambda _: None))

    def source(self) -> Source:
        """The Pods of the Deployment, and their engines."""
        settings = FleetSettings(timeout_s=10.0, engines=EngineSettings(port=self.engines.port))
        return parse_source(f"kubernetes:{NAME}", settings, cluster=self.cluster)

    def applier(self, identity: str = "a", **options: Any) -> KubeApplier:
        """One that may scale the Deployment."""
        kind, namespace, name = NAME.split("/")
        return KubeApplier(self.cluster(), kind, namespace, name, identity, wall_clock=self.clock, **options)

    def evaluator(self, policy: str, **options: Any) -> Evaluator:
        """One that evaluates the Deployment."""
        return Evaluator(self.source(), parse_policy(policy), wall_clock=self.clock, **options)

    def _page(self, call: Call) -> None:
        here = call.connection.getsockname()[0]
        if here in self.quiet:
            call.reset()
            return
        pods = self.api.list("pods")
        staying = [pod["status"]["podIP"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        share, rest = divmod(self.load, max(1, len(staying)))
        requests = share + (staying.index(here) < rest) if here in staying else 0
        self._tokens += 10 if self.load else 0
        call.page(_PAGE.format(requests=requests, tokens=self._tokens).encode())

    def __enter__(self) -> Town:
        self.api.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.engines.close()
        self.api.close()
