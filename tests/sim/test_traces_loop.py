"""Arrivals rebuilt from what a real Prometheus scraped of sidecars beside stand-in engines under load of ours."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest

from infscale_sim.traces.prometheus import History, rebuild
from tests.prometheus_server import prometheus
from tests.sidecar_process import LONG_S, sidecar
from tests.sim.engine_processes import command_line, engine, environment

RATES = (6, 10)
SENT_S = 14
PROMPT, OUTPUT = 20, 12


def run(*arguments: str) -> Any:
    """What a command of ours prints as JSON."""
    done = subprocess.run(
        command_line(*arguments), capture_output=True, text=True, timeout=LONG_S, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_rate_sent_comes_back(tmp_path):
    """Two stand-in engines are sent 6 and 10 requests a second, evenly; within 5 % 16 come back, with their lengths."""
    fixed = ("--time-to-first-token", "0.05", "--inter-token-latency", "0.01", "--max-num-seqs", "64")
    with (
        engine(*fixed) as one,
        engine(*fixed) as two,
        sidecar("--engine-url", f"{one.url}/metrics", "--engine.min-interval=0.05") as left,
        sidecar("--engine-url", f"{two.url}/metrics", "--engine.min-interval=0.05") as right,
        prometheus(tmp_path, [left.address, right.address], interval="1s") as server,
    ):
        while len(server.query("infscale_inflight_requests")) < 2:
            time.sleep(0.1)  # its first scrape comes some seconds after it is ready
        began_s = time.time()
        loads = [
            subprocess.Popen(
                command_line(
                    *("load", to.url, "--rate", str(rate), "--arrivals", "even", "--duration", str(SENT_S)),
                    *("--prompt-tokens", str(PROMPT), "--output-tokens", str(OUTPUT), "--json"),
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment(),
            )
            for to, rate in zip((one, two), RATES, strict=True)
        ]
        sent = [json.loads(load.communicate(timeout=LONG_S + SENT_S)[0]) for load in loads]
        time.sleep(1)
        took_s = time.time() - began_s
        rebuilt = rebuild(History(server.url, took_s, time.time(), step_s=took_s / 4))
        there = ("--prometheus", server.url, "--range", f"{took_s:.0f}s", "--step", f"{took_s / 4:.0f}s")
        priced = run("simulate", *there, "--policy", "queue:24", "--json")
        tuned = run("tune", *there, "--runs", "6", "--seeds", "1", "--workers", "1", "--json")

    came = sum(level.rate * level.seconds for level in rebuilt.levels)
    assert sum(row["requests"]["sent"] for row in sent) == pytest.approx(sum(RATES) * SENT_S, abs=4)
    assert came == pytest.approx(sum(row["requests"]["sent"] for row in sent), rel=0.05)
    busiest = max(rebuilt.levels, key=lambda level: level.rate)
    assert priced[0]["requests"] == pytest.approx(came, rel=0.1)
    assert tuned["policy"]
    assert busiest.output_tokens == pytest.approx(OUTPUT, rel=0.05)
