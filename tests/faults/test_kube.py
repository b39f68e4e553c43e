"""`infscale kube --apply` as a process in a Pod, while the API server or a Pod goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import recommender_process
from tests.certs import Certs
from tests.faults.api_faults import Wrong, down, forbid, goes_wrong
from tests.faults.rig import ADDRESSES, Pair, Relay
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.controller import follow_replicas
from tests.kube.street import ENGINE, SIDECAR
from tests.sidecar_process import LONG_S


@pytest.fixture
def api(pair: Pair, certs: Certs) -> Iterator[ApiServer]:
    """An API server with a Deployment of two, whose Pods' proxies lead to the pair."""
    with ApiServer(certs.server, token="t0ken") as server:
        beside = objects.container("infscale", "50m", restartPolicy="Always", ports=SIDECAR)
        spec = {"containers": [objects.container(ports=ENGINE)], "initContainers": [beside]}
        server.add(objects.deployment(replicas=2, template={"metadata": {"labels": {"app": "vllm"}}, "spec": spec}))
        follow_replicas(server, "deployments", "vllm", ip=lambda number: ADDRESSES[number - 1])
        server.find_route = lambda pod, _port: (server.get("pods", pod)["status"]["podIP"], pair.port)
        yield server


@pytest.fixture
def way(api: ApiServer) -> Iterator[Relay]:
    """The way to the API server."""
    found = Relay(api.port)
    yield found
    found.refuse()


@pytest.fixture
def kube(way: Relay, certs: Certs, tmp_path: Path) -> Callable[[], tuple[int, str, str]]:
    """Runs the command once; its exit code, standard output and standard error."""
    (tmp_path / "token").write_text("t0ken")
    (tmp_path / "ca.crt").write_bytes(certs.ca.read_bytes())
    words = ["kube", "-n", "ml", "--deployment", "vllm", "--policy", "queue:4,max=20,downwindow=0", "--apply"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(way.port),
    }

    def run() -> tuple[int, str, str]:
        command = [sys.executable, recommender_process.__file__, str(tmp_path), *words, f"--state={tmp_path}/state"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LONG_S, env=environment, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


API: dict[str, tuple[Wrong, str]] = {
    "down": (down, "cannot be reached: Connection refused"),
    "hangs": (goes_wrong("hang"), "within 10 s"),
    "overloaded": (goes_wrong("status", status=503), "503"),
    "forbidding": (forbid, "not allowed to get deployments"),
    "lists no Pods": (goes_wrong("status", "/pods", status=503), "503"),
}


def scaled(api: ApiServer) -> list[str]:
    """The writes of a count that came in."""
    return [call.path for call in api.calls("PUT") + api.calls("PATCH") if call.path.endswith("/scale")]


@pytest.mark.parametrize("name", API)
def test_api_server(api, way, kube, name):
    """Exit code 1 and one line that says why; nothing is written; the next run is as if nothing had been."""
    begin, said = API[name]
    begin(api, way)
    code, _, error = kube()
    assert (code, error.count("\n")) == (1, 1), error
    assert said in error
    assert scaled(api) == []
    api.faults.clear()
    api.role = None
    way.heal()
    code, out, error = kube()
    assert (code, error) == (0, "")
    assert "current 2 -> desired 2" in out
    assert scaled(api) == []


@pytest.mark.parametrize("count", [1, 2])
def test_engines_that_refuse(pair, api, kube, count):
    """Pods whose engines are away are silent, not idle: a line for each, the count stays; it falls when they say so."""
    for engine in pair.engines[:count]:
        engine.refuse()
    code, out, error = kube()
    assert (code, error.count("nothing listens there\n")) == (1, count), error
    assert "current 2 -> desired 2" in out
    assert scaled(api) == []
    pair.heal()
    for engine in pair.engines:
        engine.running, engine.waiting = 1, 0
    code, out, error = kube()
    assert (code, error) == (0, "")
    assert "scaled deployment ml/vllm from 2 to 1" in out


def test_api_server_that_conflicts(pair, api, kube):
    """Another writes whenever it does: theirs stands, exit code 1 and why; once they stop it is done."""
    for engine in pair.engines:
        engine.running, engine.waiting = 1, 0

    def rival() -> None:
        if api.requests[-1].path.endswith("/scale"):
            api.change("deployments", "vllm", lambda one: one["spec"].update(paused=not one["spec"].get("paused")))

    api.before_write = rival
    code, _, error = kube()
    assert code == 1
    assert "has changed since it was read" in error
    assert api.get("deployments", "vllm")["spec"]["replicas"] == 2
    api.before_write = lambda: None
    assert kube()[0] == 0
    assert api.get("deployments", "vllm")["spec"]["replicas"] == 1
