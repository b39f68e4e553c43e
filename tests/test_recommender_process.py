"""`python -m infscale recommender` over real sidecars, found in each way there is; and sidecars that evaluate."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.certs import make_certs
from tests.fleet.crew import ADDRESSES
from tests.fleet.dns_server import dns_server
from tests.fleet.prometheus_process import Prometheus
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.controller import follow_replicas
from tests.metrics.test_exposition import check_with_promtool
from tests.raw_server import RawServer
from tests.recommender_process import PodRecommender, Recommender, Team
from tests.sidecar_process import LONG_S, Process, sidecar

POLICY = "--policy=queue:4,max=20,downwindow=0"
LABELS = 'workload="vllm",workload_namespace="ml"'
COUNTED = ("--workload=ml/vllm", "--spec-replicas=5")
LEASE = "infscale-deployments.apps-vllm"


@pytest.fixture(scope="module")
def five() -> Iterator[Team]:
    """Five sidecars, for all tests of this file."""
    team = Team()
    yield team
    team.restore()
    team.close()


@pytest.fixture
def team(five: Team) -> Team:
    """Five sidecars, all well, with 4 requests in flight each."""
    five.restore()
    return five


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """Certificates of the API server."""
    return make_certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def replicas() -> int:
    """What the Deployment asks for at first."""
    return 5


@pytest.fixture
def api(certs, replicas) -> Iterator[ApiServer]:
    """An API server with a Deployment, whose Pods are the five."""
    with ApiServer(certs.server, token="t0ken") as server:
        server.add(objects.deployment(replicas=replicas))
        follow_replicas(server, "deployments", "vllm", ip=lambda number: ADDRESSES[number - 1])
        yield server


class Access:
    """The ways of a process to the API server."""

    def __init__(self, api: ApiServer, certs, folder: Path, port: int) -> None:
        self.source = ("--fleet.source=kubernetes:deployment/ml/vllm", f"--fleet.sidecar-port={port}")
        self._api, self._folder = api, folder
        self._config = api.kubeconfig(folder, certs.ca)
        (folder / "token").write_text("t0ken")
        (folder / "ca.crt").write_bytes(certs.ca.read_bytes())

    def in_cluster(self, *arguments: str) -> Recommender:
        """As in a Pod."""
        return PodRecommender(self._folder, self._api.host, self._api.port, *self.source, *arguments)

    def kubectl(self, *arguments: str) -> Recommender:
        """As a person has it."""
        return Recommender(*self.source, f"--kube.config={self._config}", *arguments, HOME=str(self._folder))


@pytest.fixture
def access(api, certs, tmp_path, team) -> Access:
    """The ways to the API server."""
    return Access(api, certs, tmp_path, team.port)


@pytest.fixture
def names():
    """A name server."""
    with dns_server() as server:
        yield server


@pytest.fixture
def prometheus(five, tmp_path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the five, and a page of kube-state-metrics."""
    counts = {"spec_replicas": 5, "status_replicas": 5, "status_replicas_ready": 5}
    lines = [f'kube_deployment_{name}{{namespace="ml",deployment="vllm"}} {count}' for name, count in counts.items()]
    pods = [{"namespace": "ml", "workload": "vllm", "pod": f"vllm-{number}"} for number in range(5)]
    page = "\n".join([*lines, ""]).encode()
    with RawServer(lambda call: call.page(page, "Content-Type: text/plain; version=0.0.4")) as counted:
        jobs = {
            "sidecars": dict(zip(five.places, pods, strict=True)),
            "counts": {f"127.0.0.1:{counted.port}": {}},
        }
        server = Prometheus(tmp_path, jobs)
        yield server
        server.close()


def stored(api: ApiServer) -> int:
    """What the Deployment asks for."""
    asked: int = api.get("deployments", "vllm")["spec"]["replicas"]
    return asked


def holder(api: ApiServer) -> str | None:
    """Who has the Lease; None where nobody has."""
    with api.lock:
        lease = api.objects.get(("leases", "ml", LEASE))
    return lease["spec"]["holderIdentity"] if lease else None


