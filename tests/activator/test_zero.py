"""To zero and back as it ships: examples/vllm-zero's own recommender and activators, and what KEDA's triggers read.

Real processes with the command lines that the example builds; only addresses, files and the pace are others. The API
server is the stand-in, with the example's Roles.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.activator.process import ActivatorProcess
from tests.activator.rig import Client, free_port, until
from tests.fleet.dns_server import dns_server
from tests.k8s.manifests import Object, build, of_kind, pods
from tests.k8s.test_scaling import selected
from tests.kube.apiserver import ApiServer
from tests.kube.controller import follow_replicas
from tests.recommender_process import PodRecommender
from tests.sidecar_process import LONG_S

EXAMPLE = "examples/vllm-zero"
PEERS = ("127.0.0.1", "127.0.0.2")


def arguments(whose: str) -> list[str]:
    """The command line of a Deployment of the example, without the command's name."""
    (spec,) = [spec for owner, _, spec in pods(build(EXAMPLE)) if owner == f"Deployment/{whose}"]
    return list(spec["containers"][0]["args"][1:])


def triggers() -> tuple[Object, Object]:
    """The metadata of the two triggers: Prometheus, and the recommender itself."""
    (scaler,) = of_kind(build(EXAMPLE), "ScaledObject")
    first, second = (trigger["metadata"] for trigger in scaler["spec"]["triggers"])
    return first, second


class Peer(ActivatorProcess):
    """One of the example's activators; its page is at one address of several, all at one port."""

    def __init__(self, host: str, page_port: int, upstream: str) -> None:
        told = arguments("infscale-activator")
        told[told.index("--upstream") + 1] = upstream
        super().__init__(upstream, *told, f"--web.listen-address={host}:{page_port}")


@dataclass
class Zero:
    """The example at 0 replicas.

    Attributes:
        api: the API server.
        recommender, peers: the processes.
    """

    api: ApiServer
    recommender: PodRecommender
    peers: list[Peer]

    def series(self) -> float | None:
        """The value of the first trigger's query, of the recommender's page; None: no series, so no value."""
        ((name, (labels,)),) = selected(triggers()[0]["query"]).items()
        wanted = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
        return self.recommender.values().get(f"{name}{{{wanted}}}")

    def load(self) -> Any:
        """What the second trigger reads, as KEDA does: its path and its `valueLocation`, whatever the status."""
        trigger = triggers()[1]
        answer = json.loads(self.recommender.get(urlsplit(trigger["url"]).path).text)
        return answer[trigger["valueLocation"]]

    def until(self, holds: Callable[[float | None, Any], bool]) -> tuple[float | None, Any]:
        """Both values, once they are as asked for."""
        until(lambda: holds(self.series(), self.load()))
        return self.series(), self.load()


@pytest.fixture
def zero(server: ApiServer, account: Path, tmp_path: Path) -> Iterator[Zero]:
    """It runs, and holds nothing yet."""
    (deployment,) = [obj for obj in of_kind(build(EXAMPLE), "Deployment") if obj["metadata"]["name"] == "vllm"]
    server.add({**deployment, "spec": {**deployment["spec"], "replicas": 0}, "status": {}})
    follow_replicas(server, "deployments", "vllm", namespace="inference")
    server.role = [rule for role in of_kind(build(EXAMPLE), "Role") for rule in role["rules"]]
    page_port, upstream = free_port(), f"http://127.0.0.1:{free_port()}"
    told = arguments("infscale-recommender")
    assert "--interval=5" in told
    told.remove("--interval=5")
    told = [f"--state={tmp_path / 'state.json'}" if word.startswith("--state=") else word for word in told]
    told = [word.replace(":10047/", f":{page_port}/") if "--activator-url" in word else word for word in told]
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(dns_server())
        (peers,) = [urlsplit(word.partition("=")[2]).hostname for word in told if "--activator-url" in word]
        names.zone[str(peers)] = list(PEERS)
        processes = [stack.enter_context(Peer(host, page_port, upstream)) for host in PEERS]
        told.append(f"--fleet.dns-server={names.address}")
        recommender = stack.enter_context(PodRecommender(account, server.host, server.port, *told))
        yield Zero(server, recommender, processes)


def test_what_kedas_triggers_read_at_zero(zero: Zero) -> None:
    """Nothing held is 0 in both; what two activators hold is the demand in both; where one is dead there is no 0."""
    assert zero.until(lambda series, load: (series, load) == (0, 0)) == (0, 0)
    assert zero.recommender.recommendation()["desired"] == 0

    with contextlib.ExitStack() as clients:
        for peer, count in zip(zero.peers, (2, 1), strict=True):
            for _ in range(count):
                clients.enter_context(Client(peer.port)).post()
        assert zero.until(lambda series, load: (series, load) == (3, 3)) == (3, 3)
        assert zero.recommender.recommendation()["desired"] == 1
    assert zero.until(lambda series, load: (series, load) == (0, 0)) == (0, 0)
    assert zero.api.get("deployments", "vllm", "inference")["spec"]["replicas"] == 0, "KEDA is the one writer"

    zero.peers[1].popen.kill()
    assert zero.peers[1].popen.wait(LONG_S)
    zero.until(lambda series, load: (series, load) == (None, None))
    zero.recommender.evaluations(2)
    assert (zero.series(), zero.load()) == (None, None)
    with Client(zero.peers[0].port) as client:
        client.post()
        assert zero.until(lambda series, load: (series, load) == (1, 1)) == (1, 1), "the other one wakes all the same"
