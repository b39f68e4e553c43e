"""The cluster around the replicas: balancing, held requests, cold starts, drains, and the scaler's looks and changes.

`Cluster.run` is one run. Between two events of the cluster (a replica is ready, a grace period ends, the scaler looks)
arrivals go straight to the replicas; that loop is `_balance`, and all the rest is as rare as the events.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter

from infscale_sim.book import NEVER, Book
from infscale_sim.chunked import ChunkedReplica
from infscale_sim.fleet import Eyes
from infscale_sim.outcome import Fate, Moment, Run, Span
from infscale_sim.policies import Scaler
from infscale_sim.replica import Replica
from infscale_sim.scenario import Scenario
from infscale_sim.traffic import Requests

_READY, _GRACE, _GAUGES, _LOOK = range(4)
"""Events of the cluster, in the order in which those of one instant happen; arrivals come after `_READY`."""


class Cluster:
    """One run of a scenario's requests under one scaler. Use once."""

    def __init__(
        self,
        scenario: Scenario,
        requests: Requests,
        scaler: Scaler,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        count = len(requests)
        self.scenario, self.scaler, self.progress = scenario, scaler, progress
        self.arrival_s = requests.arrival_s
        nothing = array("d", [NEVER]) * count
        self.book = Book(requests.arrival_s, requests.prompt_tokens, requests.output_tokens, nothing, nothing[:])
        self.fate = bytearray(count)
        self.random = random.Random(f"{scenario.seed} cluster")  # noqa: S311 - no secret
        self.kind = ChunkedReplica if scenario.hardware.prefill == "chunked" else Replica
        self.events: list[tuple[float, int, int, Replica | None]] = []
        self.sequence = 0
        self.arrived = 0
        # Replicas by state; those of one list are in the order of their age.
        self.ready: list[Replica] = []
        self.next_s: list[float] = []  # of each of `ready`
        self.outstanding: list[int] = []  # of each of `ready`
        self.starting: list[Replica] = []
        self.draining: list[Replica] = []
        self.held: deque[int] = deque()
        self.turn = 0
        self.too_large = self._too_large()
        self.eyes = Eyes(scenario, scaler.needs, self.book)
        self.moments: list[Moment] = []
        self.spans: dict[int, Span] = {}
        self.glanced_s = 0.0  # the last look for which a glance is planned
        self.peak = self.changes = 0

    def run(self) -> Run:
        """From 0 to the horizon."""
        horizon_s = self.scenario.horizon_s
        start = self.scaler.start(self.scenario.start)
        for _ in range(start):
            self._add(0.0, 0.0)
        self.peak = start
        self._plan_look(0.0)
        while self.events and self.events[0][0] <= horizon_s:
            now_s, kind, _, replica = heappop(self.events)
            find = bisect_left if kind == _READY else bisect_right
            self._arrive(find(self.arrival_s, now_s, lo=self.arrived))
            if kind == _READY and replica is not None:
                self._become_ready(replica, now_s)
            elif kind == _GRACE and replica is not None:
                self._cut(replica, now_s)
            elif kind == _GAUGES:
                self._advance(now_s)
                self.eyes.glance(now_s, self.ready, self.draining)
            else:
                self._look(now_s)
        self._arrive(bisect_right(self.arrival_s, horizon_s, lo=self.arrived))
        self._advance(horizon_s)
        self._drop_timed_out(horizon_s)
        return self._result()

    # Requests

    def _arrive(self, until: int) -> None:
        """Let all requests up to that index arrive."""
        first, self.arrived = self.arrived, until
        stops = self.too_large[bisect_left(self.too_large, first) : bisect_left(self.too_large, until)]
        for stop in (*stops, until):
            if self.ready:
                self._balance(first, stop)
            else:
                for request in range(first, stop):
                    self._hold(request)
            if stop < until:
                self.fate[stop] = Fate.REJECTED
            first = stop + 1

    def _balance(self, first: int, until: int) -> None:
        arrival_s, ready, next_s, outstanding = self.arrival_s, self.ready, self.next_s, self.outstanding
        pick = self._picker()
        for request in range(first, until):
            now_s = arrival_s[request]
            if min(next_s) <= now_s:
                for index, at_s in enumerate(next_s):
                    if at_s <= now_s:
                        replica = ready[index]
                        next_s[index] = replica.advance(now_s)
                        outstanding[index] = replica.outstanding
            index = outstanding.index(min(outstanding)) if pick is None else pick()
            outstanding[index] += 1
            next_s[index] = ready[index].submit(request, now_s)

    def _picker(self) -> Callable[[], int] | None:
        """What chooses a replica; None for the fewest outstanding requests, the oldest of several."""
        count, outstanding = len(self.ready), self.outstanding
        if self.scenario.balance == "round_robin":

            def next_one() -> int:
                """One replica after the other."""
                self.turn = (self.turn + 1) % count
                return self.turn

            return next_one
        if self.scenario.balance == "random2":

            def of_two() -> int:
                """Of two drawn at random, the one with less to do."""
                if count == 1:
                    return 0
                one, other = sorted(self.random.sample(range(count), 2))
                return one if outstanding[one] <= outstanding[other] else other

            return of_two
        return None

    def _hold(self, request: int) -> None:
        """Nothing is ready: the activator takes the request, as long as it has room."""
        self._drop_timed_out(self.arrival_s[request])
        if len(self.held) >= self.scenario.held_limit:
            self.fate[request] = Fate.REJECTED
        else:
            self.held.append(request)

    def _drop_timed_out(self, now_s: float) -> None:
        while self.held and now_s - self.arrival_s[self.held[0]] >= self.scenario.held_timeout_s:
            self.fate[self.held.popleft()] = Fate.TIMED_OUT

    def _too_large(self) -> list[int]:
        """The requests that no replica has room for, even alone."""
        room = self.scenario.hardware.kv_tokens
        tokens = map(int.__add__, self.book.prompt, self.book.output)
        return [request for request, count in enumerate(tokens) if count > room]

    # Replicas

    def _event(self, time_s: float, kind: int, replica: Replica | None = None) -> None:
        self.sequence += 1
        heappush(self.events, (time_s, kind, self.sequence, replica))

    def _advance(self, now_s: float) -> None:
        """Bring every replica up to now, and let go of those that have drained."""
        for index, replica in enumerate(self.ready):
            self.next_s[index] = replica.advance(now_s)
            self.outstanding[index] = replica.outstanding
        for replica in list(self.draining):
            replica.advance(now_s)
            if replica.outstanding == 0:
                self.draining.remove(replica)
                span = self.spans[replica.number]
                span.ended_s = max(span.left_s, replica.at_s)

    def _add(self, now_s: float, cold_start_s: float) -> None:
        ready_s = now_s + cold_start_s
        replica = self.kind(self.scenario.hardware, self.book, len(self.spans), now_s, ready_s)
        if self.scaler.needs.ttft:
            replica.firsts = []
        self.spans[replica.number] = Span(now_s, ready_s)
        self.starting.append(replica)
        if ready_s <= 0.0:
            self._become_ready(replica, 0.0)
        else:
            self._event(ready_s, _READY, replica)

    def _become_ready(self, replica: Replica, now_s: float) -> None:
        if replica in self.starting:  # else it was given up before
            self.starting.remove(replica)
            insort(self.ready, replica, key=attrgetter("number"))
            self._index()
        if self.events and self.events[0][:2] == (now_s, _READY):
            return  # held requests spread over all that are ready at this instant
        self._drop_timed_out(now_s)
        self._advance(now_s)
        while self.held and self.ready:
            request = self.held.popleft()
            index = self.outstanding.index(min(self.outstanding))
            self.next_s[index] = self.ready[index].submit(request, now_s)
            self.outstanding[index] += 1

    def _index(self) -> None:
        self.next_s = [replica.next_s for replica in self.ready]
        self.outstanding = [replica.outstanding for replica in self.ready]

    def _cut(self, replica: Replica, now_s: float) -> None:
        """The grace period is over; what still is on the replica is lost."""
        self._advance(now_s)
        if replica not in self.draining:
            return
        for request in replica.withdraw():
            self.fate[request] = Fate.CUT
            self.book.done_s[request] = NEVER
            if self.book.first_s[request] > now_s:
                self.book.first_s[request] = NEVER
        self.draining.remove(replica)
        self.spans[replica.number].ended_s = now_s

    # Scaling

    def _plan_look(self, now_s: float) -> None:
        """The next look, and the glances that it and those after it will be made of."""
        look_s = self.scaler.next_s(now_s)
        self._event(look_s, _LOOK)
        delay_s = self.scenario.delay_s
        while self.glanced_s - delay_s <= look_s:
            self.glanced_s = self.scaler.next_s(self.glanced_s)
            self._event(max(now_s, self.glanced_s - delay_s), _GAUGES)

    def _look(self, now_s: float) -> None:
        """The scaler looks, decides, and the count is changed."""
        if self.progress:
            self.progress(now_s / self.scenario.horizon_s)
        self._drop_timed_out(now_s)
        self._advance(now_s)
        count = len(self.ready) + len(self.starting)
        fleet = self.eyes.fleet(now_s, self.ready, self.starting, self.draining, len(self.held))
        choice = self.scaler.decide(fleet)
        changed = choice.replicas != count
        last_s = self.moments[-1].time_s if self.moments else -NEVER
        if changed or now_s - last_s >= self.scenario.period_s:
            inflight = sum(self.outstanding)
            shape = (len(self.ready), len(self.starting), len(self.draining))
            words = choice.words if changed else ""
            self.moments.append(
                Moment(now_s, count, choice.replicas, *shape, inflight, len(self.held), choice.reason, words)
            )
        if changed:
            self.changes += 1
            self._scale(count, choice.replicas, now_s)
        self._plan_look(now_s)

    def _scale(self, count: int, replicas: int, now_s: float) -> None:
        self.peak = max(self.peak, replicas)
        for _ in range(count, replicas):
            self._add(now_s, self.scenario.cold_start.draw(self.random))
        for _ in range(replicas, count):
            self._leave(now_s)
        self._index()
        self._advance(now_s)

    def _leave(self, now_s: float) -> None:
        """One replica leaves: a starting one (the youngest) if there is one, else the one that is cheapest to lose."""
        if self.starting:
            replica = self.starting.pop()
            span = self.spans[replica.number]
            span.left_s = span.ended_s = now_s
            return
        if self.scenario.victim == "random":
            replica = self.random.choice(self.ready)
        else:
            replica = min(self.ready, key=attrgetter("outstanding"))
        self.ready.remove(replica)
        self.draining.append(replica)
        self.spans[replica.number].left_s = now_s
        if self.scenario.grace_s < NEVER:
            self._event(now_s + self.scenario.grace_s, _GRACE, replica)

    def _result(self) -> Run:
        for span in self.spans.values():
            span.ended_s = min(span.ended_s, self.scenario.horizon_s)
        return Run(
            horizon_s=self.scenario.horizon_s,
            first_s=self.book.first_s,
            done_s=self.book.done_s,
            fate=self.fate,
            moments=self.moments,
            spans=list(self.spans.values()),
            peak_replicas=self.peak,
            scale_events=self.changes,
        )
