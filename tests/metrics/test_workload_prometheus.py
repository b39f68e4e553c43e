"""A real Prometheus scrapes a recommender and a sidecar with a fleet source: KEDA's queries find one workload."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from infscale.metrics.collectors import own_registry
from infscale.metrics.render import Renderer
from infscale.metrics.workload_collector import WorkloadCollector
from infscale.metrics.workload_counters import WorkloadCounters
from tests.metrics.cases import CASES as REPLICAS
from tests.metrics.workload_cases import HELD
from tests.prometheus_server import LONG_S, Prometheus


def form_b(workload: str) -> str:
    """The query of a KEDA trigger that takes the recommended replicas themselves."""
    which = f'{{workload_namespace="inference",workload="{workload}"}}'
    return (
        f"max(infscale_recommended_replicas{which} and on (workload_namespace, workload)"
        f" time() - infscale_evaluation_timestamp_seconds{which} < 60)"
    )


@contextmanager
def serving(renderer: Renderer) -> Iterator[str]:
    """The address at which a renderer's page is scraped."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = renderer.page(self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def config(recommenders: list[str], sidecar: str) -> dict[str, Any]:
    """Scrapes as the monitors make them: the sidecar's Pod label stands in the target label `workload`."""
    sidecars = {"targets": [sidecar], "labels": {"namespace": "inference", "pod": "llama-a", "workload": "llama"}}
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {"job_name": "recommender", "static_configs": [{"targets": recommenders}]},
            {"job_name": "sidecar", "static_configs": [sidecars]},
        ],
    }


def test_one_workload_whoever_publishes_it(tmp_path: Path) -> None:
    """A sidecar's series keep the target's `workload`, equal to ours; an evaluation of long ago recommends nothing."""
    fresh = replace(HELD, recommended=4, evaluated_at_s=time.time() + 20)
    inert = replace(HELD, name="idle", recommended=9, evaluated_at_s=time.time() - 300)
    recommender = WorkloadCollector(lambda: fresh, WorkloadCounters())
    hung = WorkloadCollector(lambda: inert, WorkloadCounters())
    with (
        serving(Renderer(recommender, own_registry("1"))) as one,
        serving(Renderer(hung, own_registry("1"))) as other,
        serving(Renderer(REPLICAS["ok"].collector(), own_registry("1"), also=(recommender,))) as sidecar,
        closing(Prometheus(tmp_path, config([one, other], sidecar))) as server,
    ):
        server.wait_ready()
        end = time.monotonic() + LONG_S
        while len(server.query("infscale_recommended_replicas")) < 3 or not server.query(form_b("llama")):
            assert time.monotonic() < end, "not all were scraped"
            time.sleep(0.1)
        by_workload = server.query("max by (workload_namespace, workload) (infscale_recommended_replicas)")
        acted_on = server.query(form_b("llama"))
        not_acted_on = server.query(form_b("idle"))
        moved_aside = server.query('infscale_recommended_replicas{exported_workload!=""}')

    assert {(r["metric"]["workload_namespace"], r["metric"]["workload"], r["value"][1]) for r in by_workload} == {
        ("inference", "llama", "4"),
        ("inference", "idle", "9"),
    }
    assert [result["value"][1] for result in acted_on] == ["4"]
    assert not_acted_on == []
    assert [r["metric"]["exported_workload"] == r["metric"]["workload"] for r in moved_aside] == [True]
