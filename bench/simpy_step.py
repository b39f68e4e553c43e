"""How much faster the simulator is than the same cluster in SimPy: taking every decode step, and event by event.

    python bench/simpy_step.py [--scale 1.0]

Five replicas, the default scenario's requests. Both SimPy models are written as one would for SimPy: a process per
replica, a process for the arrivals. Before anything is timed, all three must give every request of a small case the
same times. At least 20 times faster than the model that takes every step; the other ratio is reported.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from infscale_sim.hardware import Hardware
from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.simulate import run
from infscale_sim.traffic import Request, Requests

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.measure import least_cpu_s
from bench.table import Row, Size, alone, show

LIMIT = 20
REPLICAS = 5
MISSING = "SimPy is absent: pip install -c constraints.txt -e '.[bench]', as `make bench` does"
SAME_S = 1e-6
"""The models add up steps in different orders; rounding stays far below."""
Process = Generator[Any, Any, None]


class SimpyReplica:
    """What both models share: a queue before the slots, and a prefill that stops decode."""

    def __init__(self, env: Any, hardware: Hardware, requests: Requests) -> None:
        self.env, self.hardware, self.requests = env, hardware, requests
        count = len(requests)
        self.first_s, self.done_s = [math.inf] * count, [math.inf] * count
        self.queue: deque[int] = deque()
        self.outstanding = self.context = 0
        self.arrived = env.event()
        env.process(self.work())

    def submit(self, request: int) -> None:
        """A request arrives."""
        self.outstanding += 1
        self.queue.append(request)
        if not self.arrived.triggered:
            self.arrived.succeed()

    def work(self) -> Process:
        """The life of the replica."""
        raise NotImplementedError

    def fits(self, running: int) -> bool:
        """Whether the head of the queue has a slot and room."""
        if not self.queue or running >= self.hardware.slots:
            return False
        tokens = self.requests.prompt_tokens[self.queue[0]] + self.requests.output_tokens[self.queue[0]]
        return self.context + tokens <= self.hardware.kv_tokens

    def leave(self, request: int) -> None:
        """A request has its last token."""
        self.done_s[request] = self.env.now
        self.context -= self.requests.prompt_tokens[request] + self.requests.output_tokens[request]
        self.outstanding -= 1


class StepReplica(SimpyReplica):
    """Every decode step is a time-out, after which each running sequence has one token more."""

    def work(self) -> Process:
        """Admit what fits, one prefill after the other; else one step; without anything to run wait."""
        env, hardware = self.env, self.hardware
        running: list[list[int]] = []  # [request, tokens to go]
        while True:
            if self.fits(len(running)):
                request = self.queue.popleft()
                prompt, output = self.requests.prompt_tokens[request], self.requests.output_tokens[request]
                yield env.timeout(prompt * hardware.prefill_token_s)
                self.first_s[request] = env.now
                self.context += prompt + 1
                if output > 1:
                    running.append([request, output - 1])
                else:
                    self.leave(request)
            elif running:
                yield env.timeout(hardware.weights_step_s + self.context * hardware.token_step_s)
                self.context += len(running)
                ended = False
                for sequence in running:
                    sequence[1] -= 1
                    ended = ended or sequence[1] == 0
                if ended:
                    for request, to_go in running:
                        if to_go == 0:
                            self.leave(request)
                    running = [sequence for sequence in running if sequence[1] > 0]
            else:
                self.arrived = env.event()
                yield self.arrived


class EventReplica(SimpyReplica):
    """The simulator's scheme in SimPy: a time-out to the next end, cut short by an arrival that fits."""

    def work(self) -> Process:
        """As `StepReplica`, with as many steps at once as nothing happens in."""
        env, hardware = self.env, self.hardware
        clock, running = 0, list[tuple[int, int]]()  # a heap of (last step, request)
        while True:
            if self.fits(len(running)):
                request = self.queue.popleft()
                prompt, output = self.requests.prompt_tokens[request], self.requests.output_tokens[request]
                yield env.timeout(prompt * hardware.prefill_token_s)
                self.first_s[request] = env.now
                self.context += prompt + 1
                heappush(running, (clock + output - 1, request))
            elif running:
                began_s, steps = env.now, running[0][0] - clock
                end = env.timeout(self._steps_s(steps, len(running)))
                if not self.queue:
                    self.arrived = env.event()
                    yield end | self.arrived
                    if not end.processed and self.fits(len(running)):
                        steps = self._steps_by(env.now - began_s, len(running), steps)
                        yield env.timeout(max(0.0, began_s + self._steps_s(steps, len(running)) - env.now))
                if not end.processed and steps == running[0][0] - clock:
                    yield end
                clock += steps
                self.context += steps * len(running)
            else:
                self.arrived = env.event()
                yield self.arrived
            while running and running[0][0] <= clock:
                self.leave(heappop(running)[1])

    def _steps_s(self, steps: int, batch: int) -> float:
        first_s = self.hardware.weights_step_s + self.context * self.hardware.token_step_s
        return steps * (first_s + 0.5 * batch * self.hardware.token_step_s * (steps - 1))

    def _steps_by(self, passed_s: float, batch: int, most: int) -> int:
        """Steps until the first boundary after so many seconds."""
        growth_s = batch * self.hardware.token_step_s
        base_s = self.hardware.weights_step_s + self.context * self.hardware.token_step_s - 0.5 * growth_s
        root = math.sqrt(base_s * base_s + 2 * growth_s * passed_s)
        return min(most, math.ceil(2 * passed_s / (base_s + root) - 1e-9))


