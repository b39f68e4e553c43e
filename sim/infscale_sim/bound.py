"""What no schedule can beat: a lower bound on the replica-minutes of every run that keeps within a budget of misses.

`infscale simulate` prints it beside the oracle. It holds for every number of replicas at any time, at the start too,
which cost nothing before the run; for every balancing; and for decisions at every instant.

Why it holds. Level k is the set of times at which at least k replicas are ready or draining. Replica-time is at least
the sum of the lengths of all levels, and a whole cold start, billed too, for each time that a level goes on after the
start: each such time is another replica that gets ready. So the sum over the levels of the cheapest set of times that
meets what `infscale_sim.demand` says of that level, each by itself, is a lower bound. The budget of misses is given to
every level whole. Within a level it is priced (a Lagrangian relaxation): for every price of a miss, the least cost with
that price on each miss, less the price of the whole budget, is a lower bound; the best of some prices is taken.

A second bound is the work alone. Take the requests that arrive at least T before the horizon, without the largest that
may miss: W seconds of work. A replica is billed for at least the work that it does. What it leaves undone at the
horizon is at most D, the decode of as many requests as it has slots; and if it leaves any, it was busy, and billed, for
at least m = T - SLO. With u such replicas the cost is at least max(W - u D, u m), so at least W m / (m + D).
"""

from __future__ import annotations

import math
from bisect import bisect_right

from infscale_sim.demand import Demand
from infscale_sim.distribution import Delay
from infscale_sim.levels import needed_levels
from infscale_sim.scenario import Scenario
from infscale_sim.traffic import Requests

CELLS = 20_000
"""The most cells of the grid; a longer run has longer ones, and a weaker bound."""


def allowed_misses(requests: Requests, budget_percent: float) -> int:
    """How many requests may miss."""
    return math.floor(len(requests) * budget_percent / 100 + 1e-9)


def bound_minutes(scenario: Scenario, demand: Demand, misses: int) -> float:
    """Replica-minutes that every run needs that misses at most so many, beside those that miss always.

    Args:
        scenario: what is run.
        demand: of its requests, as `demand_of` makes it.
        misses: how many.
    """
    start_s = least_s(scenario.cold_start)
    budget = max(0, misses - demand.impossible)
    levels_s = _levels_s(demand, start_s, budget) if start_s >= demand.cell_s else 0.0
    return max(levels_s, _work_s(demand, scenario.slo.ttft_s, budget)) / 60


def demand_of(scenario: Scenario, requests: Requests) -> Demand:
    """The demand on a grid of seconds or of a twentieth of a cold start, unless the run is long."""
    cell_s = min(1.0, least_s(scenario.cold_start) / 20 or 1.0)
    return Demand(scenario, requests, max(scenario.horizon_s / CELLS, cell_s))


def least_s(delay: Delay) -> float:
    """The shortest that a delay can be."""
    return delay.least if delay.is_random else delay.mean


def _levels_s(demand: Demand, start_s: float, budget: int) -> float:
    total_s = 0.0
    for level in needed_levels(demand, start_s, budget):
        cost_s = level.cheapest().cost_s
        if cost_s == 0:
            break
        total_s += cost_s
    return total_s


def _work_s(demand: Demand, ttft_s: float, budget: int) -> float:
    """The bound by the work alone, for the best of some T."""
    best_s = 0.0
    for before_s in (10, 30, 100, 300, 1000, 3000, 10_000):
        last_s = demand.horizon_s - ttft_s - before_s
        counted = sorted(demand.works[: bisect_right(demand.arrival_s, last_s)])
        work_s = math.fsum(counted[: max(0, len(counted) - budget)])
        best_s = max(best_s, work_s * before_s / (before_s + demand.decode_left_s))
    return best_s
