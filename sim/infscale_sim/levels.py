"""When each level of replicas is on at the least cost: the gaps that pay, by a dynamic programme over the grid.

A level is on but for gaps. A gap saves its length and costs a cold start where the level goes on again, and a price for
each request that it makes miss. `infscale_sim.bound` sums the cheapest levels, `infscale_sim.oracle` starts from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from infscale_sim.demand import Demand

_ROUNDS = 14
_LEAST_PRICE_S = 1e-3


@dataclass(frozen=True, slots=True)
class Level:
    """A level at its least cost for a budget of misses.

    Attributes:
        cost_s: a lower bound on what any set of times costs that meets the demand within the budget.
        spans: (from, to) in grid points, where the cheapest is on; those of the best price.
    """

    cost_s: float
    spans: tuple[tuple[int, int], ...]


class LevelCosts:
    """A level of a demand, and what it costs for a price of a miss.

    A gap from x to y holds all windows between the grid points inside it. With the cell of x in front of them and that
    of y behind, it is at most two cells longer, and so much is given to it: it goes off at the last grid point before x
    and on at the last one up to y, and one cell is taken off its cost. Of all gaps that start at a point and may miss
    so many, only the longest need be looked at, since what is left to do never grows with time.

    Args:
        demand: of the run.
        level: from 1 up.
        start_s: what going on again costs; at least a cell.
        budget: how many requests may miss.
    """

    def __init__(self, demand: Demand, level: int, start_s: float, budget: int) -> None:
        self.cells, self.cell_s, self.start_s, self.budget = demand.cells, demand.cell_s, start_s, budget
        # Gaps with from `least` to `most` misses are as long as those with `most`, and pay for `least`.
        self.options = [(least, demand.ends(level, most)) for least, most in _steps(budget)]

    @property
    def is_needed(self) -> bool:
        """Whether there is any window that needs the level when nothing may miss; if not, none needs a higher one."""
        return self.options[0][1][0] <= self.cells

    def cheapest(self) -> Level:
        """The best price of a miss by halving: the cost for a price, less the price of all misses, is concave in it."""
        if self.budget == 0:
            cost_s, _, spans = self.priced(0.0)
            return Level(max(0.0, cost_s), spans)
        low_s, high_s = _LEAST_PRICE_S, self.cells * self.cell_s + self.start_s
        best = Level(0.0, ())
        for _ in range(_ROUNDS):
            price_s = math.sqrt(low_s * high_s)
            cost_s, misses, spans = self.priced(price_s)
            if cost_s - price_s * self.budget > best.cost_s:
                best = Level(cost_s - price_s * self.budget, spans)
            if misses > self.budget:
                low_s = price_s
            else:
                high_s = price_s
        return best

    def priced(self, price_s: float) -> tuple[float, int, tuple[tuple[int, int], ...]]:
        """The least cost with that price of a miss, the misses that it pays for, and when it is on."""
        cells, cell_s = self.cells, self.cell_s
        options = [(price_s * misses, misses, ends) for misses, ends in self.options]
        to_go = [0.0] * (cells + 1)
        chosen = [0] * (cells + 1)  # where it goes on again; 0: it stays on
        missed = [0] * (cells + 1)
        for point in range(cells - 1, -2, -1):
            # Point -1 stands for a level that is off from the start.
            best, choice, misses = (to_go[point + 1] + cell_s, 0, 0) if point >= 0 else (to_go[0], 0, 0)
            for price, lost, ends in options:
                end = ends[point + 1]
                cost = price if end > cells else price + self.start_s - cell_s + to_go[end - 1]
                if cost < best or (cost == best and point < 0):
                    best, choice, misses = cost, end, lost
            if point < 0:
                return best, *self._path(choice, misses, chosen, missed)
            to_go[point], chosen[point], missed[point] = best, choice, misses
        raise AssertionError("the loop ends with the start")

    def _path(
        self, first: int, misses: int, chosen: list[int], missed: list[int]
    ) -> tuple[int, tuple[tuple[int, int], ...]]:
        spans: list[tuple[int, int]] = []
        if first > self.cells:
            return misses, ()
        since = point = max(0, first - 1)
        while point < self.cells:
            end = chosen[point]
            if end == 0:
                point += 1
                continue
            spans.append((since, point + 1))
            misses += missed[point]
            if end > self.cells:
                return misses, tuple(spans)
            since = point = end - 1
        spans.append((since, self.cells))
        return misses, tuple(spans)


def needed_levels(demand: Demand, start_s: float, budget: int) -> Iterator[LevelCosts]:
    """The levels that any window needs, from 1 up; for the arguments see `LevelCosts`."""
    level = 1
    while (costs := LevelCosts(demand, level, start_s, budget)).is_needed:
        yield costs
        level += 1


def _steps(budget: int) -> Iterator[tuple[int, int]]:
    """Ranges of misses from 0 to the budget, each about a fifth wide."""
    least = 0
    while least <= budget:
        most = min(budget, least + max(0, least // 5))
        yield least, most
        least = most + 1