def until(holds: Callable[[], object]) -> float:
    """Wait for it; the time at which it was so, Unix seconds."""
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end, holds
        time.sleep(0.02)
    return time.time()


def serves(count: int) -> Callable[[dict[str, Any]], bool]:
    """Whether so many replicas gave a value, and everyone else is silent."""
    return lambda one: one["replicas"]["serving"] == count and one["replicas"]["silent"] == 5 - count


def asked_since(found: dict[str, Any], time_s: float) -> set[int]:
    """All counts that were recommended since then, by the history of the process itself."""
    entries = [entry for entry in found["history"] if entry["until"] >= time_s]
    return {entry["desired"] for entry in entries if entry["desired"] is not None}


def shows(process: Process, **wanted: float) -> None:
    """Wait until a page has these values of the workload, all at once."""
    series = {f"infscale_{name}{{{LABELS}}}": value for name, value in wanted.items()}
    until(lambda: series.items() <= process.values().items())


@pytest.fixture
def recommenders(team, access, names, prometheus) -> Iterator[dict[str, Recommender]]:
    """One for each way to find the five."""
    names.zone["peers.test"] = list(ADDRESSES)
    dns = (f"--fleet.source=dns:peers.test:{team.port}", f"--fleet.dns-server={names.address}")
    ways: dict[str, Callable[[], Recommender]] = {
        "static": lambda: Recommender(f"--fleet.source={team.static}", *COUNTED, POLICY),
        "dns": lambda: Recommender(*dns, *COUNTED, POLICY),
        "prometheus": lambda: Recommender(f"--fleet.source=prometheus:{prometheus.url}", "--workload=ml/vllm", POLICY),
        "kubectl": lambda: access.kubectl(POLICY),
        "in-cluster": lambda: access.in_cluster(POLICY),
    }
    with ExitStack() as stack, ThreadPoolExecutor(len(ways)) as pool:
        started = pool.map(lambda start: stack.enter_context(start()), ways.values())
        yield dict(zip(ways, started, strict=True))


def test_holes_never_scale_down(recommenders, team):
    """Killed, hung and restarted sidecars, with no window to hide behind; a fall that was read does scale down."""

    def all_see(holds: Callable[[dict[str, Any]], object]) -> list[dict[str, Any]]:
        return [recommender.until(holds) for recommender in recommenders.values()]

    all_see(serves(5))
    began_s = time.time()
    for recommender in recommenders.values():
        shows(recommender, recommended_replicas=5, workload_inflight_requests=20)

    team.kill(0)
    all_see(serves(4))
    team.hang(1)
    for found in all_see(serves(3)):
        assert (len(found["silent"]), found["inflight"], found["demand"]) == (2, 12, 20)
    team.hang(2)
    assert {found["reason"] for found in all_see(serves(2))} == {"partial_samples"}
    for recommender in recommenders.values():
        shows(recommender, recommended_replicas=5, workload_demand_requests=20, coverage_ratio=0.4)

    team.restore()
    for found in all_see(serves(5)):
        assert asked_since(found, began_s) == {5}
    team.load(running=1)
    all_see(lambda one: one["desired"] == 2 and one["reason"] == "metric")


