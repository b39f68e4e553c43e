"""The bytes of /metrics: shared while nothing changed, right when something did."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from infscale.metrics.collectors import ReplicaCollector, Snapshot, own_registry
from infscale.metrics.render import Renderer
from tests.metrics.cases import CASES, Case, view

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


class Sidecar:
    """What a sidecar has at hand: views and failures that change, a clock that is driven, a count of renderings."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.views = [view()]
        self.failures = {"timeout": 0}
        self.rendered = 0
        sidecar = self

        class Counting(ReplicaCollector):
            def families(self, snapshot: Snapshot) -> list[Metric]:
                sidecar.rendered += 1
                return super().families(snapshot)

        replica = Counting(lambda: self.views, lambda: self.failures)
        self.renderer = Renderer(replica, own_registry("1.2.3"), clock=lambda: self.now_s)


@pytest.fixture
def sidecar() -> Sidecar:
    """A sidecar with one good read."""
    return Sidecar()


def test_scrapes_share_a_reading(sidecar):
    """Scrapes of one reading get the same bytes, rendered once for each format."""
    pages = [sidecar.renderer.page() for _ in range(5)]

    assert all(page is pages[0] for page in pages)
    assert sidecar.rendered == 1
    sidecar.renderer.page(OPENMETRICS)
    sidecar.renderer.page(OPENMETRICS, compress=True)
    assert sidecar.rendered == 2


def test_another_reading_is_another_page(sidecar):
    """A new view is rendered at once, and so is a counted failure."""
    first = sidecar.renderer.page()

    sidecar.views = [view(state="stale")]
    assert b'infscale_engine_state{state="stale"} 1.0' in sidecar.renderer.page().body
    sidecar.failures["timeout"] += 1
    page = sidecar.renderer.page()

    assert b'infscale_scrape_failures_total{reason="timeout"} 1.0' in page.body
    assert page is not first
    assert sidecar.rendered == 3


def test_the_process_is_never_older_than_a_second(sidecar):
    """The process's own metrics are written anew after a second, without the replica's being written again."""
    first = sidecar.renderer.page()
    sidecar.now_s += 0.9
    assert sidecar.renderer.page() is first

    sidecar.now_s += 0.1

    assert sidecar.renderer.page() is not first
    assert sidecar.rendered == 1


def test_gzip_is_the_same_page(sidecar):
    """A gzip answer unpacks to the page that a plain scrape gets, whatever the format."""
    for accept in ("", OPENMETRICS):
        plain, packed = sidecar.renderer.page(accept), sidecar.renderer.page(accept, compress=True)

        assert (plain.content_encoding, packed.content_encoding) == ("", "gzip")
        assert plain.content_type == packed.content_type
        assert own_apart(plain.body) == own_apart(gzip.decompress(packed.body))
        assert len(packed.body) < len(plain.body) / 2


def own_apart(page: bytes) -> bytes:
    """A page without the process's own values, which move."""
    return page.partition(b"# HELP process_")[0]


def test_content_types(sidecar):
    """The content type names the format and its version."""
    assert sidecar.renderer.page().content_type == "text/plain; version=0.0.4; charset=utf-8"
    openmetrics_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert sidecar.renderer.page(OPENMETRICS).content_type == openmetrics_type


@pytest.mark.parametrize("name", CASES)
def test_whole_pages_parse(name):
    """Whole pages, replica and process, parse in both formats; OpenMetrics has its one closing line at the end."""
    renderer = Renderer(CASES[name].collector(), own_registry("1.2.3"))
    text, strict = renderer.page().body.decode(), renderer.page(OPENMETRICS).body.decode()

    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(names) == len(set(names))
    assert sorted(names) == sorted(f.name for f in openmetrics.text_string_to_metric_families(strict))
    assert {name.split("_")[0] for name in names} <= {"infscale", "process", "python"}
    assert strict.count("# EOF") == 1
    assert strict.endswith("# EOF\n")
    assert "_created" not in text + strict


def test_without_proc(tmp_path):
    """Where there is no /proc (macOS) the process metrics are absent, and the rest of the page is there."""
    body = Renderer(CASES["ok"].collector(), own_registry("1.2.3", proc=str(tmp_path))).page().body.decode()

    assert "process_" not in body.replace("infscale_process_cpu_ratio", "")
    assert "python_info{" in body
    assert 'infscale_build_info{version="1.2.3"} 1.0' in body


def test_with_a_strange_proc(tmp_path):
    """A /proc that is not Linux's (a sandbox without the usual limits) costs the process metrics, not the page."""
    (tmp_path / "stat").write_text("btime 1760000000\n")
    (tmp_path / "self" / "fd").mkdir(parents=True)
    (tmp_path / "self" / "stat").write_text("1 (infscale) S " + " ".join("1" * 60))
    (tmp_path / "self" / "limits").write_text("Max open files            unlimited            unlimited     files\n")

    body = Renderer(CASES["ok"].collector(), own_registry("1.2.3", proc=str(tmp_path))).page().body.decode()

    assert "infscale_up 1.0" in body
    assert "python_info{" in body


def test_a_slow_read_holds_no_one_up(sidecar):
    """While one scrape waits for the engine, another that has its views already is answered."""
    slow, reading, go_on = sidecar.views, threading.Event(), threading.Event()
    main = threading.current_thread()

    def views():
        if threading.current_thread() is not main:
            reading.set()
            assert go_on.wait(10)
        return slow

    renderer = Renderer(ReplicaCollector(views, dict), own_registry("1.2.3"))
    waiting = threading.Thread(target=renderer.page)
    waiting.start()
    try:
        assert reading.wait(10)
        assert b"infscale_up 1.0" in renderer.page().body
    finally:
        go_on.set()
        waiting.join(10)
    assert not waiting.is_alive()


def test_many_threads_get_whole_pages():
    """Pages asked for while readings change are each the page of one reading: its two parts add up."""
    cases = [Case((view(),)), CASES["several-engines"]]
    turn = iter(range(10_000))
    renderer = Renderer(ReplicaCollector(lambda: cases[next(turn) % 2].views, dict), own_registry("1.2.3"))
    wrong: list[str] = []

    def scrape() -> None:
        for _ in range(20):
            body = renderer.page().body.decode()
            found = {s.name: s.value for f in text_string_to_metric_families(body) for s in f.samples}
            parts = found["infscale_running_requests"] + found["infscale_waiting_requests"]
            if parts != found["infscale_inflight_requests"]:
                wrong.append(body)

    threads = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert wrong == []


def test_the_import_is_light():
    """The page needs the client library and nothing else that is heavy: the sidecar stays small."""
    code = (
        "import sys, infscale.metrics.render; print(*{'requests', 'yaml', 'click', 'cryptography'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )

    assert done.stdout.strip() == ""
