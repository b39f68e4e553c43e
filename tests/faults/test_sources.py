"""What a recommender looks through goes wrong: Prometheus, the name server, the API server. Real processes look."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certs import Certs
from tests.faults.api_faults import Wrong, down, forbid, goes_wrong
from tests.faults.rig import (
    ADDRESSES,
    COUNTED,
    ELSEWHERE,
    POLICY,
    SLOW_LOOK,
    Gate,
    Pair,
    Relay,
    asked_since,
    assert_holds,
    is_well,
    published,
    told,
    until,
)
from tests.fleet.dns_server import DnsServer
from tests.fleet.prometheus_process import Prometheus
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.controller import follow_replicas
from tests.recommender_process import PodRecommender, Recommender

Result = list[dict[str, Any]]
EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


@pytest.fixture(scope="module")
def gate(both: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """A Prometheus that scrapes both sidecars under two jobs, behind a gate."""
    both.heal()
    pods = {
        f"{address}:{both.port}": {"namespace": "ml", "workload": "vllm", "pod": f"vllm-{number}"}
        for number, address in enumerate(ADDRESSES)
    }
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), {"one": pods, "two": pods})
    found = Gate(server.port)
    yield found
    found.refuse()
    server.close()


@pytest.fixture(scope="module")
def asking(gate: Gate) -> Iterator[Recommender]:
    """A recommender that asks Prometheus."""
    source = f"--fleet.source=prometheus:http://127.0.0.1:{gate.port}"
    with Recommender(source, *COUNTED, POLICY, "--fleet.timeout=1") as found:
        yield found


def hang(gate: Gate) -> None:
    """No answer."""
    gate.answer = lambda call: call.hang()


def drip(gate: Gate) -> None:
    """An answer that takes for ever."""
    gate.answer = lambda call: call.drip(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000, 0.05)


def empty(gate: Gate) -> None:
    """It has just started and knows no series."""
    gate.answer = lambda call: call.page(EMPTY, "Content-Type: application/json")


PROMETHEUS: dict[str, tuple[Callable[[Gate], None], str]] = {
    "down": (Gate.refuse, "nothing listens there"),
    "slow": (hang, "timed out after 1 s"),
    "dripping": (drip, "timed out after 1 s"),
    "empty": (empty, 'no series with namespace="ml", workload="vllm"'),
}


@pytest.mark.parametrize("name", PROMETHEUS)
def test_prometheus(pair, gate, asking, name):
    """An outage is not "no load": the message says what, both are silent, two stay asked for, and it heals."""
    begin, said = PROMETHEUS[name]
    asking.until(is_well)
    began_s, lines = time.time(), len(asking.log)
    begin(gate)
    found = asking.until(lambda one: said in one["message"])
    assert found["message"].startswith(f"Prometheus at 127.0.0.1:{gate.port}: ")
    assert found["replicas"]["silent"] == 2
    asking.evaluations(1)
    assert_holds(asking, silent=2, looked=False)
    assert told(asking, lines, "level=warn msg=decision", "desired=2", "Prometheus at")
    gate.heal()
    asking.until(is_well)
    assert asked_since(asking, began_s) == {2}


def doubled(result: Result) -> Result:
    """Every series a second time, of an older copy that says 0."""
    copies = [
        {"metric": {**one["metric"], "instance": "copy"}, "value": [one["value"][0], "0"]}
        for one in result
        if "infscale_told" not in one["metric"]
    ]
    return [*result, *copies]


def test_prometheus_with_two_series(pair, gate, asking):
    """Two jobs that scrape a sidecar are one replica, and of two values the larger one counts, never their sum."""
    asking.until(is_well)
    began_s = time.time()
    assert asking.recommendation()["inflight"] == 8
    gate.change = doubled
    found = asking.evaluations(3)
    assert (found["inflight"], found["replicas"]["serving"]) == (8, 2)
    gate.heal()
    asking.until(is_well)
    assert asked_since(asking, began_s) == {2}


class Names(DnsServer):
    """A name server that may be late with each of its answers."""

    late_s = 0.0

    def _answers(self, data: bytes, transport: str) -> list[bytes]:
        found = super()._answers(data, transport)
        time.sleep(self.late_s)
        return found


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    """A name server."""
    server = Names()
    server.zone["peers.test"] = list(ADDRESSES)
    yield server
    server.close()


@pytest.fixture(scope="module")
def resolving(both: Pair, names: DnsServer) -> Iterator[Recommender]:
    """A recommender that finds both by a name."""
    source = (f"--fleet.source=dns:peers.test:{both.port}", f"--fleet.dns-server={names.address}")
    with Recommender(*source, *COUNTED, POLICY, "--fleet.timeout=2") as found:
        yield found


UNLISTED = 'msg="replicas silent"'
DNS: dict[str, tuple[list[str] | str, str, str]] = {
    "empty": ([], UNLISTED, "listed no more"),
    "half empty": ([ADDRESSES[0]], UNLISTED, "listed no more"),
    "unknown": ("nxdomain", "msg=decision", "peers.test"),
    "failing": ("servfail", "msg=decision", "peers.test"),
    "refusing": ("refused", "msg=decision", "peers.test"),
    "slow": ("silent", "msg=decision", "peers.test"),
    "garbage": ("garbage", "msg=decision", "peers.test"),
    "cut": ("half", "msg=decision", "peers.test"),
    "forged": ("forged", "msg=decision", "peers.test"),
}


@pytest.mark.parametrize("name", DNS)
def test_dns(pair, names, resolving, name):
    """Who is listed no more is missed, not gone; a server that fails is told; two stay asked for, and it heals."""
    answer, event, said = DNS[name]
    resolving.until(is_well)
    began_s, lines = time.time(), len(resolving.log)
    names.zone["peers.test"] = answer
    silent = 1 if name == "half empty" else 2
    found = resolving.until(lambda one: one["replicas"]["silent"] == silent)
    assert event == UNLISTED or said in found["message"]
    resolving.evaluations(1)
    assert_holds(resolving, silent=silent, looked=event == UNLISTED)
    assert told(resolving, lines, "level=warn", event, said)
    names.zone["peers.test"] = list(ADDRESSES)
    resolving.until(is_well)
    assert asked_since(resolving, began_s) == {2}
    assert "10.6.6.6" not in "".join(resolving.log[lines:])  # the forger's address


def test_dns_that_is_late(pair, names, resolving):
    """Its answers come when nobody waits for them any more: they are no answers to the next question."""
    resolving.until(is_well)
    began_s, lines = time.time(), len(resolving.log)
    names.late_s = 1.4  # longer than a question waits
    try:
        resolving.until(lambda one: one["replicas"]["silent"] == 2)
        resolving.evaluations(1)
        assert_holds(resolving, silent=2, looked=False)
        assert told(resolving, lines, "level=warn msg=decision", "does not answer")
    finally:
        names.late_s = 0.0
    resolving.until(is_well)
    assert asked_since(resolving, began_s) == {2}


def test_dns_that_is_stale(pair, names, resolving):
    """A replica that lives elsewhere by now, while its name has the old address: silent, until the name is renewed."""
    resolving.until(is_well)
    began_s, lines = time.time(), len(resolving.log)
    pair.move(1, ELSEWHERE)
    try:
        found = resolving.until(lambda one: one["replicas"]["silent"] == 1)
        assert found["silent"] == [ADDRESSES[1]]
        resolving.evaluations(1)
        assert_holds(resolving, silent=1)
        assert told(resolving, lines, "level=warn", UNLISTED, f"names={ADDRESSES[1]}")
        names.zone["peers.test"] = [ADDRESSES[0], ELSEWHERE]
        resolving.until(is_well)
    finally:
        pair.move(1, ADDRESSES[1])
        names.zone["peers.test"] = list(ADDRESSES)
    resolving.until(is_well)
    assert asked_since(resolving, began_s) == {2}


@pytest.fixture
def api(certs: Certs) -> Iterator[ApiServer]:
    """An API server with a Deployment of two, whose Pods are the pair."""
    with ApiServer(certs.server, token="t0ken") as server:
        server.add(objects.deployment(replicas=2))
        follow_replicas(server, "deployments", "vllm", ip=lambda number: ADDRESSES[number - 1])
        yield server


@pytest.fixture
def way(api: ApiServer) -> Iterator[Relay]:
    """The way to the API server."""
    found = Relay(api.port)
    yield found
    found.refuse()


@pytest.fixture
def scaling(pair: Pair, api: ApiServer, way: Relay, certs: Certs, tmp_path: Path) -> Iterator[Recommender]:
    """A recommender in a Pod that scales the Deployment."""
    (tmp_path / "token").write_text("t0ken")
    (tmp_path / "ca.crt").write_bytes(certs.ca.read_bytes())
    source = ("--fleet.source=kubernetes:deployment/ml/vllm", f"--fleet.sidecar-port={pair.port}", "--apply")
    with PodRecommender(tmp_path, api.host, way.port, *source, POLICY, SLOW_LOOK) as found:
        yield found


def stored(api: ApiServer) -> int:
    """What the Deployment asks for."""
    asked: int = api.get("deployments", "vllm")["spec"]["replicas"]
    return asked


API: dict[str, tuple[Wrong, str]] = {
    "down": (down, "reach"),
    "resets": (goes_wrong("reset"), "reach"),
    "hangs": (goes_wrong("hang"), "within 10 s"),
    "overloaded": (goes_wrong("status", status=503), "503"),
    "forbidding": (forbid, "not allowed to get deployments"),
    "garbage": (goes_wrong("broken"), "JSON"),
    "lists no Pods": (goes_wrong("status", "/pods", status=503), "503"),
}


@pytest.mark.parametrize("name", API)
def test_api_server(pair, api, way, scaling, name):
    """A count that cannot be read is none: nothing is recommended, nothing is written, and it heals."""
    begin, said = API[name]
    scaling.until(is_well)
    began_s, before, lines = time.time(), len(api.calls("PUT")), len(scaling.log)
    begin(api, way)
    scaling.until(lambda one: one["desired"] is None and said in one["error"])
    assert scaling.get("/api/v1/recommendation").status_code == 503
    assert published(scaling, "recommended_replicas") is None
    assert any(said in line for line in told(scaling, lines, "level=warn msg=decision", "desired="))
    api.faults.clear()
    api.role = None
    way.refuse()  # what hangs now is cut
    way.heal()
    scaling.until(is_well)
    assert asked_since(scaling, began_s) <= {2, None}
    assert stored(api) == 2
    assert [call.path for call in api.calls("PUT")[before:] if call.path.endswith("/scale")] == []


def test_api_server_that_conflicts(pair, api, scaling):
    """Another writes whenever we do: theirs stands, ours is dropped and told, and once they stop it is done."""
    scaling.until(is_well)
    lines = len(scaling.log)

    def rival() -> None:
        if api.requests[-1].path.endswith("/scale"):
            api.change("deployments", "vllm", lambda one: one["spec"].update(paused=not one["spec"].get("paused")))

    api.before_write = rival
    for engine in pair.engines:
        engine.running, engine.waiting = 1, 0  # one replica is enough
    found = scaling.until(lambda one: "has changed since it was read" in one["message"])
    assert found["desired"] == 1
    scaling.evaluations(2)
    assert stored(api) == 2
    assert told(scaling, lines, "level=warn msg=decision", "not scaled", "has changed since it was read")
    api.before_write = lambda: None
    until(lambda: stored(api) == 1)
