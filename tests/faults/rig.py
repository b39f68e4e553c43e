"""Two engines that go wrong on demand, a sidecar process beside each, and what a recommender process makes of them.

Every engine has 4 requests in flight, the policy's target is 4 and its down window 0: two replicas are asked for, and
the first evaluation that took a fault for no load would say fewer.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import requests

from tests.raw_server import Call, RawServer
from tests.recommender_process import Recommender
from tests.sidecar_process import LONG_S, Process

ADDRESSES = ("127.0.0.21", "127.0.0.22")
ELSEWHERE = "127.0.0.23"
POLICY = "--policy=queue:4,max=20,downwindow=0"
COUNTED = ("--workload=ml/vllm", "--spec-replicas=2")
SLOW_LOOK = "--fleet.timeout=4"
"""Longer than a sidecar waits for its engine: what it holds of a hung one is told in time."""

PAGE = """\
vllm:num_requests_running{{model_name="m"}} {running}
vllm:num_requests_waiting{{model_name="m"}} {waiting}
vllm:generation_tokens_total{{model_name="m"}} {tokens}
"""


def until(holds: Callable[[], object]) -> None:
    """Wait for it, for longer than a busy machine takes."""
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end, holds
        time.sleep(0.03)


def told(process: Process, since: int, *words: str) -> list[str]:
    """Wait for log lines with all of these words, after the first `since` lines."""

    def found() -> list[str]:
        return [line for line in process.log[since:] if all(word in line for word in words)]

    until(found)
    return found()


def published(process: Process, name: str, **labels: str) -> float | None:
    """A series of the workload on a metrics page, without its prefix; None: it is absent."""
    pairs = {**labels, "workload": "vllm", "workload_namespace": "ml"}
    series = ",".join(f'{key}="{value}"' for key, value in sorted(pairs.items()))
    return process.values().get(f"infscale_{name}{{{series}}}")


def assert_holds(recommender: Recommender, *, silent: int, looked: bool = True) -> None:
    """What is published asks for both replicas, by the count and by the demand, and shows how many are silent.

    Where there was no look the demand is absent, which KEDA takes for an error, and never less.
    """
    shown = {
        **{name: published(recommender, name) for name in ("recommended_replicas", "workload_demand_requests")},
        **{"silent": published(recommender, "replicas", state="silent"), "c": published(recommender, "coverage_ratio")},
    }
    demand, coverage = (8, (2 - silent) / 2) if looked else (None, 0)
    assert list(shown.values()) == [2, demand, silent, coverage], shown


def asked_since(recommender: Recommender, time_s: float) -> set[int | None]:
    """Every count that was recommended since then; None: none was."""
    return {entry["desired"] for entry in recommender.recommendation()["history"] if entry["until"] >= time_s}


class Engine:
    """A vLLM's metrics page whose counters move.

    Attributes:
        running, waiting: what it shows.
        answer: what it does instead of answering; None: it is well.
        port: where it listens, the same for ever.
    """

    def __init__(self) -> None:
        self.running, self.waiting, self._tokens = 3, 1, 0
        self.answer: Callable[[Call], object] | None = None
        self._server: RawServer | None = RawServer(self._call)
        self.port = self._server.port

    @property
    def url(self) -> str:
        """Of its page."""
        return f"http://127.0.0.1:{self.port}/metrics"

    def page(self) -> bytes:
        """The page of now."""
        self._tokens += 10
        return PAGE.format(running=self.running, waiting=self.waiting, tokens=self._tokens).encode()

    def heal(self) -> None:
        """It is well again, and listens."""
        self.running, self.waiting, self.answer = 3, 1, None
        if self._server is None:
            self._server = RawServer(self._call, port=self.port)

    def forget(self) -> None:
        """Let go of the connections so far, which the server remembers: a long run has a million."""
        if self._server is not None:
            self._server.forget()

    def restart(self) -> None:
        """It is another process, whose counters begin at 0."""
        self._tokens = 0
        self.heal()

    def refuse(self) -> None:
        """Nothing listens on the port."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _call(self, call: Call) -> None:
        call.page(self.page()) if self.answer is None else self.answer(call)


