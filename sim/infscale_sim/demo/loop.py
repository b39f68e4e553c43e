"""`infscale demo`: the whole loop on one machine, with real processes and real HTTP; only the model is missing.

Processes: a stand-in engine and a sidecar for each replica. In this process: the load (that of `infscale load`), a
balancer, and the recommender (`infscale.evaluator.Evaluator` with its page), whose decisions start and stop replicas.
A replica that is to go is drained (`infscale.drain.run`) before its engine gets SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math

from infscale.core.grammar import parse_policy
from infscale.evaluator import Evaluator
from infscale.recommender import recommender_routes
from infscale.web.server import Listener
from infscale_sim.demo.balancer import Balancer
from infscale_sim.demo.pace import MIN_REPLICAS, Pace
from infscale_sim.demo.processes import Processes
from infscale_sim.demo.replicas import MODEL, Replicas
from infscale_sim.demo.screen import Screen
from infscale_sim.demo.stop import Signals
from infscale_sim.demo.table import FULL_BAR, Table
from infscale_sim.demo.workload import Workload
from infscale_sim.load_client import Client
from infscale_sim.load_run import Load, Runner

_STEP_S = 0.1
_REQUEST_S = 60.0
_EXTRA_S = 30.0
"""After the load and the scale-down window, for the last replicas to leave."""
_END_S = 1.0
"""For the evaluation and the page under way, at the end."""


def run(port: int, seconds: float) -> None:
    """The whole demo.

    Args:
        port: of the recommender's page; 0: a free one.
        seconds: how long the load goes on.

    Raises:
        InfscaleError: what a person is to be told in one line.
        Stopped: a signal came, or nobody reads the output any more.
    """
    # What the recommender has to say stands in the table and on its page.
    logging.getLogger("infscale").addHandler(logging.NullHandler())
    signals = Signals()
    with Processes() as processes:
        asyncio.run(_run(processes, signals, Pace(seconds), port))


async def _run(processes: Processes, signals: Signals, pace: Pace, port: int) -> None:
    table = Table(Screen(FULL_BAR), pace)
    balancer = Balancer()
    replicas = Replicas(processes, balancer, pace, table.tell)
    workload = Workload(replicas, MIN_REPLICAS, asyncio.get_running_loop(), table.tell)
    evaluator = Evaluator(workload, parse_policy(pace.policy), applier=workload, interval_s=pace.interval_s)
    page = Listener(f"127.0.0.1:{port}", recommender_routes(evaluator), flag="--port")
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(page.stop, _END_S)
        page.start()
        stack.push_async_callback(balancer.close)
        await balancer.start()
        stack.push_async_callback(replicas.close)
        table.head(page.port, balancer.port)
        replicas.scale(MIN_REPLICAS, cold=False)
        while not replicas.settled:
            signals.check()
            replicas.check()
            await asyncio.sleep(_STEP_S)
        stack.callback(evaluator.stop, _END_S)
        evaluator.start()
        await _Show(signals, pace, table, replicas, workload, evaluator).go_on(balancer.port)


class _Show:
    """The time in which there is load."""

    def __init__(
        self,
        signals: Signals,
        pace: Pace,
        table: Table,
        replicas: Replicas,
        workload: Workload,
        evaluator: Evaluator,
    ) -> None:
        self._signals, self._pace, self._table = signals, pace, table
        self._replicas, self._workload, self._evaluator = replicas, workload, evaluator

    async def go_on(self, port: int) -> None:
        """Send the load, show what comes of it until all is as it was, and sum it up."""
        client, stop = Client(f"http://127.0.0.1:{port}"), asyncio.Event()
        runner = Runner(client, Load(MODEL, 1, 1, _REQUEST_S, seed=1), stop, slo_ttft_s=math.inf)
        load = asyncio.create_task(runner.open(self._pace.arrivals(), None))
        try:
            await self._watch(runner, load)
        finally:
            stop.set()
            await load
            client.close()
            self._table.summary(asyncio.get_running_loop().time() - runner.start_s, runner.record, self._replicas)

    async def _watch(self, runner: Runner, load: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        latest_s = self._pace.seconds + self._pace.down_window_s + _EXTRA_S
        next_s = self._pace.line_s
        while True:
            elapsed_s = loop.time() - runner.start_s
            self._signals.check()
            self._replicas.check()
            self._table.news(elapsed_s)
            if elapsed_s >= next_s:
                next_s += self._pace.line_s
                self._table.line(elapsed_s, runner, self._replicas, self._workload.seen, self._evaluator.view())
            if load.done():
                as_before = self._replicas.settled and self._workload.count == MIN_REPLICAS
                if as_before or elapsed_s > latest_s:
                    return
            await asyncio.sleep(_STEP_S)
