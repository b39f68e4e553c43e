"""What a run's requests demand of any schedule: where fewer than so many replicas cannot do for a while.

`infscale_sim.bound` needs this as a proof, `infscale_sim.oracle` as a first guess. Both look at the replicas by
levels: level k is the time during which at least k replicas are ready or draining. While it is off, at most k - 1 are.

The facts, each of them true of every schedule in `infscale_sim.cluster`:

- A prefill takes prompt x `prefill_token_s`, and nothing else goes on meanwhile; in chunks, that much is added to the
  steps that it shares. A decode step takes `weights_step_s` + `token_step_s` x the context of all that run, which are
  at most `slots`. So a request's share of a step is at least `weights_step_s` / slots + `token_step_s` x its own
  context. Its prefill and its shares of all its steps are its *work*: r replicas do at most r seconds of it per second.
- A request that does not miss has its first token within the SLO. So of those that arrive in [s, e - SLO], with at
  most r replicas in [s, e], all prefill is done by e, in at most r (e - s) seconds.
- By e each of them is finished or admitted. On one replica at most `slots` are admitted and unfinished (preempted ones
  stand before the queue, so nothing new is admitted while they wait). So their work, less the decode of the r x `slots`
  longest, is at most r (e - s) too.
- Without a replica none of them gets a first token.

A window [s, e] in which one of these fails needs level r + 1, unless enough of its requests miss: d misses take away
at most the d largest works.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from copy import copy
from itertools import accumulate
from operator import add

from infscale_sim.scenario import Scenario
from infscale_sim.traffic import Requests

_TINY_S = 1e-6
"""More than a run's rounding of a time to first token (`infscale_sim.metrics`)."""
_TINY = 1e-7
"""More than the rounding of sums of weights."""


class _Weight:
    """One way to weigh requests: sums in the order of arrival, and the most weight that so many misses take away."""

    def __init__(self, weights: Sequence[float], allowance: float = 0.0) -> None:
        self.sums = array("d", accumulate(weights, initial=0.0))
        self.dropped = array("d", accumulate(sorted(weights, reverse=True), initial=0.0))
        self.allowance = allowance


class Demand:
    """The windows of a run's requests, on a grid of equal cells.

    Args:
        scenario: with the replica, the SLO and the horizon.
        requests: of the run.
        cell_s: the length of a cell; the last may reach beyond the horizon.

    Attributes:
        impossible: requests that miss under every schedule; they demand nothing.
        arrival_s: when all others arrive.
        works: their work in seconds.
        decode_left_s: the most decode work that the requests on one replica can have left.
        cells: how many there are.
    """

    def __init__(self, scenario: Scenario, requests: Requests, cell_s: float) -> None:
        hardware = scenario.hardware
        self.horizon_s, self.ttft_s, self.cell_s = scenario.horizon_s, scenario.slo.ttft_s, cell_s
        self.cells = math.ceil(self.horizon_s / cell_s)
        prefills, decodes, arrivals = array("d"), array("d"), array("d")
        share_s = hardware.weights_step_s / hardware.slots
        for arrival_s, prompt, output in zip(
            requests.arrival_s, requests.prompt_tokens, requests.output_tokens, strict=True
        ):
            prefill_s = prompt * hardware.prefill_token_s
            late = prefill_s > self.ttft_s + _TINY_S or arrival_s + prefill_s > self.horizon_s + _TINY_S
            if late or prompt + output > hardware.kv_tokens:
                continue
            steps = output - 1
            own_tokens = steps * (prompt + 1) + steps * (steps - 1) / 2
            prefills.append(prefill_s)
            decodes.append(steps * share_s + hardware.token_step_s * own_tokens)
            arrivals.append(arrival_s)
        self.impossible = len(requests) - len(arrivals)
        self.arrival_s = arrivals
        self.works = array("d", map(add, prefills, decodes))
        self.decode_left_s = math.fsum(heapq.nlargest(hardware.slots, decodes))
        self._count = _Weight(array("d", [1.0]) * len(arrivals))
        self._weights = (_Weight(self.works, self.decode_left_s), _Weight(prefills))
        self._points_s = [index * cell_s for index in range(self.cells + 1)]
        self._before = [bisect_left(arrivals, point_s) for point_s in self._points_s]
        self._tighten(0.0)

    def with_margin(self, margin: float) -> Demand:
        """A demand that is larger than what is certain: a guess at what suffices.

        Work is larger by that share, and what may be left at the end of a window and the time to the first token count
        less, down to nothing at 0.25.
        """
        other = copy(self)
        other._tighten(margin)
        return other

    def _tighten(self, margin: float) -> None:
        self._slower, self._slack = 1 + margin, max(0.0, 1 - 4 * margin)
        slack_s = (self.ttft_s + _TINY_S) * self._slack
        # A point beyond the horizon ends no window: nothing more is due at it than at the horizon.
        ends_s = [min(point_s, self.horizon_s) - slack_s for point_s in self._points_s]
        self._due = [bisect_right(self.arrival_s, end_s) for end_s in ends_s]

    def ends(self, level: int, misses: int) -> list[int]:
        """By grid point and -1, until where that level may be off if it goes off after that point.

        Args:
            level: from 1 up.
            misses: how many requests may miss on the way.

        Returns:
            At index a + 1, for a from -1 to `cells`, the first grid point e such that some window [s, e] with s > a
            needs the level; `cells` + 1 where there is none.
        """
        weights = (self._count,) if level == 1 else self._weights
        found = [self.cells + 1] * (self.cells + 2)
        for weight in weights:
            for end, start in self._windows(weight, level - 1, misses):
                found[start] = min(found[start], end)
        # A gap that goes off at a (index a + 1) holds the windows that start at a + 1 or later.
        for index in range(self.cells, -1, -1):
            found[index] = min(found[index], found[index + 1])
        return found

    def _windows(self, weight: _Weight, others: int, misses: int) -> list[tuple[int, int]]:
        """The shortest windows (end, start) that so many replicas cannot do, one for each end."""
        sums, dropped = weight.sums, weight.dropped[min(misses, len(weight.dropped) - 1)]
        capacity = others * self.cell_s / self._slower
        allowed = others * weight.allowance * self._slack / self._slower + dropped + _TINY
        windows = []
        # Starts that may be the last one with little enough before it: later ones have more.
        starts: list[int] = []
        levels: list[float] = []
        for point, (before, due) in enumerate(zip(self._before, self._due, strict=True)):
            height = sums[due] - capacity * point - allowed
            index = bisect_left(levels, height)
            if index:
                windows.append((point, starts[index - 1]))
            level = sums[before] - capacity * point
            while levels and levels[-1] >= level:
                levels.pop()
                starts.pop()
            levels.append(level)
            starts.append(point)
        return windows
