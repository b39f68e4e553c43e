"""The Replica dashboard on what really runs: stand-in engines, their sidecars, a recommender, and a Prometheus."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.dashboards.panels import Query, dashboards, expanded, queries
from tests.prometheus_server import Prometheus
from tests.recommender_process import Recommender
from tests.sidecar_process import LONG_S, Process, sidecar
from tests.sim.engine_processes import EngineProcess, engine

NAMESPACE, WORKLOAD, MODEL = "inference", "chat", "stand-in"
ENGINE = (
    *("--model", MODEL, "--max-num-seqs", "2"),
    *("--time-to-first-token", "0.1", "--inter-token-latency", "0.02"),
)
SIDECAR = ("--engine.min-interval=0.1", "--capacity=2", "--cpu-request=1", "--web.shutdown-delay=0.1")
POLICY = "queue:2,min=1,max=4"

REPLICA = [query for each in dashboards() if each["uid"] == "infscale-replica" for query in queries(each)]
DECISION = [
    "infscale_recommended_replicas",
    "infscale_hpa_recommended_replicas",
    "infscale_evaluation_timestamp_seconds",
    'infscale_decision_reason{reason!=""} == 1',
]
REFUSED = ("Ended requests", 1)
"""The one query without data: the stand-in engine refuses nothing."""


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A server that scrapes two sidecars and a recommender, after some seconds of load and a failed read."""
    folder = tmp_path_factory.mktemp("processes")
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(engine(*ENGINE)) for _ in range(2)]
        sidecars = [stack.enter_context(sidecar("--engine-url", f"{one.url}/metrics", *SIDECAR)) for one in engines]
        places = ",".join(f"http://{one.address}/api/v1/reading" for one in sidecars)
        recommender = stack.enter_context(
            Recommender(
                *("--policy", POLICY, "--fleet.source", f"static:{places}", "--spec-replicas", "2"),
                *("--workload", f"{NAMESPACE}/{WORKLOAD}"),
            )
        )
        server = Prometheus(folder, _config(sidecars, recommender))
        stack.callback(server.close)
        server.wait_ready()
        _until(server, "count(up == 1) == 3")
        _load(engines)
        engines[1].faults("error-500")
        _until(server, 'sum(infscale_scrape_failures_total{reason="http"}) > 0')
        engines[1].faults()
        yield server


def _config(sidecars: list[Process], recommender: Process) -> dict:
    """The labels that the PodMonitors give: those of a Pod, and of a sidecar its workload too."""

    def target(address: str, pod: str, **more: str) -> dict:
        return {"targets": [address], "labels": {"namespace": NAMESPACE, "pod": pod, **more}}

    beside = [target(one.address, f"chat-{number}", workload=WORKLOAD) for number, one in enumerate(sidecars)]
    return {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
        "scrape_configs": [
            {"job_name": "infscale-sidecars", "static_configs": beside},
            {"job_name": "infscale-roles", "static_configs": [target(recommender.address, "recommender-0")]},
        ],
    }


def _load(engines: list[EngineProcess]) -> None:
    """Four requests at a time on each engine, for about three seconds: two of them wait."""
    call = {"model": MODEL, "prompt": "one two three", "max_tokens": 20}

    def send(one: EngineProcess) -> None:
        for _ in range(3):
            assert one.post("/v1/completions", call).status_code == 200

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(send, one) for one in engines for _ in range(4)]:
            done.result(LONG_S)


def _until(server: Prometheus, expr: str) -> None:
    end = time.monotonic() + LONG_S
    while not server.query(expr):
        assert time.monotonic() < end, expr
        time.sleep(0.1)


def _ever(server: Prometheus, expr: str) -> bool:
    """Whether a query had data at any moment since the start."""
    now_s = time.time()
    return bool(server.query(expr, "query_range", start=str(now_s - 60), end=str(now_s), step="0.5"))


def test_every_replica_panel_has_data(scraped: Prometheus):
    """With real pages under the labels of the PodMonitors each query of the dashboard gives series."""
    chosen = {"namespace": NAMESPACE, "workload": WORKLOAD, "model_name": MODEL, "__rate_interval": "2s"}
    empty = [query for query in REPLICA if not _ever(scraped, expanded(query.expr, chosen))]
    assert [(query.panel, query.number) for query in empty] == [REFUSED], [str(query) for query in empty]


@pytest.mark.parametrize("query", [query for query in REPLICA if "infscale_waiting" in query.expr], ids=str)
def test_the_queue_is_seen(scraped: Prometheus, query: Query):
    """Four requests on two slots: two of them wait, on each replica and in its panel."""
    now_s = time.time()
    expr = expanded(query.expr, {"namespace": NAMESPACE})
    found = scraped.query(expr, "query_range", start=str(now_s - 60), end=str(now_s), step="0.25")
    assert max(float(value) for one in found for _, value in one["values"]) == 2


@pytest.mark.parametrize("expr", DECISION)
def test_the_recommender_is_seen_beside_its_workload(scraped: Prometheus, expr: str):
    """Its series say the workload themselves, under target labels of its own Pod."""
    (one,) = scraped.query(expr)
    assert one["metric"]["workload_namespace"] == NAMESPACE
    assert one["metric"]["workload"] == WORKLOAD
    assert one["metric"]["pod"] == "recommender-0"


def test_every_target_answers(scraped: Prometheus):
    """Both sidecars and the recommender are up."""
    assert {one["metric"]["pod"] for one in scraped.query("up == 1")} == {"chat-0", "chat-1", "recommender-0"}
