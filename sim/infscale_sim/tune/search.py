"""A coarse grid over the space, then refinement around the best and its neighbours on the frontier.

1. Every candidate of the grid.
2. From the cheapest within the budget and the points of the frontier beside it: a step along each axis, with steps that
   get smaller; whatever is cheaper within the budget is the next to start from.
3. From the best: the target together with one other axis.
4. All the rest, where the runs that are left reach for that: what is found in a small space is its best.

Deterministic: candidates are tried in batches of one size, and a batch has to beat what was there before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from infscale_sim.tune.space import STEPS, Candidate, Space
from infscale_sim.tune.trial import Cost, Limits
from infscale_sim.tune.workers import Workers

_BATCH = 8


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate that was run to the end."""

    candidate: Candidate
    cost: Cost

    @property
    def order(self) -> tuple[Cost, Candidate]:
        """The cheaper first, of equals the one with fewer misses, then by the axes."""
        return self.cost, self.candidate


@dataclass
class Search:
    """A search under way, and what came of it.

    Attributes:
        space: what is searched.
        budget: misses over all cases that are allowed.
        runs: how many more candidates may be tried.
        tried: those that were run to the end.
        stopped: how many were given up, for certain no better than another.
        is_interrupted: whether Ctrl-C ended it.
    """

    space: Space
    budget: int
    runs: int
    tried: dict[Candidate, Tried] = field(default_factory=dict)
    seen: set[Candidate] = field(default_factory=set)
    stopped: int = 0
    is_interrupted: bool = False

    def best(self) -> Tried | None:
        """The cheapest within the budget; None where none is."""
        within = [one for one in self.tried.values() if one.cost.misses <= self.budget]
        return min(within, key=lambda one: one.order, default=None)

    def closest(self) -> Tried | None:
        """The best, or what misses least where none is within the budget; None before anything was tried."""
        least = min(self.tried.values(), key=lambda one: (one.cost.misses, one.order), default=None)
        return self.best() or least

    def frontier(self) -> list[Tried]:
        """What nothing beats in both, rising in replica-minutes and falling in misses."""
        points: list[Tried] = []
        for one in sorted(self.tried.values(), key=lambda one: one.order):
            if not points or one.cost.misses < points[-1].cost.misses:
                points.append(one)
        return points

    def leaders(self) -> list[Tried]:
        """The best and the points of the frontier on both sides of it."""
        points, best = self.frontier(), self.closest()
        at = points.index(best) if best in points else 0
        return points[at : at + 1] + points[max(0, at - 1) : at] + points[at + 1 : at + 2]


def search(
    space: Space,
    budget: int,
    workers: Workers,
    *,
    runs: int,
    progress: Callable[[Search], None] | None = None,
) -> Search:
    """Search the space.

    Args:
        space: what is searched.
        budget: misses over all cases that are allowed.
        workers: what runs a candidate.
        runs: at most so many candidates are tried.
        progress: called after each candidate.

    Returns:
        What was found; after Ctrl-C, so far.
    """
    found = Search(space, budget, runs)
    try:
        _try(found, workers, space.grid(), progress)
        for step in STEPS:
            while _try(found, workers, _around(found, step), progress):
                pass
        while (best := found.closest()) is not None:
            _try(found, workers, space.paired_moves(best.candidate), progress)
            if found.closest() == best:
                break
            while _try(found, workers, _around(found, 1), progress):
                pass
        if space.size - len(found.seen) <= found.runs:
            _try(found, workers, space.all(), progress)
    except KeyboardInterrupt:
        found.is_interrupted = True
    return found


def _around(found: Search, step: int) -> Iterable[Candidate]:
    return [move for leader in found.leaders() for move in found.space.moves(leader.candidate, step)]


def _try(
    found: Search, workers: Workers, candidates: Iterable[Candidate], progress: Callable[[Search], None] | None
) -> bool:
    """Try those that were not tried before, as far as runs are left. Returns whether there was any."""
    new = [one for one in dict.fromkeys(candidates) if one not in found.seen][: found.runs]
    for first in range(0, len(new), _BATCH):
        batch: Sequence[Candidate] = new[first : first + _BATCH]
        limits = Limits([one.cost for one in found.frontier()])
        for candidate, cost in zip(batch, workers.costs(list(map(found.space.text, batch)), limits), strict=True):
            found.seen.add(candidate)
            found.runs -= 1
            if cost is None:
                found.stopped += 1
            else:
                found.tried[candidate] = Tried(candidate, cost)
            if progress is not None:
                progress(found)
    return bool(new)


def budget_of(requests: int, percent: float) -> int:
    """How many of the requests may miss."""
    return math.floor(requests * percent / 100 + 1e-9)
