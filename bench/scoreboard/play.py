"""One policy on one case, and the oracle on it: everything that is simulated. Runs in processes of its own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from bench.scoreboard.cases import Case
from bench.scoreboard.menu import Entry
from bench.scoreboard.troubles import Troubled
from infscale_sim import oracle
from infscale_sim.book import NEVER
from infscale_sim.cluster import Cluster
from infscale_sim.knee import knee_tokens_per_s
from infscale_sim.metrics import missed, percentile, ttft_s
from infscale_sim.outcome import Fate, Run
from infscale_sim.policies import Core, scaler_of
from infscale_sim.simulate import BUDGET_PERCENT
from infscale_sim.traffic import Requests


@dataclass(frozen=True, slots=True)
class Score:
    """What a policy came to.

    Attributes:
        requests, misses: how many; a rejected, cut or unanswered request is a miss.
        replica_minutes: loading and draining replicas included.
        ttft_p50_s, ttft_p95_s, ttft_p99_s: None without any first token.
        peak, events: the largest count, and how often it changed.
        first_up_s: when the count first rose; None where it did not.
        leaves, cut: replicas that left while they served, and requests that were cut on them.
        held, held_p50_s, held_p95_s, held_most_s: requests that met no ready replica, and how long for one.
    """

    requests: int
    misses: int
    replica_minutes: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    peak: int
    events: int
    first_up_s: float | None
    leaves: int
    cut: int
    held: int
    held_p50_s: float | None
    held_p95_s: float | None
    held_most_s: float | None

    @property
    def miss_percent(self) -> float:
        """Misses of all requests."""
        return 100 * self.misses / self.requests if self.requests else 0.0

    @property
    def is_within(self) -> bool:
        """Whether it keeps within the budget of misses."""
        return self.miss_percent <= BUDGET_PERCENT


@dataclass(frozen=True, slots=True)
class Foresight:
    """The oracle: replica-minutes within the budget of misses (None: no schedule was found), and what none can beat."""

    replica_minutes: float | None
    bound_minutes: float
    fewest_miss_percent: float


@lru_cache(maxsize=1)
def requests_of(case: Case) -> Requests:
    """The case's traffic; the last one is kept, since the policies of a case follow one another."""
    return case.requests()


def play(case: Case, entry: Entry) -> Score:
    """Simulate one policy."""
    requests, scenario = requests_of(case), case.scenario
    knee = partial(knee_tokens_per_s, scenario.hardware, requests)
    scaler = scaler_of(entry.policy, scenario.defaults, knee)
    if isinstance(scaler, Core) and scaler.policy.min_replicas == 0:
        # A sidecar tells the counters, by which the core sees activity that began and ended between two looks.
        scaler.needs = replace(scaler.needs, tokens=True)
    if entry.trouble:
        scaler = Troubled(scaler, entry.trouble, *case.trouble_s)
    return score(case, requests, Cluster(scenario, requests, scaler).run())


def foresee(case: Case) -> Foresight:
    """Ask the oracle."""
    requests = requests_of(case)
    answer = oracle.solve(case.scenario, requests, BUDGET_PERCENT)
    fewest = 100 * answer.schedule.misses / max(1, len(requests))
    return Foresight(answer.replica_minutes, answer.bound_replica_minutes, fewest)


def score(case: Case, requests: Requests, run: Run) -> Score:
    """What a run came to."""
    ordered = ttft_s(requests, run)
    waits = held_s(requests.arrival_s, run)
    ups = (moment.time_s for moment in run.moments if moment.desired > moment.replicas)
    return Score(
        requests=len(requests),
        misses=sum(missed(requests, run, case.scenario.slo)),
        replica_minutes=run.replica_minutes,
        ttft_p50_s=percentile(ordered, 0.5),
        ttft_p95_s=percentile(ordered, 0.95),
        ttft_p99_s=percentile(ordered, 0.99),
        peak=run.peak_replicas,
        events=run.scale_events,
        first_up_s=next(ups, None),
        leaves=sum(span.ready_s < span.left_s < NEVER for span in run.spans),
        cut=run.fate.count(Fate.CUT),
        held=len(waits),
        held_p50_s=percentile(waits, 0.5),
        held_p95_s=percentile(waits, 0.95),
        held_most_s=percentile(waits, 1.0),
    )


def held_s(arrival_s: Sequence[float], run: Run) -> list[float]:
    """Of the requests that met no ready replica: the seconds until there was one or the run ended, sorted."""
    waits = []
    for since_s, until_s in _gaps(run):
        first, last = bisect_right(arrival_s, since_s), bisect_right(arrival_s, until_s)
        waits += [until_s - arrival_s[request] for request in range(first, last)]
    return sorted(waits)


def _gaps(run: Run) -> list[tuple[float, float]]:
    """When no replica was ready."""
    gaps, covered_s = [], -1.0  # a request at 0 meets a replica that is ready at 0
    ready = sorted((span.ready_s, span.left_s) for span in run.spans if span.ready_s < min(span.left_s, run.horizon_s))
    for ready_s, left_s in [*ready, (run.horizon_s, NEVER)]:
        if ready_s > covered_s and ready_s > 0:
            gaps.append((covered_s, ready_s))
        covered_s = max(covered_s, left_s)
    return gaps