Times = tuple[Sequence[float], Sequence[float]]
"""By request, when its first and its last token came."""


def simpy_times(simpy: Any, kind: type[SimpyReplica], scenario: Scenario, requests: Requests, replicas: int) -> Times:
    """Run a SimPy model."""
    env = simpy.Environment()
    fleet = [kind(env, scenario.hardware, requests) for _ in range(replicas)]

    def arrive() -> Process:
        for request, arrival_s in enumerate(requests.arrival_s):
            yield env.timeout(arrival_s - env.now)
            min(fleet, key=lambda replica: replica.outstanding).submit(request)

    env.process(arrive())
    env.run(until=scenario.horizon_s)
    firsts = zip(*(replica.first_s for replica in fleet), strict=True)
    lasts = zip(*(replica.done_s for replica in fleet), strict=True)
    return [min(row) for row in firsts], [min(row) for row in lasts]


def check_same(simpy: Any) -> None:
    """Run all three on a small case: Poisson arrivals, more than the slots hold.

    Raises:
        AssertionError: a request's time differs.
    """
    generator = random.Random(5)  # noqa: S311 - traffic, no secret
    arrival_s, made = 0.0, []
    for _ in range(400):
        arrival_s += generator.expovariate(25.0)
        made.append(Request(arrival_s, generator.randint(20, 900), generator.randint(1, 300)))
    requests = Requests.of(made)
    default = load_scenario("default")
    scenario = replace(default, hardware=replace(default.hardware, slots=8), horizon_s=300.0)
    ours = run(scenario, "static:2", requests).run
    for kind in (StepReplica, EventReplica):
        theirs = simpy_times(simpy, kind, scenario, requests, 2)
        for name, mine, other in zip(("first", "last"), (ours.first_s, ours.done_s), theirs, strict=True):
            for request, (one_s, other_s) in enumerate(zip(mine, other, strict=True)):
                if not abs(one_s - other_s) <= SAME_S:
                    raise AssertionError(f"{kind.__name__}: {name} token of {request} at {other_s}, not {one_s}")


def measure(scale: float) -> list[Row]:
    """Compare the models and time them on a share of the default scenario's requests; without SimPy time ours alone."""
    scenario = load_scenario("default")
    every = scenario.requests()
    count = math.ceil(scale * len(every))
    requests = Requests(every.arrival_s[:count], every.prompt_tokens[:count], every.output_tokens[:count])
    what = f"CPU of {count:,} requests on {REPLICAS} replicas"
    engine_s = least_cpu_s(lambda: run(scenario, f"static:{REPLICAS}", requests), 5)
    try:
        simpy = importlib.import_module("simpy")
    except ImportError:
        return [Row(what, "s", engine_s, MISSING, ratio_at_least=LIMIT)]
    check_same(simpy)
    event_s = least_cpu_s(lambda: simpy_times(simpy, EventReplica, scenario, requests, REPLICAS), 2)
    step_s = least_cpu_s(lambda: simpy_times(simpy, StepReplica, scenario, requests, REPLICAS), 2)
    return [
        Row(what, "s", engine_s, "SimPy, every step", step_s, ratio_at_least=LIMIT),
        Row(what, "s", engine_s, "SimPy, event by event", event_s),
    ]


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each SimPy model."""
    return measure(0.1 if size is Size.TINY else 1.0)


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the scenario's requests")
    options = parser.parse_args()
    return show(measure(options.scale), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
