"""The source `kubernetes` over the API stand-in, through infscale's own access, with real sidecars in the Pods."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infscale.core.replicas import Fleet, Phase
from infscale.fleet.engines import EngineSettings
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings, Source, WorkloadName
from infscale.kube.cluster import RestCluster
from infscale.kube.incluster import InCluster
from infscale.kube.rest import Rest
from tests.certs import make_certs
from tests.fleet.crew import ADDRESSES
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.wire import Fault
from tests.raw_server import Call, RawServer
from tests.sidecar_process import LONG_S

SERVING, SILENT, STARTING, DRAINING = Phase.SERVING, Phase.SILENT, Phase.STARTING, Phase.DRAINING
START_S = 1_800_000_000.0


def stamp(seconds: float) -> str:
    """A time as the API has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(number: int, ready: str | None = "True", since_s: float = 20.0, **status):
    """A Pod at the address of a crew member, started at START_S and ready (or not) since some seconds after that."""
    conditions = [objects.ready(ready, stamp(START_S + since_s))] if ready else []
    told = {"podIP": ADDRESSES[number], "startTime": stamp(START_S), "conditions": conditions, **status}
    return objects.pod(f"vllm-{number}", **told)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """Certificates of the API server."""
    return make_certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def api(certs) -> Iterator[ApiServer]:
    """An API server with a Deployment of five."""
    with ApiServer(certs.server, token="t0ken", clock=lambda: START_S) as server:
        server.add(objects.deployment(replicas=5))
        yield server


def source_of(api: ApiServer, certs, folder: Path, name: str = "vllm", **settings) -> Source:
    """The source for the Deployment, as a Pod would have it."""
    (folder / "token").write_text("t0ken")
    cluster = RestCluster(Rest(InCluster(api.host, api.port, folder / "token", certs.ca), timeout_s=2.0))
    told = FleetSettings(timeout_s=LONG_S, **settings)
    return parse_source(f"kubernetes:deployment/ml/{name}", told, cluster=lambda: cluster)


@pytest.fixture
def source(api, certs, tmp_path, crew) -> Iterator[Source]:
    """The source over the five."""
    found = source_of(api, certs, tmp_path, sidecar_port=crew.port)
    yield found
    found.close()


def phases(fleet: Fleet) -> list[Phase]:
    """The replicas' phases, by name."""
    return [replica.phase for replica in fleet.replicas]


def test_pods_of_a_deployment(api, source, crew):
    """Counts of the workload, a replica for each Pod, with its creation; other workloads' Pods are not ours."""
    for number in range(5):
        api.add(pod(number))
    api.add(objects.pod("other-0", app="other", podIP=ADDRESSES[0]))
    fleet = source.observe(START_S + 60)
    assert fleet.failure == ""
    assert fleet.spec_replicas == 5
    assert source.workload == WorkloadName("ml", "vllm")
    assert phases(fleet) == [SERVING] * 5
    assert [replica.inflight for replica in fleet.replicas] == [4] * 5
    assert {replica.created_s for replica in fleet.replicas} == {START_S}


def test_member_killed_mid_cycle(api, source, crew):
    """A sidecar that dies while it is asked is silent; the Pod is still there."""
    for number in range(5):
        api.add(pod(number))
    engine = crew.engines[0]
    engine.hold.set()
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(source.observe, START_S + 60)
        assert engine.asked.wait(LONG_S)
        crew.kill(0)
        engine.release()
        assert phases(looking.result(LONG_S)) == [SILENT, SERVING, SERVING, SERVING, SERVING]


def test_phases_of_pods(api, source, crew):
    """Readiness and its time tell what this process cannot remember; Pods that ended are none."""
    nobody = "127.0.0.21"
    api.add(pod(0, "True", podIP=nobody))
    api.add(pod(1, "False", since_s=0.0, podIP=nobody))
    api.add(pod(2, "False", since_s=31.0, podIP=nobody))
    api.add(pod(3, None, phase="Pending", podIP=""))
    api.add(pod(4, phase="Failed"))
    fleet = source.observe(START_S + 600)
    assert {replica.name: replica.phase for replica in fleet.replicas} == {
        "vllm-0": SILENT,
        "vllm-1": STARTING,
        "vllm-2": SILENT,
        "vllm-3": STARTING,
    }


