"""The slow reference for the event engine: every replica takes every decode step, one after the other.

It shares nothing with the simulator but the facts of the hardware, the scenario, the requests and the scalers. All
sequences are records with their tokens; contexts are summed anew at each step; the next thing that happens anywhere is
found by looking at everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from operator import attrgetter

from infscale.core.replicas import Fleet, Held, Phase
from infscale.core.replicas import Replica as Seen
from infscale_sim.hardware import Hardware
from infscale_sim.policies import Scaler
from infscale_sim.scenario import Scenario
from infscale_sim.traffic import Requests

NEVER = math.inf


@dataclass(slots=True)
class Sequence:
    """A request on a replica."""

    request: int
    arrival_s: float
    prompt: int
    output: int
    generated: int = 0
    left: int = 0  # prompt tokens still to compute
    first_s: float = NEVER
    done_s: float = NEVER


@dataclass(slots=True)
class StepReplica:
    """One replica that knows what it is doing until `until_s`."""

    hardware: Hardware
    number: int
    created_s: float
    ready_s: float
    queue: list[Sequence] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)  # in the order of admission
    prefilling: list[Sequence] = field(default_factory=list)
    until_s: float = NEVER
    doing: str = ""
    finishing: list[Sequence] = field(default_factory=list)
    since_s: float = 0.0
    running_s: float = 0.0
    busy_s: float = 0.0
    last_done_s: float = 0.0

    @property
    def outstanding(self) -> int:
        """Requests that are here."""
        return len(self.queue) + len(self.running) + len(self.prefilling)

    def used(self) -> int:
        """Tokens of KV cache in use."""
        context = sum(one.prompt + one.generated for one in self.running)
        return context + sum(one.prompt + one.generated for one in self.prefilling)

    def count_until(self, now_s: float) -> None:
        """Add what ran since the last count."""
        if now_s == self.since_s:
            return
        run = len(self.running) + len(self.prefilling)
        self.running_s += run * (now_s - self.since_s)
        self.busy_s += (run > 0) * (now_s - self.since_s)
        self.since_s = now_s

    def submit(self, sequence: Sequence, now_s: float) -> None:
        """A request arrives."""
        self.queue.append(sequence)
        if not self.doing:
            self.choose(now_s)

    def boundary(self) -> None:
        """What it was doing ends."""
        now_s = self.until_s
        self.count_until(now_s)
        done = False
        if self.doing in ("decode", "mixed"):
            for one in self.running:
                one.generated += 1
                done = done or one.generated >= one.output
        if self.doing in ("prefill", "mixed"):
            for one in self.finishing:
                self.prefilling.remove(one)
                self.running.append(one)
                one.first_s = min(one.first_s, now_s)
                one.generated += 1
                done = done or one.generated >= one.output
        for one in [one for one in self.running if one.generated >= one.output] if done else ():
            self.running.remove(one)
            one.done_s = self.last_done_s = now_s
        self.choose(now_s)

    def choose(self, now_s: float) -> None:
        """What to do next."""
        self.count_until(now_s)
        self.doing, self.until_s, self.finishing = "", NEVER, []
        if self.hardware.prefill == "chunked":
            self._choose_chunked(now_s)
        else:
            self._choose_stall(now_s)

    def _fits(self) -> bool:
        if not self.queue or len(self.running) + len(self.prefilling) >= self.hardware.slots:
            return False
        head = self.queue[0]
        return self.used() + head.prompt + head.output <= self.hardware.kv_tokens

    def _preempt(self) -> None:
        while self.running and self.used() + len(self.running) > self.hardware.kv_tokens:
            youngest = self.prefilling.pop() if self.prefilling else self.running.pop()
            self.queue.insert(0, youngest)

    def _choose_stall(self, now_s: float) -> None:
        if self._fits():
            one = self.queue.pop(0)
            self.prefilling.append(one)
            self.finishing = [one]
            self.doing = "prefill"
            self.until_s = now_s + (one.prompt + one.generated) * self.hardware.prefill_token_s
            return
        self._preempt()
        if self.running:
            self.doing = "decode"
            self.until_s = now_s + self._decode_s()

    def _choose_chunked(self, now_s: float) -> None:
        while self._fits():
            one = self.queue.pop(0)
            one.left = one.prompt + one.generated
            self.prefilling.append(one)
        self._preempt()
        room = self.hardware.step_tokens - len(self.running)
        computed = 0
        for one in self.prefilling:
            chunk = min(one.left, room - computed)
            one.left -= chunk
            computed += chunk
            if one.left == 0:
                self.finishing.append(one)
        if computed or self.running:
            self.doing = "mixed"
            decode_s = self._decode_s() if self.running else 0.0
            self.until_s = now_s + decode_s + computed * self.hardware.prefill_token_s

    def _decode_s(self) -> float:
        context = sum(one.prompt + one.generated for one in self.running)
        return self.hardware.weights_step_s + context * self.hardware.token_step_s


class StepCluster:
    """One run; the fields at its end are what the tests compare."""

    def __init__(self, scenario: Scenario, requests: Requests, scaler: Scaler) -> None:
        self.scenario, self.scaler = scenario, scaler
        rows = zip(requests.arrival_s, requests.prompt_tokens, requests.output_tokens, strict=True)
        self.sequences = [Sequence(number, *row) for number, row in enumerate(rows)]
        self.fate = [0] * len(self.sequences)
        self.ready: list[StepReplica] = []
        self.starting: list[StepReplica] = []
        self.draining: list[tuple[StepReplica, float]] = []
        self.held: list[Sequence] = []
        self.lives: list[list[float]] = []  # [created, ended] by number
        self.changes = 0
        self.counts: list[tuple[float, int]] = []
        self.cpu: dict[int, tuple[float, float, float]] = {}

    def run(self) -> None:
        """From 0 to the horizon."""
        horizon_s = self.scenario.horizon_s
        for _ in range(self.scaler.start(self.scenario.start)):
            self._add(0.0, 0.0)
        self._start_ready(0.0)
        arrivals = iter(self.sequences)
        arriving = next(arrivals, None)
        look_s = self.scaler.next_s(0.0)
        while True:
            replica = min(self._serving(), key=attrgetter("until_s"), default=None)
            step_s = NEVER if replica is None else replica.until_s
            ready_s = min((r.ready_s for r in self.starting), default=NEVER)
            grace_s = min((left_s + self.scenario.grace_s for _, left_s in self.draining), default=NEVER)
            arrival_s = arriving.arrival_s if arriving is not None else NEVER
            now_s = min(step_s, ready_s, arrival_s, grace_s, look_s)
            if now_s > horizon_s:
                break
            if step_s == now_s and replica is not None:
                replica.boundary()
                if self.draining:
                    self._drained()
            elif ready_s == now_s:
                self._start_ready(now_s)
            elif arrival_s == now_s and arriving is not None:
                self._arrive(arriving, now_s)
                arriving = next(arrivals, None)
            elif grace_s == now_s:
                self._cut(now_s)
            else:
                self._look(now_s)
                look_s = self.scaler.next_s(now_s)

    @property
    def replica_minutes(self) -> float:
        """Over all replicas."""
        return sum(min(end, self.scenario.horizon_s) - start for start, end in self.lives) / 60

    def _serving(self) -> list[StepReplica]:
        return [*self.ready, *(replica for replica, _ in self.draining)]

    def _add(self, now_s: float, cold_start_s: float) -> None:
        ready_s = now_s + cold_start_s
        self.starting.append(StepReplica(self.scenario.hardware, len(self.lives), now_s, ready_s, since_s=ready_s))
        self.lives.append([now_s, NEVER])

    def _start_ready(self, now_s: float) -> None:
        for replica in [one for one in self.starting if one.ready_s <= now_s]:
            self.starting.remove(replica)
            self.ready.append(replica)
        while self.ready and self.held:
            self._give(self.held.pop(0), now_s)

    def _arrive(self, sequence: Sequence, now_s: float) -> None:
        if sequence.prompt + sequence.output > self.scenario.hardware.kv_tokens:
            self.fate[sequence.request] = 1
        elif self.ready:
            self._give(sequence, now_s)
        else:
            self.held.append(sequence)

    def _give(self, sequence: Sequence, now_s: float) -> None:
        self.ready.sort(key=lambda one: one.number)
        min(self.ready, key=lambda one: one.outstanding).submit(sequence, now_s)

    def _drained(self) -> None:
        for pair in [pair for pair in self.draining if pair[0].outstanding == 0]:
            self.draining.remove(pair)
            self.lives[pair[0].number][1] = max(pair[1], pair[0].last_done_s)

    def _cut(self, now_s: float) -> None:
        for pair in [pair for pair in self.draining if pair[1] + self.scenario.grace_s <= now_s]:
            self.draining.remove(pair)
            for one in (*pair[0].queue, *pair[0].running, *pair[0].prefilling):
                self.fate[one.request] = 3
            self.lives[pair[0].number][1] = now_s

    def _look(self, now_s: float) -> None:
        fleet = self._fleet(now_s)
        count = len(self.ready) + len(self.starting)
        desired = self.scaler.decide(fleet).replicas
        if desired == count:
            return
        self.changes += 1
        self.counts.append((now_s, desired))
        for _ in range(count, desired):
            self._add(now_s, self.scenario.cold_start.mean)
        for _ in range(desired, count):
            if self.starting:
                self.lives[self.starting.pop().number][1] = now_s
                continue
            victim = min(self.ready, key=lambda one: (one.outstanding, one.number))
            self.ready.remove(victim)
            self.draining.append((victim, now_s))
        self._drained()

    def _fleet(self, now_s: float) -> Fleet:
        count = len(self.ready) + len(self.starting)
        serving = [self._seen(one, now_s, Phase.SERVING) for one in self.ready]
        draining = [self._seen(one, now_s, Phase.DRAINING) for one, _ in self.draining]
        starting = [Seen(f"r{one.number}", Phase.STARTING) for one in self.starting]
        return Fleet(
            now_s, count, count, len(self.ready), tuple(serving + draining + starting), Held(float(len(self.held)))
        )

    def _seen(self, replica: StepReplica, now_s: float, phase: Phase) -> Seen:
        replica.count_until(now_s)
        before_s, running_s, busy_s = self.cpu.get(replica.number, (replica.ready_s, 0.0, 0.0))
        self.cpu[replica.number] = (now_s, replica.running_s, replica.busy_s)
        span_s = now_s - before_s
        ratio = self.scenario.hardware.cpu_ratio(0, 0)
        if span_s > 0:
            running, busy = (replica.running_s - running_s) / span_s, (replica.busy_s - busy_s) / span_s
            ratio = self.scenario.hardware.cpu_ratio(running, busy)
        run = len(replica.running) + len(replica.prefilling)
        waiting = len(replica.queue)
        return Seen(f"r{replica.number}", phase, run, waiting, run + waiting, cpu_ratio=ratio)