@pytest.mark.parametrize("replicas", [2])
def test_wall_clock_one_writer_and_a_window_of_20_s(api, access, team, tmp_path):
    """Burst, hold, fall, and only then down; while it holds, writers are killed, follow each other and come back."""
    options = ("--policy=queue:4,max=5,downwindow=20", "--apply", "--fleet.timeout=2")
    kept = f"--state={tmp_path / 'state.json'}"
    with access.in_cluster(*options, kept) as first:
        until(lambda: holder(api))
        with access.in_cluster(*options) as second:
            team.load(running=10)
            until(lambda: stored(api) == 5)
            first.until(lambda one: serves(5)(one) and not one["message"])
            second.until(lambda one: one["message"] == f"not scaled: another recommender holds the Lease ml/{LEASE}")

            team.load(running=1)  # 5 in all: 2 replicas are enough
            fell_s = time.time()
            first.popen.kill()
            dead = holder(api)
            until(lambda: holder(api) != dead)
            second.until(lambda one: one["reason"] == "stabilised")
            team.hang(4)
            second.until(lambda one: one["replicas"]["silent"] == 1)
            team.restore()
            team.load(running=1)

            with access.in_cluster(*options, kept) as third:
                third.until(serves(5))
                assert second.stop() == 0  # gives the Lease back
                until(lambda: holder(api) not in (None, dead))
                assert stored(api) == 5
                down_s = until(lambda: stored(api) < 5)
                third.until(lambda one: one["current"] == 2)
                assert third.stop() == 0
    assert holder(api) is None
    assert down_s - fell_s > 19
    writes = [request for request in api.calls("PUT") if request.path.endswith("/scale")]
    assert [request.body["spec"]["replicas"] for request in writes] == [5, 2]


def series(process: Process, name: str) -> list[float]:
    """The values of a workload's series; none where it is absent."""
    return [value for key, value in process.values().items() if key.startswith(name + "{")]


@pytest.mark.parametrize("replicas", [0])
def test_the_explicit_zero(api, access):
    """At 0 that was read, 0 is a number; once it can be read no more, nothing is, and KEDA gets 503 with the reason."""
    with access.in_cluster("--policy=queue:4,min=0,max=5") as recommender:
        found = recommender.until(lambda one: one["evaluated_at"])
        assert (found["desired"], found["current"], found["inflight"], found["demand"]) == (0, 0, 0.0, 0.0)
        assert recommender.get("/api/v1/recommendation").status_code == 200
        assert recommender.get("/api/v1/load").json() == {"inflight": 0.0, "demand": 0.0}
        assert series(recommender, "infscale_recommended_replicas") == [0]
        assert series(recommender, "infscale_workload_inflight_requests") == [0]
        check_with_promtool(recommender.get("/metrics").content)

        api.role = []
        found = recommender.until(lambda one: "not allowed to get deployments" in one.get("error", ""))
        assert found["replicas"]["spec"] is None
        for path in ("/api/v1/recommendation", "/api/v1/load"):
            assert recommender.get(path).status_code == 503
        assert series(recommender, "infscale_recommended_replicas") == []
        assert series(recommender, "infscale_workload_inflight_requests") == []
        assert "add to a Role" in recommender.get("/").text
        assert recommender.stop() == 0
        assert "Traceback" not in "".join(recommender.log)


def test_without_a_count_nothing_is_recommended(team):
    """Replicas that answer tell the load, which is a plain number for KEDA; what is asked for they do not tell."""
    with Recommender(f"--fleet.source={team.static}", POLICY) as recommender:
        found = recommender.until(lambda one: one["replicas"]["serving"] == 5)
        assert "replica count was not read" in found["error"]
        assert recommender.get("/api/v1/recommendation").status_code == 503
        assert recommender.get("/api/v1/load").json() == {"inflight": 20.0, "demand": 20.0}
        assert series(recommender, "infscale_recommended_replicas") == []
        assert series(recommender, "infscale_workload_demand_requests") == [20]


def test_state_outlives_a_kill_and_damage_is_set_aside(team, tmp_path):
    """Killed and started again it still holds what it asked for; a damaged file is kept aside, told and counted."""
    path = tmp_path / "state.json"
    options = (f"--fleet.source={team.static}", *COUNTED, "--policy=queue:4,max=20", f"--state={path}")
    team.load(running=6)
    with Recommender(*options) as recommender:
        recommender.until(lambda one: one["desired"] == 8)
        recommender.popen.kill()
    team.load(running=4)
    with Recommender(*options) as recommender:
        found = recommender.until(serves(5))
        assert (found["desired"], found["reason"], found["hpa"]) == (8, "stabilised", 8)
        recommender.popen.kill()
    path.write_bytes(path.read_bytes()[:100])
    with Recommender(*options) as recommender:
        assert recommender.until(serves(5))["desired"] == 5
        assert series(recommender, "infscale_state_resets_total") == [1]
        assert recommender.stop() == 0
        assert "moved to" in "".join(recommender.log)
    assert (tmp_path / "state.json.bad").stat().st_size == 100
    assert sorted(one.name for one in tmp_path.iterdir()) == ["state.json", "state.json.bad"]


