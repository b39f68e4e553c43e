"""The clairvoyant answer to a scenario: what a scaler would have needed that knew every arrival before.

`solve` searches schedules of counts at the syncs, from the scenario's replicas at the start up to its maximum (its
minimum does not bind: a policy may go to zero). Each one is priced by a run of the engine itself, so the best is a
schedule that exists; `infscale_sim.bound` says how far from the optimum it may be. `infscale_sim.simulate` calls.

1. A guess: the cheapest levels for the demand (`infscale_sim.levels`), a cold start ahead, for a demand that is made
   larger until the schedule keeps within the budget, and no larger than that; with a budget of misses, then for a lower
   and lower price of a miss.
2. Local search: start later, stop earlier, leave out a peak, in steps that get smaller.

No randomness, and no clock: the work is bounded by the number of requests that are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from infscale_sim.bound import allowed_misses, bound_minutes, demand_of
from infscale_sim.demand import Demand
from infscale_sim.guess import Guesses
from infscale_sim.scenario import Scenario
from infscale_sim.schedule import Counts, Scheduled, price, spans, syncs
from infscale_sim.traffic import Requests

SIMULATED_REQUESTS = 1_000_000
"""How many requests may be simulated in a search: about ten seconds of one core."""
RUNS = (10, 2000)
"""At least and at most so many runs, however long one is."""
_MARGINS = (0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0)
_PRICES_S = (1e-3, 1e3)
_NO_MISS_S = 1e9
_STEPS = (16, 4, 1)


@dataclass(frozen=True, slots=True)
class Answer:
    """The best schedule that was found for a budget of misses, and what no schedule can beat.

    Attributes:
        replica_minutes: of the schedule; None where none was found that keeps within the budget.
        bound_replica_minutes: of a relaxation.
        schedule: the count from each sync on, what it misses and costs; the one that misses least where none was found.
    """

    replica_minutes: float | None
    bound_replica_minutes: float
    schedule: Scheduled


@dataclass
class Search:
    """The runs of one search and the best schedule for each budget.

    Attributes:
        runs: how many are left for this budget.
        all_runs: how many there are for all budgets.
        progress: called with the share of them that is done.
    """

    scenario: Scenario
    requests: Requests
    demand: Demand
    runs: int
    all_runs: int
    progress: Callable[[float], None] | None
    known: dict[Counts, Scheduled] = field(default_factory=dict)
    guesses: tuple[tuple[float, int], Guesses] | None = None

    def price(self, counts: Sequence[int]) -> Scheduled | None:
        """What a schedule misses and costs; None where no run is left to say it."""
        key = tuple(counts)
        if key not in self.known:
            if self.runs <= 0:
                return None
            self.runs -= 1
            if self.progress:
                self.progress(min(1.0, len(self.known) / self.all_runs))
            self.known[key] = price(self.scenario, self.requests, key)
        return self.known[key]

    def guess(self, margin: float, price_s: float, budget: int) -> Counts:
        """The guess for a margin of the demand and a price of a miss; the demand of the last margin is kept."""
        if self.guesses is None or self.guesses[0] != (margin, budget):
            self.guesses = (margin, budget), Guesses(self.scenario, self.demand.with_margin(margin), budget)
        return self.guesses[1].at(price_s)

    def is_within(self, counts: Counts, budget: int) -> bool:
        """Whether a schedule keeps within the budget; as far as runs are left to say it."""
        found = self.price(counts)
        return found is not None and found.misses <= budget

    def best(self, budget: int) -> Scheduled | None:
        """The cheapest so far within a budget; of equals the one with fewer misses, then with the smaller counts."""
        within = [found for found in self.known.values() if found.misses <= budget]
        return min(within, key=lambda found: (found.replica_minutes, found.misses, found.counts), default=None)

    def closest(self) -> Scheduled:
        """The schedule with the fewest misses so far, of several the cheapest."""
        return min(self.known.values(), key=lambda found: (found.misses, found.replica_minutes, found.counts))


def solve(scenario: Scenario, requests: Requests, budget_percent: float) -> Answer:
    """The answer for at most that many percent of misses."""
    return solve_all(scenario, requests, (budget_percent,))[0]


def solve_all(
    scenario: Scenario,
    requests: Requests,
    budgets_percent: Sequence[float],
    progress: Callable[[float], None] | None = None,
) -> list[Answer]:
    """The answers for several budgets, in one search: a larger one never costs more.

    Args:
        scenario: what is run.
        requests: its traffic.
        budgets_percent: of misses, rising.
        progress: called now and then with the share of the search that is done, 0 to 1.
    """
    least, most = RUNS
    runs = max(least, min(most, SIMULATED_REQUESTS // max(1, len(requests))))
    search = Search(scenario, requests, demand_of(scenario, requests), 0, runs, progress)
    answers = []
    for done, budget_percent in enumerate(budgets_percent):
        search.runs = max(1, runs * (done + 1) // len(budgets_percent) - len(search.known))
        budget = allowed_misses(requests, budget_percent)
        _first(search, budget)
        _improve(search, budget)
        found = search.best(budget)
        minutes = found.replica_minutes if found else None
        bound = bound_minutes(scenario, search.demand, budget)
        answers.append(Answer(minutes, bound, found or search.closest()))
    return answers


def _first(search: Search, budget: int) -> None:
    """Good schedules within the budget, from the demand; nothing where even everything on misses more."""
    scenario = search.scenario
    if not search.is_within((scenario.defaults.max_replicas,) * len(syncs(scenario)), budget):
        return
    low, high = 0.0, _MARGINS[-1]
    for margin in _MARGINS:
        if search.is_within(search.guess(margin, _NO_MISS_S, budget), budget):
            high = margin
            break
        low = margin
    for _ in range(3 if low < high else 0):
        middle = (low + high) / 2
        if search.is_within(search.guess(middle, _NO_MISS_S, budget), budget):
            high = middle
        else:
            low = middle
    if budget > 0:
        for margin in sorted({high, 0.0}):
            low_s, high_s = _PRICES_S
            for _ in range(7):
                price_s = math.sqrt(low_s * high_s)
                if search.is_within(search.guess(margin, price_s, budget), budget):
                    high_s = price_s
                else:
                    low_s = price_s


def _improve(search: Search, budget: int) -> None:
    """Local search from the best so far, until nothing is better or no run is left."""
    for moves in (ends, holes, ends):
        for step in _STEPS:
            while search.runs > 0 and _round(search, budget, moves, step):
                pass


Move = tuple[int, int, int]
"""From and until which sync the count is at most what."""
Moves = Callable[[Counts, int], Iterator[Move]]
"""Those of a schedule with steps of so many syncs."""


def _round(search: Search, budget: int, moves: Moves, step: int) -> bool:
    """Try every move; then make those that help, the most time saved per miss first. Returns whether one did."""
    base = search.best(budget)
    if base is None:
        return False
    helping = []
    for move in moves(base.counts, step):
        found = search.price(_moved(base.counts, move))
        if found is None:
            break
        saved = base.replica_minutes - found.replica_minutes
        if found.misses <= budget and saved > 0:
            helping.append((-saved / (max(0, found.misses - base.misses) + 0.01), move))
    current = base
    for _, move in sorted(helping):
        found = search.price(_moved(current.counts, move))
        if found is not None and found.misses <= budget and found.replica_minutes < current.replica_minutes:
            current = found
    return current is not base


def ends(counts: Counts, step: int) -> Iterator[Move]:
    """A level's span starts later, stops earlier, or is left out."""
    for level in range(max(counts, default=0), 0, -1):
        for first, until in spans(counts, level):
            yield first, until, level - 1
            if until - first > step:
                yield first, first + step, level - 1
                yield until - step, until, level - 1


def holes(counts: Counts, step: int) -> Iterator[Move]:
    """A level is off for a while within a span."""
    for level in range(max(counts, default=0), 0, -1):
        for first, until in spans(counts, level):
            for index in range(first + 1, until - step, step):
                yield index, index + step, level - 1


def _moved(counts: Counts, move: Move) -> Counts:
    first, until, most = move
    return (*counts[:first], *(min(most, count) for count in counts[first:until]), *counts[until:])