class Sidecar(Process):
    """A sidecar at an address of its own."""

    def __init__(self, address: str, port: int, *arguments: str) -> None:
        self._place = f"http://{address}:{port}"
        super().__init__("--web.listen-address", f"{address}:{port}", *arguments)

    def get(self, path: str, **options: Any) -> requests.Response:
        """GET a path of the main listener."""
        return self._session.get(self._place + path, timeout=LONG_S, **options)


class Gate:
    """Stands before a Prometheus: passes its answers on, or does what `answer` says instead."""

    def __init__(self, upstream_port: int) -> None:
        self.answer: Callable[[Call], object] | None = None
        self.change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda result: result
        self._upstream = upstream_port
        self._server: RawServer | None = RawServer(self._call)
        self.port = self._server.port

    def heal(self) -> None:
        """Passes on, and listens."""
        self.answer, self.change = None, lambda result: result
        if self._server is None:
            self._server = RawServer(self._call, port=self.port)

    def refuse(self) -> None:
        """Nothing listens on the port."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _call(self, call: Call) -> None:
        if self.answer is not None:
            self.answer(call)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=LONG_S)
        try:
            connection.request("GET", call.path)
            found = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        found["data"]["result"] = self.change(found["data"]["result"])
        call.page(json.dumps(found).encode(), "Content-Type: application/json")


class Relay:
    """Stands before a server of any protocol: passes connections on, or refuses them."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream = upstream_port
        self._server: RawServer | None = RawServer(self._call, read_request=False)
        self.port = self._server.port

    def heal(self) -> None:
        """Listens, and passes on."""
        if self._server is None:
            self._server = RawServer(self._call, port=self.port, read_request=False)

    def refuse(self) -> None:
        """Nothing listens on the port."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _call(self, call: Call) -> None:
        with socket.create_connection(("127.0.0.1", self._upstream), timeout=LONG_S) as upstream:
            back = threading.Thread(target=pump, args=(upstream, call.connection))
            back.start()
            pump(call.connection, upstream)
            with contextlib.suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)  # the client has left, and waits for no answer
            back.join()


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass on what comes, to its end."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class Pair:
    """The engines and their sidecars: one port, an address each."""

    def __init__(self) -> None:
        with socket.create_server((ADDRESSES[0], 0)) as free:
            self.port: int = free.getsockname()[1]
        self.engines = [Engine(), Engine()]
        threads = [threading.Thread(target=self._begin, args=(number,)) for number in (0, 1)]
        self._begun: dict[int, Sidecar] = {}
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.sidecars = [self._begun[number] for number in (0, 1)]

    @property
    def static(self) -> str:
        """Both as a fleet source."""
        return "--fleet.source=static:" + ",".join(f"http://{address}:{self.port}" for address in ADDRESSES)

    def move(self, number: int, address: str) -> None:
        """End a sidecar and start it at another address."""
        self.sidecars[number].close()
        self.sidecars[number] = self.start(number, address)

    def start(self, number: int, address: str) -> Sidecar:
        """A sidecar beside an engine."""
        return Sidecar(
            *(address, self.port, "--engine-url", self.engines[number].url),
            *("--engine.min-interval=0.001", "--engine.timeout=0.6", "--web.shutdown-delay=0.1", "--stale-after=1.5"),
        )

    def heal(self) -> None:
        """All is well: both engines answer and both sidecars say so."""
        for engine in self.engines:
            engine.heal()
        for sidecar in self.sidecars:
            until(lambda sidecar=sidecar: sidecar.state() == "ok")  # type: ignore[misc]

    def close(self) -> None:
        """Ends everything."""
        for sidecar in self.sidecars:
            sidecar.close()
        for engine in self.engines:
            engine.refuse()

    def _begin(self, number: int) -> None:
        self._begun[number] = self.start(number, ADDRESSES[number])


def is_well(found: dict[str, Any]) -> bool:
    """Whether both replicas gave a value, and two are asked for for nothing else."""
    return bool(found["replicas"]["serving"] == 2 and found["desired"] == 2 and not found.get("error"))