def test_engines_own_pages_in_a_dry_run(api, access):
    """Without a sidecar anywhere: engines are only read, and of the API nothing is written."""
    page = b"vllm:num_requests_running 6\nvllm:num_requests_waiting 2\nvllm:generation_tokens_total 1\n"
    with RawServer(lambda call: call.page(page), host="0.0.0.0") as engines:
        with access.in_cluster(POLICY, f"--fleet.engine-port={engines.port}") as recommender:
            found = recommender.until(serves(5))
            assert (found["desired"], found["inflight"]) == (10, 40)
            found = recommender.evaluations(3)
            assert found["desired"] == 10  # what nobody does is still asked for
        assert {call.request.split(b" ")[0] for call in engines.calls} == {b"GET"}
    assert {request.method for request in api.calls()} == {"GET"}
    assert stored(api) == 5


def test_activator_that_falls_silent_holds(api, access, team):
    """Held requests count; without an answer of the activator nothing falls."""
    held = 'infscale_pending_requests{workload_namespace="ml",workload="vllm"} 20\n'
    with (
        RawServer(lambda call: call.page(held.encode())) as activator,
        access.in_cluster(POLICY, f"--activator-url={activator.url()}") as recommender,
    ):
        assert recommender.until(serves(5))["inflight"] == 40
        activator.close()
        team.load(running=1)
        found = recommender.until(lambda one: one["inflight"] == 5)
        assert (found["desired"], found["reason"]) == (5, "partial_samples")


def resident_mb(process: Process) -> float:
    """Resident memory, MB."""
    pages = int(Path(f"/proc/{process.popen.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_sidecar_that_is_the_whole_workload(team):
    """`single`: one replica, its own reading; the page passes promtool, and the process stays small."""
    engine = team.engines[0].server.url()
    fleet = ("--fleet.source=single", "--workload=ml/vllm", "--policy=queue:2,max=8", "--interval=0.2")
    with sidecar("--engine-url", engine, *fleet) as process, sidecar("--engine-url", engine) as bare:
        until(lambda: series(process, "infscale_recommended_replicas") == [2])
        assert process.values()['infscale_inflight_requests{model_name="m"}'] == 4
        assert process.get("/api/v1/recommendation").json()["desired"] == 2
        assert process.get("/api/v1/load").json() == {"inflight": 4.0, "demand": 4.0}
        assert "1 -&gt; 2" in process.get("/").text
        check_with_promtool(process.get("/metrics").content)
        assert series(bare, "infscale_recommended_replicas") == []
        assert bare.get("/api/v1/recommendation").status_code == 404
        assert resident_mb(bare) < resident_mb(process) < 45


def test_three_of_five_sidecars_evaluate(team, names):
    """By the order of their names, whoever starts first; the others say whom to ask, and read nobody."""
    names.zone["peers.test"] = list(ADDRESSES)
    source = (f"--fleet.source=dns:peers.test:{team.port}", f"--fleet.dns-server={names.address}", *COUNTED)
    started: dict[int, Process] = {}

    def start(number: int) -> None:
        me = ("--engine-url", team.engines[number].server.url(), f"--fleet.self={ADDRESSES[number]}")
        started[number] = Process(*me, *source, POLICY, "--interval=0.2", "--fleet.timeout=2")

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(start, range(5)))
    try:
        for number in range(3):
            until(lambda number=number: series(started[number], "infscale_recommended_replicas") == [5])  # type: ignore[misc]
        for number in (3, 4):
            error = started[number].get("/api/v1/recommendation").json()["error"]
            assert error == f"others evaluate this workload, ask one of them: {', '.join(ADDRESSES[:3])}"
            assert series(started[number], "infscale_evaluation_timestamp_seconds") == []
    finally:
        for process in started.values():
            process.close()
