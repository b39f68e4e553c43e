"""The sidecar end to end: real engines' pages over real sockets in, its own page out."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from infscale.recording import Recording
from infscale.replay import Replay

from .raw_server import Call, RawServer
from .recorded import VLLM, row, write
from .sidecar_process import LONG_S, samples, sidecar, state_in

PAGES = Path(__file__).parent / "data" / "pages"
BUSY = (PAGES / "vllm-0.33.0-dp2.prom").read_bytes()
STATS_OFF = (PAGES / "vllm-0.33.0-disable-log-stats.prom").read_bytes()
IDLE = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
NOW = "--engine.min-interval=0.001"


def eventually(check: Callable[[], bool]) -> bool:
    """Whether it becomes true within a time that a busy machine does not exceed."""
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return False


def test_page_of_a_busy_engine() -> None:
    """Two data-parallel engines of one page are one replica; the histograms and counters are passed through."""
    with RawServer(lambda call: call.page(BUSY)) as engine, sidecar("--engine-url", engine.url()) as process:
        values = process.values()
    model = 'model_name="meta-llama/Llama-3.1-8B-Instruct"'
    assert values[f"infscale_inflight_requests{{{model}}}"] == 20
    assert values[f"infscale_running_requests{{{model}}}"] == 13
    assert values[f"infscale_waiting_requests{{{model}}}"] == 7
    assert values[f"infscale_kv_cache_usage_ratio{{{model}}}"] == 0.47
    assert values["infscale_up"] == 1
    assert state_in(values) == "ok"
    assert values[f'infscale_time_to_first_token_seconds_bucket{{engine="vllm",le="+Inf",{model}}}'] > 0
    assert values[f"infscale_generation_tokens_total{{{model}}}"] > 0
    assert abs(values["infscale_reading_timestamp_seconds"] - time.time()) < LONG_S


def test_routes_and_methods() -> None:
    """Metrics in both formats, JSON, the landing page, probes; HEAD, 404, 405 and gzip as exporters do."""
    with RawServer(lambda call: call.page(BUSY)) as engine, sidecar("--engine-url", engine.url()) as process:
        text = process.get("/metrics")
        assert text.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        openmetrics = process.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
        assert openmetrics.text.endswith("# EOF\n")
        assert text.headers["Content-Encoding"] == "gzip"
        plain = process.get("/metrics", headers={"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain.headers
        head = requests.head(f"http://{process.address}/metrics", timeout=LONG_S)
        assert (head.status_code, head.text) == (200, "")
        assert process.get("/nothing").status_code == 404
        assert requests.post(f"http://{process.address}/metrics", timeout=LONG_S).status_code == 405
        reading = process.get("/api/v1/reading").json()
        assert (reading["state"], reading["inflight"], reading["running"], reading["waiting"]) == ("ok", 20, 13, 7)
        page = process.get("/")
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "in flight" in page.text
        assert ">20<" in page.text
        assert process.get("/-/healthy", kubelet=True).status_code == 200
        assert process.get("/-/ready", kubelet=True).status_code == 200
        assert process.get("/metrics", kubelet=True).status_code == 404


STATES: list[tuple[str, Callable[[Call], None], str]] = [
    ("ok", lambda call: call.page(IDLE), ""),
    ("fresh", lambda call: call.page((PAGES / "vllm-0.33.0-mp-fresh.prom").read_bytes()), ""),
    ("asleep", lambda call: call.page((PAGES / "vllm-0.33.0-sleep-idle.prom").read_bytes()), ""),
    ("loading", lambda call: call.page(b'{"error":{"message":"Loading model"}}', status="503 Busy"), "loading"),
    ("saturated", lambda call: call.hang(), "--threads-http"),
    (
        "stats_disabled",
        lambda call: call.page((PAGES / "vllm-0.33.0-disable-log-stats.prom").read_bytes()),
        "log-stats",
    ),
    ("misconfigured", lambda call: call.page(b"", status="404 Not Found"), "--enable-metrics"),
    ("misconfigured", lambda call: call.page(b"{}", status="501 Not Implemented"), "--metrics"),
    ("misconfigured", lambda call: call.page(b"", status="401 Unauthorized"), "--engine.token-file"),
    ("not_an_engine", lambda call: call.page(b"<html></html>"), "HTML"),
    ("unreachable", lambda call: call.reset(), ""),
    ("unreachable", lambda call: call.page(b"vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n"), "nan"),
    ("unreachable", lambda call: call.forever(b"HTTP/1.1 200 OK\r\n\r\n" + b"a 1\n" * 100_000), "larger than"),
]


@pytest.mark.parametrize(("state", "answer", "said"), STATES, ids=[f"{s[0]}-{i}" for i, s in enumerate(STATES)])
def test_each_state_publishes_what_its_row_says(state: str, answer: Callable[[Call], None], said: str) -> None:
    """Values in ok, fresh and asleep; in no other state a single number of requests, and the message says why."""
    patience = f"--engine.timeout={1.5 if state == 'saturated' else LONG_S}"
    with RawServer(answer) as engine, sidecar("--engine-url", engine.url(), patience) as process:
        values = process.values()
        message = process.get("/api/v1/reading").json()["message"]
    shown = [name for name in values if name.startswith("infscale_inflight_requests")]
    assert state_in(values) == state
    assert said.lower() in message.lower()
    assert (values["infscale_up"] == 1) == (state in {"ok", "fresh", "asleep"})
    assert len(shown) == (1 if state in {"ok", "fresh", "asleep"} else 0)
    if shown:
        assert values[shown[0]] == 0


def test_saturated_engine_keeps_its_last_values() -> None:
    """A full engine whose port is open and whose page hangs shows what it showed, and is not up."""
    hang = threading.Event()

    def answer(call: Call) -> None:
        call.hang() if hang.is_set() else call.page(BUSY)

    with RawServer(answer) as engine, sidecar("--engine-url", engine.url(), NOW, "--engine.timeout=0.5") as process:
        before = process.values()
        hang.set()
        after = process.values()
    name = next(name for name in before if name.startswith("infscale_inflight_requests"))
    assert (before[name], after[name]) == (20, 20)
    assert state_in(after) == "saturated"
    assert after["infscale_up"] == 0
    assert after["infscale_reading_timestamp_seconds"] == before["infscale_reading_timestamp_seconds"]
    assert after['infscale_scrape_failures_total{reason="timeout"}'] == 1


def test_many_scrapers_cost_the_engine_one_read() -> None:
    """Scrapes that come while a read is under way, and within the interval, share it."""
    with RawServer(lambda call: call.page(BUSY)) as engine, sidecar("--engine-url", engine.url()) as process:
        threads = [threading.Thread(target=process.values) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(engine.calls) <= 3


def test_engines_of_one_pod_add_up_or_say_nothing() -> None:
    """Two engines are one replica; when one is silent the sum would be a wrong low number, so there is none."""
    silent = threading.Event()

    def second(call: Call) -> None:
        call.reset() if silent.is_set() else call.page(b"vllm:num_requests_running 3\nvllm:num_requests_waiting 1\n")

    with (
        RawServer(lambda call: call.page(BUSY)) as one,
        RawServer(second) as two,
        sidecar("--engine-url", one.url(), "--engine-url", two.url(), "--model-name", "m", NOW) as process,
    ):
        whole = process.values()
        silent.set()
        part = process.values()
    assert whole['infscale_inflight_requests{model_name="m"}'] == 24
    assert state_in(part) == "unreachable"
    assert not [name for name in part if name.startswith("infscale_inflight_requests")]


def test_stale_engine_is_named(tmp_path: Path) -> None:
    """Requests in flight and no counter moving for the time of --stale-after."""
    page = "vllm:num_requests_running 2\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total 5\n"
    with (
        RawServer(lambda call: call.page(page.encode())) as engine,
        sidecar("--engine-url", engine.url(), NOW, "--stale-after=0.3") as process,
    ):
        assert process.state() == "ok"
        assert eventually(lambda: process.state() == "stale")
        assert process.values()['infscale_inflight_requests{model_name=""}'] == 2


def test_token_is_sent_and_read_again(tmp_path: Path) -> None:
    """The engine's API key comes from a file, and a new one is used without a restart; no log line shows it."""
    key = tmp_path / "key"
    key.write_text("first-secret\n")

    def answer(call: Call) -> None:
        wanted = f"Bearer {key.read_text().strip()}"
        call.page(IDLE) if call.header("authorization") == wanted else call.page(b"", status="401 Unauthorized")

    with (
        RawServer(answer) as engine,
        sidecar("--engine-url", engine.url(), NOW, "--engine.token-file", str(key)) as process,
    ):
        assert process.state() == "ok"
        key.write_text("second-secret\n")
        assert process.state() == "ok"
        assert "secret" not in "".join(process.log)


