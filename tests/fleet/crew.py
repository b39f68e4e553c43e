"""Five real sidecars, each a process beside an engine of its own: one port, the addresses 127.0.0.11 to 127.0.0.15."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.raw_server import Call, RawServer
from tests.sidecar_process import LONG_S, Process

ADDRESSES = tuple(f"127.0.0.{number}" for number in range(11, 16))

_PAGE = """\
vllm:num_requests_running{{model_name="m"}} {running}
vllm:num_requests_waiting{{model_name="m"}} {waiting}
vllm:kv_cache_usage_perc{{model_name="m"}} 0.5
vllm:prompt_tokens_total{{model_name="m"}} 1000
vllm:generation_tokens_total{{model_name="m"}} 500
vllm:time_to_first_token_seconds_bucket{{model_name="m",le="0.5"}} 6
vllm:time_to_first_token_seconds_bucket{{model_name="m",le="1.0"}} 9
vllm:time_to_first_token_seconds_bucket{{model_name="m",le="+Inf"}} 10
vllm:time_to_first_token_seconds_sum{{model_name="m"}} 4.5
"""


class Engine:
    """A vLLM's metrics page.

    Attributes:
        running, waiting: what it shows.
        hold: while it is set, reads get no answer.
        asked: set once a read came while it held.
    """

    def __init__(self) -> None:
        self.running, self.waiting = 3, 1
        self.hold, self.asked = threading.Event(), threading.Event()
        self._let_go = threading.Event()
        self.server = RawServer(self._answer)

    def release(self) -> None:
        """Answers again, those that wait too."""
        self.hold.clear()
        self.asked.clear()
        self._let_go.set()
        self._let_go = threading.Event()

    def _answer(self, call: Call) -> None:
        let_go = self._let_go
        if self.hold.is_set():
            self.asked.set()
            let_go.wait(LONG_S)
        call.page(_PAGE.format(running=self.running, waiting=self.waiting).encode())

    def close(self) -> None:
        """Stops it."""
        self.release()
        self.server.close()


class Crew:
    """The five; `kill` and `start` one, and `restore` all."""

    def __init__(self) -> None:
        with socket.create_server((ADDRESSES[0], 0)) as free:
            self.port: int = free.getsockname()[1]
        self.engines = [Engine() for _ in ADDRESSES]
        self._processes: list[Process] = []
        with ThreadPoolExecutor(len(ADDRESSES)) as pool:
            starting = [pool.submit(self._process, number) for number in range(len(ADDRESSES))]
        self._processes = [start.result() for start in starting if start.exception() is None]
        if len(self._processes) < len(ADDRESSES):
            self.close()
            raise AssertionError(next(start.exception() for start in starting if start.exception()))

    @property
    def places(self) -> list[str]:
        """`host:port` of each."""
        return [f"{address}:{self.port}" for address in ADDRESSES]

    def kill(self, number: int) -> None:
        """Kills a sidecar at once."""
        self._processes[number].close()

    def restore(self) -> None:
        """Everyone lives, with 3 requests running and 1 waiting."""
        for number, process in enumerate(self._processes):
            engine = self.engines[number]
            engine.release()
            engine.running, engine.waiting = 3, 1
            if process.popen.poll() is not None:
                self._processes[number] = self._process(number)

    def close(self) -> None:
        """Ends them all."""
        for process in self._processes:
            process.close()
        for engine in self.engines:
            engine.close()

    def _process(self, number: int) -> Process:
        return Process(
            *("--web.listen-address", f"{ADDRESSES[number]}:{self.port}"),
            *("--engine-url", self.engines[number].server.url(), "--engine.min-interval=0.001"),
            "--stale-after=3600",  # the engines' counters never move, and the five live as long as all their tests
        )
