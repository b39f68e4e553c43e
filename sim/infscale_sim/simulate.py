"""One policy on one scenario, and several side by side: `run` and `compare`.

`infscale simulate` prints the results; searches and reports call `run` with requests that they made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from infscale_sim import oracle
from infscale_sim.cluster import Cluster
from infscale_sim.knee import knee_tokens_per_s
from infscale_sim.metrics import missed, percentile, ttft_s
from infscale_sim.outcome import Run
from infscale_sim.policies import Scaler, scaler_of
from infscale_sim.scenario import Scenario
from infscale_sim.schedule import scaler_for
from infscale_sim.traffic import Requests

BUDGET_PERCENT = 1.0
"""Misses up to which a policy is compared with the oracle."""
ORACLE = "oracle"
"""The policy that runs the oracle's schedule for that budget; where none keeps within it, the one that misses least."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a policy costs and what it misses.

    Attributes:
        policy: its text.
        requests, slo_misses: how many.
        ttft_p50_s, ttft_p95_s: over the requests that got a first token; None where none did.
        replica_minutes: from the decision to the end of the drain; loading and draining replicas cost as others do.
        oracle_ratio: replica-minutes over those of the oracle; None above the budget of misses, or without an oracle.
        bound_replica_minutes: what no schedule can beat; None where it is not known.
        peak_replicas, scale_events: the largest count, and how often it changed.
        seed: None where nothing is random.
        run: all of it, request by request.
    """

    policy: str
    requests: int
    slo_misses: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    replica_minutes: float
    oracle_ratio: float | None
    bound_replica_minutes: float | None
    peak_replicas: int
    scale_events: int
    seed: int | None
    run: Run = field(repr=False, compare=False)

    @property
    def slo_miss_percent(self) -> float:
        """Misses of all requests; 0 without any request."""
        return 100 * self.slo_misses / self.requests if self.requests else 0.0

    def row(self) -> dict[str, Any]:
        """The result as `--json` prints it."""
        names = (
            *("policy", "requests", "slo_misses", "slo_miss_percent", "ttft_p50_s", "ttft_p95_s", "replica_minutes"),
            *("oracle_ratio", "bound_replica_minutes", "peak_replicas", "scale_events", "seed"),
        )
        return {name: getattr(self, name) for name in names}


def run(
    scenario: Scenario,
    policy: str,
    requests: Requests | None = None,
    answer: oracle.Answer | None = None,
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Run one policy.

    Args:
        scenario: what to run.
        policy: its text in the one grammar, or `oracle`.
        requests: those of a trace, or of the scenario where they were made before.
        answer: the oracle's, for the ratio; found where it is needed and not given.
        progress: called now and then with the share that is done, 0 to 1.

    Raises:
        PolicyError: the policy cannot be used.
    """
    if requests is None:
        requests = scenario.requests()
    if policy == ORACLE:
        answer = answer or oracle.solve(scenario, requests, BUDGET_PERCENT)
        scaler: Scaler = scaler_for(scenario, answer.schedule.counts)
    else:
        knee = partial(knee_tokens_per_s, scenario.hardware, requests) if scenario.knee_known else None
        scaler = scaler_of(policy, scenario.defaults, knee)
    done = Cluster(scenario, requests, scaler, progress).run()
    misses = sum(missed(requests, done, scenario.slo))
    ordered = ttft_s(requests, done)
    minutes = done.replica_minutes
    within = 100 * misses <= BUDGET_PERCENT * len(requests)
    return Result(
        policy=policy,
        requests=len(requests),
        slo_misses=misses,
        ttft_p50_s=percentile(ordered, 0.5),
        ttft_p95_s=percentile(ordered, 0.95),
        replica_minutes=minutes,
        oracle_ratio=minutes / answer.replica_minutes if answer and within and answer.replica_minutes else None,
        bound_replica_minutes=answer.bound_replica_minutes if answer else None,
        peak_replicas=done.peak_replicas,
        scale_events=done.scale_events,
        seed=scenario.seed if scenario.is_random else None,
        run=done,
    )


def compare(
    scenario: Scenario,
    policies: Sequence[str],
    requests: Requests | None = None,
    progress: Callable[[float], None] | None = None,
    answer: oracle.Answer | None = None,
) -> Iterator[Result]:
    """Run several policies on the same requests, one after the other.

    Args:
        scenario: what to run.
        policies: their texts; all are checked before the first runs.
        requests: those of a trace; the scenario's where not given.
        progress: called now and then with the share of all runs that is done, 0 to 1.
        answer: the oracle's for `BUDGET_PERCENT`; found first where it is not given.

    Raises:
        PolicyError: one of the policies cannot be used.
    """
    check(scenario, policies)
    if requests is None:
        requests = scenario.requests()
    if answer is None:
        answer = oracle.solve(scenario, requests, BUDGET_PERCENT)
    for done, policy in enumerate(policies):
        yield run(scenario, policy, requests, answer, _part(progress, done, len(policies)))


def check(scenario: Scenario, policies: Sequence[str]) -> None:
    """See that all policies can be used, before the first runs.

    Raises:
        PolicyError: one of them cannot.
    """
    for policy in policies:
        if policy != ORACLE:
            scaler_of(policy, scenario.defaults)


def _part(progress: Callable[[float], None] | None, done: int, runs: int) -> Callable[[float], None] | None:
    """The progress of one run as a part of that of all."""
    if progress is None:
        return None
    return lambda share: progress((done + share) / runs)
