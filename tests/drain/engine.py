"""A stand-in for an engine, as a process of its own: real streams over HTTP, and vLLM's gauges and counters about them.

    python -m tests.drain.engine --on-term abort

The first line on its standard output is its port. `POST /v1/completions?seconds=S` streams a chunk every 0.25 s. At
SIGTERM it aborts what it streams (vLLM without a shutdown timeout) or goes on to the end (`--on-term finish`: SGLang),
and its last line says what became of its requests.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).parent.parent.parent
CHUNK_S = 0.25

GAUGES = """\
vllm:num_requests_running{{engine="{rank}",model_name="stand-in"}} {running}.0
vllm:num_requests_waiting{{engine="{rank}",model_name="stand-in"}} {waiting}.0
"""
BY_REASON = """\
vllm:num_requests_waiting_by_reason{{engine="{rank}",model_name="stand-in",reason="capacity"}} {waiting}.0
vllm:num_requests_waiting_by_reason{{engine="{rank}",model_name="stand-in",reason="deferred"}} 0.0
"""
COUNTERS = """\
vllm:request_success_total{{engine="0",finished_reason="length",model_name="stand-in"}} {finished}.0
vllm:prompt_tokens_total{{engine="0",model_name="stand-in"}} {begun}.0
vllm:generation_tokens_total{{engine="0",model_name="stand-in"}} {tokens}.0
"""


def page_of(queues: Sequence[tuple[int, int]], *, finished: int, begun: int, tokens: int, by_reason: bool) -> str:
    """A metrics page as vLLM has it.

    Args:
        queues: running and waiting requests of each data-parallel rank.
        finished: requests so far.
        begun: requests so far.
        tokens: generated so far.
        by_reason: vLLM from 0.20 on splits the waiting requests on top.
    """
    form = GAUGES + (BY_REASON if by_reason else "")
    ranks = [form.format(rank=rank, running=run, waiting=wait) for rank, (run, wait) in enumerate(queues)]
    return "".join([*ranks, COUNTERS.format(finished=finished, begun=begun, tokens=tokens)])


class Engine(ThreadingHTTPServer):
    """The engine's process."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, ranks: int, slots: int, by_reason: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.by_reason = by_reason
        self.slots = [threading.Semaphore(slots) for _ in range(ranks)]
        self.queues = [[0, 0] for _ in range(ranks)]
        self.lock = threading.Lock()
        self.idle = threading.Condition(self.lock)
        self.stop = threading.Event()
        self.begun = self.finished = self.aborted = self.tokens = 0

    @property
    def running(self) -> int:
        """Requests in flight."""
        return self.begun - self.finished - self.aborted

    def move(self, rank: int, by: int) -> None:
        """A request of a rank begins to run (1), or has ended (-1)."""
        with self.lock:
            self.queues[rank][0] += by
            self.queues[rank][1] -= max(by, 0)

    def wait_idle(self) -> None:
        """Until no request is in flight."""
        with self.idle:
            self.idle.wait_for(lambda: not self.running)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def do_GET(self) -> None:
        """The metrics page."""
        engine = self.server
        with engine.lock:
            page = page_of(
                [(running, waiting) for running, waiting in engine.queues],
                finished=engine.finished,
                begun=engine.begun,
                tokens=engine.tokens,
                by_reason=engine.by_reason,
            ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def do_POST(self) -> None:
        """A request for a stream."""
        engine = self.server
        seconds = float(parse_qs(urlsplit(self.path).query)["seconds"][0])
        with engine.lock:
            rank = engine.begun % len(engine.slots)
            engine.begun += 1
            engine.queues[rank][1] += 1
        whole = False
        try:
            with engine.slots[rank]:
                engine.move(rank, 1)
                try:
                    whole = not engine.stop.is_set() and self._stream(seconds)
                finally:
                    engine.move(rank, -1)
        finally:
            with engine.idle:
                if whole:
                    engine.finished += 1
                else:
                    engine.aborted += 1
                engine.idle.notify_all()

    def _stream(self, seconds: float) -> bool:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.wfile.write(b"6\r\ntoken \r\n")
            with self.server.lock:
                self.server.tokens += 1
            if self.server.stop.wait(CHUNK_S):
                self.close_connection = True
                return False
        self.wfile.write(b"0\r\n\r\n")
        return True

    def log_message(self, format: str, *args: object) -> None:
        """No log."""


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--on-term", choices=["abort", "finish"], required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--by-reason", action="store_true")
    told = parser.parse_args()
    finish = told.on_term == "finish"
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    with Engine(told.ranks, told.slots, told.by_reason) as engine:
        serving = threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        print(engine.server_port, flush=True)
        terminated.wait()
        if not finish:
            engine.stop.set()
        engine.shutdown()
        engine.wait_idle()
        serving.join()
    print(json.dumps({"finished": engine.finished, "aborted": engine.aborted}), flush=True)


class EngineProcess:
    """A running stand-in, and the clients that it serves."""

    def __init__(self, on_term: str = "abort", *options: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tests.drain.engine", "--on-term", on_term, *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.popen.stdout is not None
        self.port = int(self.popen.stdout.readline())
        self._clients = ThreadPoolExecutor(64)

    @property
    def url(self) -> str:
        """Its metrics page."""
        return f"http://127.0.0.1:{self.port}/metrics"

    def request(self, seconds: float, count: int = 1) -> list[Future[bool]]:
        """Clients that each ask for a stream; the future says whether it came whole."""
        return [self._clients.submit(ask, self.port, seconds) for _ in range(count)]

    def wait_begun(self, count: int) -> None:
        """Until so many requests have come."""
        for _ in range(400):
            if f'prompt_tokens_total{{engine="0",model_name="stand-in"}} {count}.0' in get(self.port):
                return
            time.sleep(0.05)
        raise AssertionError(f"{count} requests had not come:\n{get(self.port)}")

    def last_words(self) -> dict[str, int]:
        """After its end: how many requests were finished, how many aborted after SIGTERM. Empty if it was killed."""
        self.popen.wait(30)
        assert self.popen.stdout is not None
        text = self.popen.stdout.read()
        return json.loads(text) if text else {}

    def close(self) -> None:
        """Kill it if it still runs."""
        self.popen.kill()
        self.popen.wait()
        self._clients.shutdown()
        assert self.popen.stdout is not None
        self.popen.stdout.close()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@contextlib.contextmanager
def _connection(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def get(port: int) -> str:
    """The engine's metrics page."""
    with _connection(port) as connection:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


def ask(port: int, seconds: float) -> bool:
    """One client: whether its stream came to its proper end."""
    with _connection(port) as connection:
        try:
            connection.request("POST", f"/v1/completions?seconds={seconds}")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        return True


def whole(requests: Sequence[Future[bool]]) -> int:
    """How many streams came whole."""
    return sum(request.result(60) for request in requests)


if __name__ == "__main__":
    main()
