"""First guesses at a good schedule: when the cheapest levels for a demand are on, decided a cold start before.

`infscale_sim.oracle` starts from them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, islice

from infscale_sim.demand import Demand
from infscale_sim.levels import LevelCosts, needed_levels
from infscale_sim.scenario import Scenario
from infscale_sim.schedule import Counts, spans, syncs


class Guesses:
    """The guesses for a demand.

    Args:
        scenario: what is run.
        demand: of its traffic; with a margin, so that the schedule suffices.
        budget: the most requests that may miss in a gap.
    """

    def __init__(self, scenario: Scenario, demand: Demand, budget: int) -> None:
        self.scenario = scenario
        self.times_s = syncs(scenario)
        start_s = max(demand.cell_s, scenario.cold_start.typical_s)
        self.levels: Sequence[LevelCosts] = list(
            islice(needed_levels(demand, start_s, budget), scenario.defaults.max_replicas)
        )

    def at(self, price_s: float) -> Counts:
        """The count at each sync such that in every cell as many are ready as levels are on, for a price of a miss."""
        spans_by_level = [level.priced(price_s)[2] for level in self.levels]
        steps = [0] * (len(self.times_s) + 1)
        ahead_s = self.scenario.cold_start.typical_s
        for level, found in enumerate(self._nested(spans_by_level), start=1):
            for first_s, until_s in _joined(found, ahead_s):
                is_there = first_s == 0 and level <= self.scenario.start
                first = 0 if is_there else max(0, bisect_right(self.times_s, first_s - ahead_s) - 1)
                steps[first] += 1
                steps[max(first, bisect_left(self.times_s, until_s))] -= 1
        return tuple(accumulate(steps[:-1]))

    def _nested(self, spans_by_level: Sequence[Sequence[tuple[int, int]]]) -> list[list[tuple[float, float]]]:
        """The same counts as levels of which each lies within the one below, in seconds."""
        if not self.levels:
            return []
        cells, cell_s = self.levels[0].cells, self.levels[0].cell_s
        changes = [0] * (cells + 1)
        for first, until in (span for found in spans_by_level for span in found):
            changes[first] += 1
            changes[until] -= 1
        ready = list(accumulate(changes[:-1]))
        return [
            [(first * cell_s, until * cell_s) for first, until in spans(ready, level)]
            for level in range(1, max(ready) + 1)
        ]


def _joined(found: Sequence[tuple[float, float]], gap_s: float) -> list[tuple[float, float]]:
    """Spans without the gaps that are too short to start again in."""
    joined: list[tuple[float, float]] = []
    for first_s, until_s in found:
        if joined and first_s - joined[-1][1] < gap_s:
            joined[-1] = (joined[-1][0], until_s)
        else:
            joined.append((first_s, until_s))
    return joined
