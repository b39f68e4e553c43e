"""What the pages suppose to be there: engines, a busy engine, a sidecar, a Prometheus with a past. Real processes.

Each is started when a page first asks for it, and serves all pages of its test file.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.prometheus_server import prometheus
from tests.raw_server import Call, RawServer
from tests.sidecar_process import sidecar
from tests.sim.engine_processes import engine

TOKEN = "a-token-of-the-tests"

QUICK = ("--max-num-seqs", "8", "--time-to-first-token", "0.02", "--inter-token-latency", "0.001")
"""An answer of 128 tokens takes 0.15 s, and the knee of a sweep is at 8."""

BUSY = b"""\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 10.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.31
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0",model_name="Qwen/Qwen3-8B"} 51200.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="Qwen/Qwen3-8B"} 25600.0
"""
"""A vLLM with 12 requests in flight for ever: the numbers that pages show."""

PAST_S, SCRAPE_S, RATE = 2 * 3600, 60, 0.5
"""What the Prometheus remembers: two hours of a request every two seconds."""


class StandIns:
    """Starts what is asked for; all of it ends with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._places: dict[str, str] = {}
        self._ways: Mapping[str, Callable[[], int]] = {
            "vllm": lambda: self._engine("--model", "Qwen/Qwen3-8B"),
            "sglang": lambda: self._engine("--dialect", "sglang", "--model", "Qwen/Qwen3-8B"),
            "llama.cpp": lambda: self._engine("--dialect", "llama.cpp"),
            "busy": self._busy,
            "sidecar": self._sidecar,
            "prometheus": self._prometheus,
        }

    def place(self, name: str) -> str:
        """Host and port of one of them."""
        if name not in self._places:
            self._places[name] = f"127.0.0.1:{self._ways[name]()}"
        return self._places[name]

    def _engine(self, *arguments: str) -> int:
        return self._stack.enter_context(engine(*QUICK, *arguments)).port

    def _busy(self) -> int:
        def answer(call: Call) -> None:
            call.page(BUSY, "Content-Type: text/plain; version=0.0.4")

        server = RawServer(answer)
        self._stack.callback(server.close)
        return server.port

    def _sidecar(self) -> int:
        token = self._folder / "token"
        token.write_text(TOKEN + "\n")
        url = f"http://{self.place('vllm')}/metrics"
        process = self._stack.enter_context(sidecar("--engine-url", url, "--withdraw.token-file", str(token)))
        return int(process.address.rpartition(":")[2])

    def _prometheus(self) -> int:
        folder = self._folder / "prometheus"
        folder.mkdir()
        end_s = int(time.time() - 600) // SCRAPE_S * SCRAPE_S
        (folder / "past.om").write_text(_past(end_s))
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "past.om", "data"]
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        return int(self._stack.enter_context(prometheus(folder, [])).address.rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def _past(end_s: int) -> str:
    """OpenMetrics for promtool: a vLLM of the namespace `ml`, and a sidecar of the workload inference/vllm."""
    series = {
        "vllm:request_success": ('namespace="ml",pod="vllm-0"', 1),
        "vllm:prompt_tokens": ('namespace="ml",pod="vllm-0"', 300),
        "vllm:generation_tokens": ('namespace="ml",pod="vllm-0"', 80),
        "infscale_finished_requests": ('namespace="inference",workload="vllm",pod="vllm-0"', 1),
        "infscale_prompt_tokens": ('namespace="inference",workload="vllm",pod="vllm-0"', 300),
        "infscale_generation_tokens": ('namespace="inference",workload="vllm",pod="vllm-0"', 80),
    }
    lines = []
    for name, (labels, each) in series.items():
        lines.append(f"# TYPE {name} counter")
        lines += [
            f"{name}_total{{{labels}}} {since_s * RATE * each:.0f} {end_s - PAST_S + since_s}"
            for since_s in range(0, PAST_S + 1, SCRAPE_S)
        ]
    return "\n".join([*lines, "# EOF", ""])
