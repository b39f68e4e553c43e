"""The source `prometheus` over Debian's Prometheus, which scrapes five real sidecars; and a server that fails."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator

import pytest
import requests

from infscale.core.replicas import Buckets, Fleet, Phase, Replica
from infscale.fleet.parse import parse_source
from infscale.fleet.prometheus import MAX_BYTES
from infscale.fleet.promql import query
from infscale.fleet.source import FleetSettings, Source, WorkloadName
from tests.fleet.prometheus_process import Prometheus
from tests.raw_server import Call, RawServer
from tests.sidecar_process import LONG_S

SERVING, SILENT, STARTING, DRAINING = Phase.SERVING, Phase.SILENT, Phase.STARTING, Phase.DRAINING


class Others:
    """A page of kube-state-metrics and of a federation, with the labels of several workloads in it.

    Attributes:
        counts: of each workload, spec, status and ready replicas as kube-state-metrics has them.
        pods: of each workload, Pods with 4 requests in flight, as a scrape of their sidecars would leave them.
        ghosts: of each workload, deleted Pods whose samples are a minute and a half old.
    """

    def __init__(self) -> None:
        self.counts = {"vllm": (5, 5, 5), "shrinks": (2, 2, 2), "zero": (0, 0, 0)}
        self.pods = {"shrinks": ["a", "b"], "bare": ["a"]}
        self.ghosts = {"vllm": ["ghost"]}
        self.server = RawServer(self._answer)

    def _answer(self, call: Call) -> None:
        at_ms = int((time.time() - 90) * 1000)
        lines = [
            f'kube_deployment_{name}{{namespace="ml",deployment="{workload}"}} {count}'
            for workload, counts in self.counts.items()
            for name, count in zip(("spec_replicas", "status_replicas", "status_replicas_ready"), counts, strict=True)
        ]
        for told, end in ((self.pods, ""), (self.ghosts, f" {at_ms}")):
            lines += [
                f'{metric}{{namespace="ml",workload="{workload}",pod="{pod}"}} {value}{end}'
                for workload, pods in told.items()
                for pod in pods
                for metric, value in (("up", 1), ("infscale_up", 1), ("infscale_inflight_requests", 4))
            ]
        call.page("\n".join([*lines, ""]).encode(), "Content-Type: text/plain; version=0.0.4")


@pytest.fixture(scope="module")
def others() -> Iterator[Others]:
    """The other page."""
    page = Others()
    yield page
    page.server.close()


@pytest.fixture(scope="module")
def prometheus(others, five, tmp_path_factory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the five, the first of them under two jobs, and the other page."""
    five.restore()
    pods = [{"namespace": "ml", "workload": "vllm", "pod": f"vllm-{number}"} for number in range(5)]
    jobs = {
        "sidecars": dict(zip(five.places, pods, strict=True)),
        "again": {five.places[0]: pods[0]},
        "others": {f"127.0.0.1:{others.server.port}": {}},
    }
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), jobs)
    yield server
    server.close()


def source_of(url: str, workload: str = "vllm", **settings) -> Source:
    """The source for a workload."""
    settings = {"timeout_s": LONG_S, **settings}
    return parse_source(f"prometheus:{url}", FleetSettings(workload=WorkloadName("ml", workload), **settings))


def phases(fleet: Fleet) -> list[Phase]:
    """The replicas' phases, by name."""
    return [replica.phase for replica in fleet.replicas]


def until(source: Source, holds: Callable[[Fleet], bool]) -> Fleet:
    """The first look of which it holds."""
    end = time.monotonic() + LONG_S
    while True:
        fleet = source.observe(time.time())
        if holds(fleet):
            return fleet
        assert time.monotonic() < end, fleet
        time.sleep(0.1)


def serves(count: int) -> Callable[[Fleet], bool]:
    """Whether so many serve, and nobody else is known."""
    return lambda fleet: phases(fleet) == [SERVING] * count


def test_five_sidecars_in_one_query(prometheus, crew):
    """Replicas with all that a decision needs, and the counts of kube-state-metrics."""
    source = source_of(prometheus.url, ttft=True)
    fleet = until(source, lambda fleet: serves(5)(fleet) and fleet.spec_replicas == 5)
    assert (fleet.status_replicas, fleet.ready_replicas, fleet.failure) == (5, 5, "")
    assert fleet.replicas[3] == Replica(
        name="vllm-3",
        phase=SERVING,
        running=3,
        waiting=1,
        inflight=4,
        kv=0.5,
        prompt_tokens=1000,
        generation_tokens=500,
        ttft=(Buckets((0.5, 1.0, float("inf")), (6, 9, 10)),),
        created_s=fleet.replicas[3].created_s,
        served_s=fleet.replicas[3].served_s,
    )
    assert until(source_of(prometheus.url), serves(5)).replicas[0].ttft == ()
    assert source.names() == ()