def test_proxy_of_the_environment_is_not_followed() -> None:
    """Loopback is read directly whatever http_proxy says."""
    proxy = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
    with RawServer(lambda call: call.page(IDLE)) as engine, sidecar("--engine-url", engine.url(), **proxy) as process:
        assert process.state() == "ok"


def test_router_of_llama_cpp_is_not_asked_to_load() -> None:
    """A URL that names a model gets autoload=false, so that a scrape never loads one."""
    with (
        RawServer(lambda call: call.page(IDLE)) as engine,
        sidecar("--engine-url", engine.url("/metrics?model=m")) as process,
    ):
        process.values()
        assert engine.calls[0].path.endswith("?model=m&autoload=false")


def test_everything_can_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    """Flag over environment over file: the same names in all three."""
    with RawServer(lambda call: call.page(IDLE)) as engine:
        config = tmp_path / "sidecar.yaml"
        config.write_text(f"engine-url: {engine.url()}\nmodel-name: of-the-file\ncapacity: 8\n")
        with sidecar("--config.file", str(config), INFSCALE_MODEL_NAME="of-the-environment") as process:
            values = process.values()
    assert values['infscale_inflight_requests{model_name="of-the-environment"}'] == 0
    assert values["infscale_capacity_requests"] == 8


def test_sigterm_serves_on_and_ends_with_0() -> None:
    """Told to stop: not ready at once, scraped once more, then gone with 0."""
    with (
        RawServer(lambda call: call.page(IDLE)) as engine,
        sidecar("--engine-url", engine.url(), "--web.shutdown-delay=1.5") as process,
    ):
        process.popen.send_signal(signal.SIGTERM)
        assert eventually(lambda: process.get("/-/ready", kubelet=True).status_code == 503)
        assert process.get("/-/healthy", kubelet=True).status_code == 200
        assert process.state() == "ok"
        assert process.ended() == 0