def test_terminating_pod(api, source, crew):
    """It is draining, with what it still has in flight; once it is gone it is not missed."""
    for number in range(5):
        api.add(pod(number))
    api.change("pods", "vllm-1", lambda one: one["metadata"].update(deletionTimestamp=stamp(START_S + 90)))
    fleet = source.observe(START_S + 60)
    assert phases(fleet) == [SERVING, DRAINING, SERVING, SERVING, SERVING]
    assert fleet.replicas[1].inflight == 4


def test_pod_that_is_gone_is_not_missed(api, source, crew):
    """The API's list is the truth."""
    for number in range(2):
        api.add(pod(number))
    assert len(source.observe(START_S + 60).replicas) == 2
    api.remove("pods", "vllm-1")
    assert phases(source.observe(START_S + 75)) == [SERVING]


def test_cold_start(api, certs, tmp_path):
    """From the Pod's creation to the first look that gave a value."""
    page = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
    loads = threading.Event()
    loads.set()

    def does(call: Call) -> None:
        call.page(b"loading" if loads.is_set() else page, status="503 Busy" if loads.is_set() else "200 OK")

    api.add(pod(0, "False", since_s=0.0, podIP="127.0.0.1"))
    with RawServer(does) as engine:
        source = source_of(api, certs, tmp_path, engines=EngineSettings(port=engine.port))
        assert phases(source.observe(START_S + 60)) == [STARTING]
        loads.clear()
        (replica,) = source.observe(START_S + 75).replicas
        source.close()
    assert (replica.phase, replica.created_s, replica.served_s) == (SERVING, START_S, START_S + 75)


def test_scaled_to_zero(api, certs, tmp_path):
    """The explicit 0: read, and no Pod."""
    api.add(objects.deployment("none", replicas=0))
    fleet = source_of(api, certs, tmp_path, "none").observe(START_S)
    assert (fleet.spec_replicas, fleet.replicas, fleet.failure) == (0, (), "")


def forbidden(api: ApiServer) -> None:
    """A Role that allows nothing."""
    api.role = []


def no_pods(api: ApiServer) -> None:
    """A Role without the Pods."""
    api.role = [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]


FAILURES = {
    "403": (forbidden, "not allowed to get deployments"),
    "403 for Pods": (no_pods, "not allowed to list pods"),
    "deleted": (lambda api: api.remove("deployments", "vllm"), "there is none"),
    "broken": (lambda api: api.faults.append(Fault("broken")), "not JSON"),
    "cut": (lambda api: api.faults.append(Fault("html", status=200)), "proxy in between"),
    "gone": (lambda api: api.close(), "cannot be reached"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_api_that_fails(api, source, crew, name):
    """The failure has words, the counts are not read, and everyone who was known is silent: nothing scales on it."""
    does, says = FAILURES[name]
    for number in range(2):
        api.add(pod(number))
    assert phases(source.observe(START_S + 60)) == [SERVING] * 2
    does(api)
    fleet = source.observe(START_S + 75)
    assert says in fleet.failure
    assert "\n" not in fleet.failure
    assert (fleet.spec_replicas, phases(fleet)) == (None, [SILENT] * 2)


def test_engines_of_pods(api, certs, tmp_path, crew):
    """Without sidecars the engines' own pages are read at their port."""
    api.add(pod(0, podIP="127.0.0.1"))
    source = source_of(api, certs, tmp_path, engines=EngineSettings(port=crew.engines[0].server.port))
    fleet = source.observe(START_S + 60)
    source.close()
    assert [(replica.name, replica.inflight) for replica in fleet.replicas] == [("vllm-0", 4)]


def test_the_pods_addresses_are_the_names_of_the_speakers(api, certs, tmp_path):
    """Of sidecars with this source the three lowest addresses evaluate; Pods that ended or have none do not count."""
    for number in range(4):
        api.add(pod(number))
    api.add(objects.pod("vllm-done", phase="Succeeded", podIP="127.0.0.9"))
    api.add(objects.pod("vllm-new", phase="Pending"))
    with closing(source_of(api, certs, tmp_path)) as source:
        assert sorted(source.names()) == sorted(ADDRESSES[:4])
