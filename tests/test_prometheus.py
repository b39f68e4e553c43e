"""A real Prometheus server scrapes the sidecar on a replayed run: its query follows the recording."""

import time
from pathlib import Path

from infscale.recording import Recording
from infscale.replay import Replay

from .prometheus_server import prometheus
from .recorded import VLLM
from .sidecar_process import sidecar

SPEED = 4.0
SLACK_S = 1.5
"""Of real time: a scrape, a shared read and a busy machine between the page's time and the sample's."""


def test_prometheus_follows_the_recording(tmp_path: Path) -> None:
    """Every sample of sum(infscale_inflight_requests) is a page's value of about its time, from 0 up to 12 and back."""
    recording = Recording.load(VLLM)
    values = {line.number: inflight(recording.page(line).decode()) for line in recording.lines if line.status == 200}
    with (
        Replay(recording, speed=SPEED, start_phase="c0") as replay,
        sidecar("--engine-url", replay.url, "--engine.min-interval=0.1") as process,
        prometheus(tmp_path, [process.address]) as server,
    ):
        while not replay.wait(0.1):
            pass
        ended = time.time()
        recorded_end_s = replay.recording.end_s
        time.sleep(1)
        found = server.query("infscale_inflight_requests[5m]", time=str(time.time()))
        summed = server.query("max_over_time(sum(infscale_inflight_requests)[5m:250ms])")
        state = server.query('infscale_engine_state{state="unreachable"}')

    samples = [(float(at), float(value)) for at, value in found[0]["values"]]
    assert len(samples) > 20
    for at, value in samples:
        recorded_at = recorded_end_s - (ended - at) * SPEED
        near = {
            values[line.number]
            for line in recording.lines
            if line.number in values and abs(line.t_s - recorded_at) <= SLACK_S * SPEED
        }
        assert value in near, (at, value)
    assert {value for _, value in samples} >= {0.0, 12.0}
    assert float(summed[0]["value"][1]) == 12
    assert float(state[0]["value"][1]) == 1


def inflight(page: str) -> float:
    """What a page says, added up by hand."""
    gauges = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(gauges))