def asked(prometheus: Prometheus, text: str) -> list[str]:
    """What Prometheus answers to a query of our own."""
    with requests.Session() as session:
        session.trust_env = False
        told = session.get(f"{prometheus.url}/api/v1/query", params={"query": text}, timeout=LONG_S).json()
    return [row["value"][1] for row in told["data"]["result"]]


def test_two_jobs_are_one_replica(prometheus, crew):
    """A sidecar that is scraped under two jobs counts once."""
    twice = 'count(infscale_inflight_requests{pod="vllm-0"})'
    source = source_of(prometheus.url)
    until(source, lambda fleet: serves(5)(fleet) and asked(prometheus, twice) == ["2"])
    fleet = source.observe(time.time())
    assert [replica.inflight for replica in fleet.replicas] == [4] * 5


def test_series_of_a_deleted_pod(prometheus, crew):
    """Samples of a minute and a half ago, which Prometheus still answers with, are neither load nor replica."""
    ghost = 'infscale_inflight_requests{pod="ghost"}'
    source = source_of(prometheus.url)
    until(source, lambda fleet: serves(5)(fleet) and asked(prometheus, ghost) == ["4"])
    fleet = source.observe(time.time())
    assert "ghost" not in [replica.name for replica in fleet.replicas]


def test_member_killed_mid_cycle(prometheus, crew):
    """A sidecar that dies within a scrape is a target that is down: silent, also for who never saw it alive."""
    source = source_of(prometheus.url)
    until(source, serves(5))
    engine = crew.engines[1]
    engine.hold.set()
    assert engine.asked.wait(LONG_S)
    crew.kill(1)
    engine.release()
    fleet = until(source, lambda fleet: SILENT in phases(fleet))
    assert phases(fleet) == [SERVING, SILENT, SERVING, SERVING, SERVING]
    assert (fleet.spec_replicas, fleet.failure) == (5, "")
    assert phases(source_of(prometheus.url).observe(time.time())) == phases(fleet)
    crew.restore()
    until(source, serves(5))


def test_engine_without_values(prometheus, crew):
    """The sidecar is scraped and has none: silent with its state."""
    source = source_of(prometheus.url)
    until(source, serves(5))
    crew.engines[2].running = -1
    fleet = until(source, lambda fleet: SILENT in phases(fleet))
    assert (fleet.replicas[2].phase, fleet.replicas[2].state) == (SILENT, "unreachable")


def test_targets_that_vanish(prometheus, others):
    """A replica without a target is silent while kube-state-metrics has it as ready, and gone when it is scaled away.

    Known or not: who starts now misses it too.
    """
    source = source_of(prometheus.url, "shrinks")
    until(source, lambda fleet: serves(2)(fleet) and fleet.ready_replicas == 2)
    others.pods["shrinks"] = ["a"]
    fleet = until(source, lambda fleet: SILENT in phases(fleet))
    assert [(replica.name, replica.phase) for replica in fleet.replicas] == [("a", SERVING), ("b", SILENT)]
    stranger = source_of(prometheus.url, "shrinks").observe(time.time())
    assert [(replica.name, replica.phase) for replica in stranger.replicas] == [("a", SERVING), ("unseen-1", SILENT)]
    others.counts["shrinks"] = (1, 1, 1)
    assert until(source, serves(1)).status_replicas == 1


def test_scaled_to_zero(prometheus):
    """No replica, and a count that was read: 0."""
    fleet = until(source_of(prometheus.url, "zero"), lambda fleet: fleet.spec_replicas == 0)
    assert (fleet.replicas, fleet.failure) == ((), "")


def test_without_kube_state_metrics(prometheus):
    """The counts are not read; --spec-replicas stands in for the first."""
    fleet = until(source_of(prometheus.url, "bare"), serves(1))
    assert (fleet.spec_replicas, fleet.status_replicas, fleet.ready_replicas) == (None, None, None)
    assert source_of(prometheus.url, "bare", spec_replicas=7).observe(time.time()).spec_replicas == 7


def test_workload_without_series(prometheus):
    """Nothing with these labels is a failure, not an empty workload."""
    fleet = source_of(prometheus.url, "other").observe(time.time())
    assert 'no series with namespace="ml", workload="other"' in fleet.failure


def test_query_that_prometheus_refuses(prometheus):
    """Its own words."""
    fleet = source_of(f"{prometheus.url}/wrong/path").observe(time.time())
    assert fleet.failure.endswith("HTTP 404: expected 200 and the answer to a query")


def answer_with(*result: object) -> bytes:
    """The answer to a query, with these series."""
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


