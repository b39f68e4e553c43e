"""The demo's replicas: each is a stand-in engine with its sidecar; they start cold and are drained before they stop.

Called on the event loop by `workload`, which sets the count as a Deployment's is set.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from infscale.drain.options import DrainOptions
from infscale.drain.report import DrainReport
from infscale.drain.run import drain
from infscale.drain.verdict import IDLE
from infscale.fleet.survey import Place
from infscale_sim.demo.balancer import Balancer
from infscale_sim.demo.pace import FIRST_TOKEN_S, INTER_TOKEN_S, SLOTS, Pace
from infscale_sim.demo.processes import Process, Processes

MODEL = "stand-in"
_POLL_S = 0.05
_GRACE_S = 30.0
_ENGINE = (
    *("sim-engine", "--port", "0", "--model", MODEL, "--max-num-seqs", str(SLOTS)),
    *("--time-to-first-token", str(FIRST_TOKEN_S), "--inter-token-latency", str(INTER_TOKEN_S)),
)
_SIDECAR = (
    *("sidecar", "--web.listen-address", "127.0.0.1:0", "--kubelet.listen-address", "127.0.0.1:0"),
    *("--engine.min-interval", "0.2", "--web.shutdown-delay", "0"),
)


class State(StrEnum):
    """Where a replica is in its life."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


@dataclass(eq=False)
class Replica:
    """One engine and its sidecar.

    Attributes:
        number: 1 and up, by age.
        created_s: Unix seconds.
        state: see State.
        engine_port: 0 until the engine listens.
        sidecar_port: 0 until the replica serves.
        processes: what runs of it.
    """

    number: int
    created_s: float
    state: State = State.STARTING
    engine_port: int = 0
    sidecar_port: int = 0
    processes: list[Process] = field(default_factory=list)

    @property
    def name(self) -> str:
        """For people and for the recommender."""
        return f"replica {self.number}"

    @property
    def place(self) -> Place:
        """Where the recommender finds it; before it serves it has no address, as a Pod that is pulled and scheduled."""
        url = f"http://127.0.0.1:{self.sidecar_port}/api/v1/reading" if self.sidecar_port else ""
        return Place(self.name, url, created_s=self.created_s, leaving=self.state is State.DRAINING)


class Ended(Exception):
    """A drain is not to be waited for any more."""


class Replicas:
    """All of them.

    Args:
        processes: where their processes are started.
        balancer: what sends them requests.
        pace: of the demo.
        tell: takes a line of news.

    Attributes:
        reports: of the drains so far.
        peak: most replicas at a time.
    """

    def __init__(self, processes: Processes, balancer: Balancer, pace: Pace, tell: Callable[[str], None]) -> None:
        self._processes, self._balancer, self._pace, self._tell = processes, balancer, pace, tell
        self.reports: list[DrainReport] = []
        self.peak = 0
        self._began_s, self._gone_s = time.time(), 0.0
        self._alive: list[Replica] = []
        self._lives: dict[Replica, asyncio.Task[None]] = {}
        self._numbers = 0
        self._over = threading.Event()

    def places(self) -> tuple[Place, ...]:
        """What the recommender sees of them; any thread."""
        return tuple(replica.place for replica in list(self._alive))

    def count(self, state: State) -> int:
        """How many are in that state."""
        return sum(replica.state is state for replica in self._alive)

    @property
    def replica_s(self) -> float:
        """Seconds that replicas existed, from creation to the end of their processes, all together."""
        return self._gone_s + sum(time.time() - replica.created_s for replica in self._alive)

    @property
    def always_s(self) -> float:
        """What `replica_s` would be with as many as the peak from the start."""
        return self.peak * (time.time() - self._began_s)

    @property
    def settled(self) -> bool:
        """Whether each of them serves."""
        return all(replica.state is State.SERVING for replica in self._alive)

    def scale(self, wanted: int, *, cold: bool = True) -> None:
        """Start or stop as many as the count asks for: first those that start, then the youngest, as a ReplicaSet does.

        Args:
            wanted: how many shall not be leaving.
            cold: whether new ones take a cold start.
        """
        staying = [replica for replica in self._alive if replica.state is not State.DRAINING]
        for _ in range(wanted - len(staying)):
            self._numbers += 1
            replica = Replica(self._numbers, time.time())
            self._alive.append(replica)
            self._live(replica, self._start(replica, self._pace.cold_start_s if cold else 0.0))
        staying.sort(key=lambda replica: (replica.state is State.STARTING, replica.number))
        for replica in staying[max(0, wanted) :]:
            self._lives[replica].cancel()
            self._live(replica, self._stop(replica))
        self.peak = max(self.peak, len(self._alive))

    def check(self) -> None:
        """Raise what went wrong with any of them."""
        self._processes.check_alive()
        for replica, life in list(self._lives.items()):
            if life.done() and not life.cancelled():
                life.result()
                if replica not in self._alive:
                    del self._lives[replica]

    async def close(self) -> None:
        """Let no start and no drain go on."""
        self._over.set()
        for life in self._lives.values():
            life.cancel()
        await asyncio.gather(*self._lives.values(), return_exceptions=True)

    def _live(self, replica: Replica, life: Coroutine[Any, Any, None]) -> None:
        self._lives[replica] = asyncio.get_running_loop().create_task(life)

    async def _start(self, replica: Replica, cold_start_s: float) -> None:
        """The processes come up while the cold start passes; a model that loads is played by waiting."""
        ready_s = asyncio.get_running_loop().time() + cold_start_s
        replica.engine_port = await self._listening(replica, "engine", *_ENGINE)
        url = f"http://127.0.0.1:{replica.engine_port}/metrics"
        sidecar_port = await self._listening(replica, "sidecar", *_SIDECAR, "--engine-url", url)
        await asyncio.sleep(max(0.0, ready_s - asyncio.get_running_loop().time()))
        self._balancer.add(replica.engine_port)
        replica.sidecar_port, replica.state = sidecar_port, State.SERVING
        if cold_start_s:
            self._tell(f"{replica.name} serves, {time.time() - replica.created_s:.1f} s after its creation")

    async def _listening(self, replica: Replica, what: str, *arguments: str) -> int:
        """Start a process of a replica, and wait for its port."""
        process = self._processes.start(f"the {what} of {replica.name}", *arguments)
        replica.processes.append(process)
        while not (port := process.port()):
            await asyncio.sleep(_POLL_S)
        return port

    async def _stop(self, replica: Replica) -> None:
        """Out of the balancer, drained, SIGTERM."""
        served = replica.state is State.SERVING
        replica.state = State.DRAINING
        if served:
            self._balancer.remove(replica.engine_port)
            self._tell(f"{replica.name} takes no new request and is drained")
            report = await asyncio.to_thread(self._drain, replica.engine_port)
            self.reports.append(report)
            self._tell(f"{replica.name}: {_words(report)}, now SIGTERM")
        for process in replica.processes:
            self._processes.let_go(process)
            await asyncio.to_thread(process.kill)
        self._alive.remove(replica)
        self._gone_s += time.time() - replica.created_s

    def _drain(self, port: int) -> DrainReport:
        """`infscale drain`, in this process; on a thread of its own."""
        options = DrainOptions(f"http://127.0.0.1:{port}/metrics", grace_s=_GRACE_S, settle_s=self._pace.settle_s)
        return drain(options, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise Ended


def _words(report: DrainReport) -> str:
    reads = f"after {report.seconds:.1f} s and {report.reads} reads"
    if report.outcome == IDLE or not report.note:
        return f"drained, {report.outcome} {reads}"
    return f"drained, {report.outcome} {reads}: {report.note}"
