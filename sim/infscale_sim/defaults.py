"""What a scenario says for every policy: bounds, behaviour, the sync grid, the lookahead's fit and the cooldown.

A part of `infscale_sim.scenario.Scenario`, for `infscale_sim.policies`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from infscale.core.scaling import Fit
from infscale.core.settings import Value

MOST_REPLICAS = 10_000
"""More of them are not simulated: each is looked at for every request."""
SAME_S = 1e-7
"""Instants of a grid that are meant to be one differ by less, for rounding."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """See the module.

    Attributes:
        min_replicas, max_replicas: the bounds.
        behavior: the HPA's behaviour by the keys of the policy grammar, short keys spread.
        first_s, period_s: when the scaler looks.
        fit, fit_samples: of a lookahead.
        cooldown_s: idleness before zero.
    """

    min_replicas: int
    max_replicas: int
    behavior: Mapping[str, Value]
    first_s: float
    period_s: float
    fit: Fit
    fit_samples: int | None
    cooldown_s: float

    def next_sync_s(self, now_s: float) -> float:
        """The first sync after now."""
        if now_s < self.first_s:
            return self.first_s
        return self.first_s + (math.floor((now_s - self.first_s + SAME_S) / self.period_s) + 1) * self.period_s