ERROR = b'{"status":"error","errorType":"execution","error":"query timed out"}'
JSON = "Content-Type: application/json"
FAILURES = {
    "error": (lambda call: call.page(ERROR, JSON, status="503 Service Unavailable"), "execution: query timed out"),
    "status": (lambda call: call.page(b"busy", status="502 Bad Gateway"), "HTTP 502: expected 200"),
    "html": (lambda call: call.page(b"<html>"), "not JSON but b'<html>'"),
    "half": (lambda call: call.page(b'{"status":"success","data":{"resul'), "not JSON"),
    "label": (
        lambda call: call.page(answer_with({"metric": {"pod": ["a"]}, "value": [1, "1"]}), JSON),
        "an answer that is no vector",
    ),
    "value": (
        lambda call: call.page(answer_with({"metric": {"pod": "a"}, "value": [1, 10**400]}), JSON),
        "an answer that is no vector",
    ),
    "other": (lambda call: call.page(b'{"status":"success"}'), "an answer that is no vector"),
    "matrix": (
        lambda call: call.page(b'{"status":"success","data":{"resultType":"matrix","result":[]}}'),
        "an answer that is no vector",
    ),
    "cut": (lambda call: call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "closed the connection"),
    "hang": (lambda call: call.hang(), "timed out after 0.5 s"),
    "large": (lambda call: call.send(f"HTTP/1.1 200 OK\r\nContent-Length: {MAX_BYTES + 1}\r\n\r\n".encode()), "larger"),
    "empty": (
        lambda call: call.page(answer_with()),
        "no series with namespace",
    ),
}


def row(pod: str, value: float, **labels: str) -> dict[str, object]:
    """One series of an answer, about a Pod."""
    return {"metric": {"pod": pod, **labels}, "value": [1, str(value)]}


@pytest.mark.parametrize("name", FAILURES)
def test_prometheus_that_fails(name):
    """The failure has words, and everyone who was known is silent: an outage is not "no load" (keda#3065)."""
    does, says = FAILURES[name]
    result = [
        row("a", 5, __name__="infscale_inflight_requests", model_name="m"),
        row("a", 5, __name__="infscale_time_to_first_token_seconds_bucket", le="x"),
        row("c", 1, __name__="infscale_draining"),
        row("d", math.nan, __name__="infscale_inflight_requests", model_name="m"),
        *(row(pod, 3, infscale_told="age") for pod in "abc"),
    ]
    well = answer_with(*result)
    with RawServer(lambda call: call.page(well, JSON) if call is server.calls[0] else does(call)) as server:
        source = source_of(server.url(""), timeout_s=0.5 if name == "hang" else LONG_S)
        fleet = source.observe(1000.0)
        assert (phases(fleet), fleet.replicas[0].ttft) == ([SERVING, STARTING, DRAINING], ())
        fleet = source.observe(1015.0)
    assert fleet.failure.startswith(f"Prometheus at 127.0.0.1:{server.port}: ")
    assert says in fleet.failure
    assert (phases(fleet), fleet.spec_replicas) == ([SILENT, STARTING, DRAINING], None)


def answer(serving: str, starting: str, *, spec: int = 3, status: int = 3, ready: int = 3) -> bytes:
    """An answer with a target for each letter; of the starting ones the capitals load, the others were never read."""
    counts = {"spec_replicas": spec, "status_replicas": status, "status_replicas_ready": ready}
    result = [
        *(row(pod, 5, __name__="infscale_inflight_requests", model_name="m") for pod in serving),
        *(row(pod, 3, infscale_told="age") for pod in serving + starting),
        *(row("", count, __name__=f"kube_deployment_{name}", deployment="vllm") for name, count in counts.items()),
    ]
    result += [row(pod, 1, __name__="infscale_engine_state", state="loading") for pod in starting if pod.isupper()]
    return answer_with(*result)


@pytest.mark.parametrize(
    ("ready", "phases_then"),
    [(1, [STARTING, SERVING, STARTING]), (2, [STARTING, SERVING, SILENT]), (3, [STARTING, SERVING, SILENT])],
)
def test_ready_replica_that_was_never_scraped(ready, phases_then):
    """A ready Pod whose sidecar Prometheus never could scrape is a hole, and not on its way; one that loads is."""
    with RawServer(lambda call: call.page(answer("a", "bL", ready=ready), JSON)) as server:
        fleet = source_of(server.url("")).observe(1000.0)
    assert (phases(fleet), fleet.spec_replicas, fleet.failure) == (phases_then, 3, "")


def test_rollout_misses_nobody():
    """With one more than are asked for, who was replaced is no hole that would raise the count."""
    looks = [answer("abc", "D", status=4), answer("bcd", "E", status=4)]
    with RawServer(lambda call: call.page(looks[len(server.calls) - 1], JSON)) as server:
        source = source_of(server.url(""))
        assert phases(source.observe(1000.0)) == [STARTING, SERVING, SERVING, SERVING]
        assert phases(source.observe(1060.0)) == [STARTING, SERVING, SERVING, SERVING]


def test_prometheus_that_is_gone():
    """Nothing listens there."""
    with RawServer(lambda call: None) as server:
        pass
    fleet = source_of(server.url("")).observe(1000.0)
    assert fleet.failure.endswith("connection refused: nothing listens there")


def test_query_is_short_enough_for_a_url():
    """Servers take 8 kB of a request line and more."""
    assert len(query(WorkloadName("n" * 63, "w" * 63), ttft=True)) < 3500