def test_second_sigterm_ends_at_once() -> None:
    """Who cannot wait sends a second signal."""
    with (
        RawServer(lambda call: call.page(IDLE)) as engine,
        sidecar("--engine-url", engine.url(), "--web.shutdown-delay=600") as process,
    ):
        process.popen.send_signal(signal.SIGTERM)
        assert eventually(lambda: process.get("/-/ready", kubelet=True).status_code == 503)
        process.popen.send_signal(signal.SIGTERM)
        assert process.ended() == 128 + signal.SIGTERM


BAD: list[tuple[list[str], str]] = [
    (["--engine-url", "127.0.0.1:8000/metrics"], "http://"),
    (["--engine-url", "http://127.0.0.1:99999/metrics"], "65535"),
    (["--engine-url", "http://h/metrics", "--engine-urll", "x"], "--engine-url"),
    (["--engine-url", "http://h/metrics", "--engine", "vlm"], "vllm"),
    (["--engine-url", "http://h/metrics", "--engine.token-file", "/no/such/file"], "/no/such/file"),
    (["--engine-url", "http://h/metrics", "--web.listen-address", "127.0.0.1:99999"], "65535"),
    (["--engine-url", "http://h/metrics", "--web.config.file", "/no/such/file"], "/no/such/file"),
    (["--engine-url", "http://h/metrics", "--engine.timeout", "0"], "above 0"),
    ([], "--engine-url"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD)
def test_bad_flags_are_one_line_and_exit_2(arguments: list[str], said: str) -> None:
    """What, where, what was expected; no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "infscale", "sidecar", *arguments],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_taken_port_is_one_line_and_exit_2() -> None:
    """The address and the flag are named."""
    with RawServer(lambda call: call.page(IDLE)) as engine:
        taken = engine.url().split("/")[2]
        done = subprocess.run(
            [sys.executable, "-m", "infscale", "sidecar", "--engine-url", engine.url(), "--web.listen-address", taken],
            capture_output=True,
            text=True,
            timeout=LONG_S,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
    assert done.returncode == 2
    assert taken in done.stderr
    assert "--web.listen-address" in done.stderr


def test_replayed_engine_rises_queues_and_drains() -> None:
    """A real vLLM's run behind the sidecar: up to 12 in flight, back to 0, then unreachable and no value."""
    recording = Recording.load(VLLM)
    seen: list[float] = []
    with Replay(recording, speed=8, start_phase="c0") as replay, sidecar("--engine-url", replay.url, NOW) as process:
        while not replay.wait(0):
            values = process.values()
            shown = [value for name, value in values.items() if name.startswith("infscale_inflight_requests")]
            seen += shown
            assert bool(shown) == (values["infscale_up"] == 1)
        gone = process.values()
    assert max(seen) == 12
    assert 0 in seen
    assert state_in(gone) == "unreachable"


def test_v0_page_before_its_first_request(tmp_path: Path) -> None:
    """VLLM's V0 has no running and waiting series before the first request: 0 and fresh, then as read."""
    head = "vllm:cache_config_info 1\n"
    first = head + "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total 3\n"
    recording = Recording.load(write(tmp_path / "run", [row(0, head), row(1, first)]))
    with Replay(recording, step=True) as replay, sidecar("--engine-url", replay.url, NOW) as process:
        fresh = process.values()
        served = samples(process.get("/metrics").text)
    assert (state_in(fresh), fresh['infscale_inflight_requests{model_name=""}']) == ("fresh", 0)
    assert (state_in(served), served['infscale_inflight_requests{model_name=""}']) == ("ok", 1)
