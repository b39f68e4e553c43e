"""What a sidecar beside each replica would report, as the decision core takes it: `infscale.core.replicas.Fleet`.

`infscale_sim.cluster` glances at the gauges as early before each look as they are old in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from infscale.core.replicas import Buckets, Fleet, Held, Phase
from infscale.core.replicas import Replica as Seen
from infscale_sim.book import NEVER, Book, Gauges
from infscale_sim.replica import Replica
from infscale_sim.scenario import Scenario

TTFT_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0, NEVER),
)
"""The buckets of `vllm:time_to_first_token_seconds`. Source: vllm/v1/metrics/loggers.py."""

_SAME_S = 1e-6
"""Times that are meant to be one differ by less, for rounding."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a scaler looks at beside requests, which is not made up where nobody looks.

    Attributes:
        cpu: CPU over the request.
        tokens: the token counters.
        ttft: the histogram of the time to first token.
    """

    cpu: bool = False
    tokens: bool = False
    ttft: bool = False


class Eyes:
    """The reads of all sidecars, and from them a `Fleet`."""

    def __init__(self, scenario: Scenario, needs: Needs, book: Book) -> None:
        self.hardware, self.needs, self.book = scenario.hardware, needs, book
        self.delay_s = scenario.delay_s
        self.glances: deque[tuple[float, dict[int, Seen]]] = deque([(0.0, {})])
        self.last: dict[int, tuple[float, Gauges]] = {}
        self.buckets: dict[int, list[int]] = {}

    def glance(self, now_s: float, ready: Iterable[Replica], draining: Iterable[Replica]) -> None:
        """Read the gauges of all that serve; they were advanced to now."""
        before, self.last = self.last, {}
        glance: dict[int, Seen] = {}
        for replica in (*ready, *draining):
            gauges = replica.gauges(now_s)
            self.last[replica.number] = (now_s, gauges)
            glance[replica.number] = Seen(
                name=f"r{replica.number}",
                phase=Phase.SERVING,
                running=gauges.running,
                waiting=gauges.waiting,
                inflight=gauges.running + gauges.waiting,
                kv=gauges.kv,
                cpu_ratio=self._cpu_ratio(replica, now_s, gauges, before) if self.needs.cpu else None,
                prompt_tokens=gauges.prompt_tokens if self.needs.tokens else None,
                generation_tokens=gauges.generation_tokens if self.needs.tokens else None,
                ttft=self._ttft(replica, now_s) if self.needs.ttft else (),
                created_s=replica.created_s,
                served_s=replica.ready_s,
            )
        self.glances.append((now_s, glance))

    def fleet(
        self,
        now_s: float,
        ready: Sequence[Replica],
        starting: Sequence[Replica],
        draining: Sequence[Replica],
        held: int,
    ) -> Fleet:
        """What the scaler sees now: the last glance at the gauges, the replicas and held requests as they are."""
        while len(self.glances) > 1 and self.glances[1][0] <= now_s - self.delay_s + _SAME_S:
            self.glances.popleft()
        replicas = [self._seen(replica, Phase.SERVING) for replica in ready]
        replicas += [self._seen(replica, Phase.DRAINING) for replica in draining]
        replicas += [Seen(f"r{replica.number}", Phase.STARTING, created_s=replica.created_s) for replica in starting]
        count = len(ready) + len(starting)
        return Fleet(
            now_s=now_s,
            spec_replicas=count,
            status_replicas=count,
            ready_replicas=len(ready),
            replicas=tuple(replicas),
            held=Held(held),
        )

    def _seen(self, replica: Replica, phase: Phase) -> Seen:
        seen = self.glances[0][1].get(replica.number)
        if seen is None:  # it was not ready yet at the last glance: a new engine's page
            idle = self.hardware.cpu_ratio(0, 0) if self.needs.cpu else None
            tokens = 0.0 if self.needs.tokens else None
            seen = Seen(f"r{replica.number}", phase, 0, 0, 0, 0.0, idle, tokens, tokens)
            return replace(seen, created_s=replica.created_s, served_s=replica.ready_s)
        if phase is Phase.SERVING:
            return seen
        return Seen(seen.name, phase, seen.running, seen.waiting, seen.inflight, seen.kv, created_s=seen.created_s)

    def _cpu_ratio(
        self, replica: Replica, now_s: float, gauges: Gauges, before: dict[int, tuple[float, Gauges]]
    ) -> float:
        """The mean since the last glance, or since the replica is ready."""
        last = before.get(replica.number)
        since_s, running_s, busy_s = (last[0], last[1].running_s, last[1].busy_s) if last else (replica.ready_s, 0, 0)
        if now_s <= since_s:
            return self.hardware.cpu_ratio(0, 0)
        span_s = now_s - since_s
        return self.hardware.cpu_ratio((gauges.running_s - running_s) / span_s, (gauges.busy_s - busy_s) / span_s)

    def _ttft(self, replica: Replica, now_s: float) -> tuple[Buckets, ...]:
        """The histogram as it stands now; tokens that are booked for later stay for the next glance."""
        counts = self.buckets.setdefault(replica.number, [0] * len(TTFT_BOUNDS_S))
        later = []
        for request in replica.firsts or ():
            first_s = self.book.first_s[request]
            if first_s <= now_s:
                counts[bisect_left(TTFT_BOUNDS_S, first_s - self.book.arrival_s[request])] += 1
            else:
                later.append(request)
        replica.firsts = later
        return (Buckets(TTFT_BOUNDS_S, tuple(accumulate(counts, initial=0))[1:]),)
