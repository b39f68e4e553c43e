"""The demo's time and its load: half an hour of a cluster in two minutes, with a burst in it.

What takes a fixed time in a cluster (the evaluations, a cold start, the scale-down window, the settling of a drain) is
shortened by one factor. Requests are not: they are short ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from infscale.drain.options import SETTLE_S
from infscale.evaluator import INTERVAL_S
from infscale_sim.traffic import Lengths, Process, Rate, Request, synthetic

SECONDS = 120.0
SHORTEST_S = 20.0
"""The engines' processes need seconds to start, whatever the time they stand for."""

_CLUSTER_S = 1800.0
_COLD_START_S = 75.0
_DOWN_WINDOW_S = 300.0
"""The HPA's default."""

SLOTS, FIRST_TOKEN_S, INTER_TOKEN_S = 8, 0.25, 0.05
"""Of each engine: a request takes 2.2 s on average, so a replica does 3.6 a second."""
OUTPUT_TOKENS = Lengths("uniform", least=20, most=60)
PROMPT_TOKENS = Lengths("uniform", least=20, most=200)

MIN_REPLICAS, MAX_REPLICAS = 2, 5
TARGET = 6
"""Requests per replica: three quarters of its slots, as `infscale load --sweep` advises."""

_QUIET, _BURST = 2.0, 10.0
_SHAPE = ((0.0, _QUIET), (0.12, _QUIET), (0.17, _BURST), (0.5, _BURST), (0.55, _QUIET), (0.95, _QUIET))
"""Share of the demo's time, requests a second."""
_SEED = 1


@dataclass(frozen=True)
class Pace:
    """A demo's time.

    Attributes:
        seconds: how long it takes, about.
    """

    seconds: float = SECONDS

    @property
    def factor(self) -> float:
        """Seconds of a cluster in a second of the demo."""
        return _CLUSTER_S / self.seconds

    @property
    def interval_s(self) -> float:
        """From evaluation to evaluation."""
        return max(0.5, INTERVAL_S / self.factor)

    @property
    def line_s(self) -> float:
        """From line to line of the table."""
        return max(0.5, self.seconds / 60)

    @property
    def cold_start_s(self) -> float:
        """From a replica's creation to its first request."""
        return _COLD_START_S / self.factor

    @property
    def down_window_s(self) -> int:
        """How long the count must be too high before it falls; the policy takes whole seconds."""
        return max(1, round(_DOWN_WINDOW_S / self.factor))

    @property
    def settle_s(self) -> float:
        """From taking a replica out of the balancer to the drain's first read."""
        return SETTLE_S / self.factor

    @property
    def policy(self) -> str:
        """What the recommender is told, in the grammar."""
        return f"queue:{TARGET},min={MIN_REPLICAS},max={MAX_REPLICAS},downwindow={self.down_window_s}"

    @property
    def _rate(self) -> Rate:
        return Rate([(share * self.seconds, rate) for share, rate in _SHAPE])

    def rate_at(self, elapsed_s: float) -> float:
        """Requests a second that are sent then."""
        return self._rate.at(elapsed_s)

    def arrivals(self) -> Iterator[Request]:
        """The requests of the demo, the same each time."""
        return synthetic(self._rate, Process("poisson"), PROMPT_TOKENS, OUTPUT_TOKENS, self.seconds, _SEED)

    def words(self) -> str:
        """What is shortened, in a line."""
        return (
            f"Time runs {self.factor:.0f} times faster than in a cluster: an evaluation every {self.interval_s:.2g} s "
            f"({INTERVAL_S:.0f} s there), a cold start of {self.cold_start_s:.2g} s ({_COLD_START_S:.0f} s), "
            f"a scale-down window of {self.down_window_s} s ({_DOWN_WINDOW_S:.0f} s)."
        )
