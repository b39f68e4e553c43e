"""What is asked of infscale: the HPA's policy and, around it, what the HPA does not model. The policy grammar makes it.

With nothing asked for beyond metrics, bounds and behaviour, a `ScalePolicy` decides as the HPA layer does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from infscale.core.numbers import MAX_INT32
from infscale.core.policy import Behavior, Controller


class MetricName(StrEnum):
    """What may be scaled on."""

    QUEUE = "queue"
    WAITING = "waiting"
    RUNNING = "running"
    KV = "kv"
    CPU = "cpu"
    TTFT = "ttft"
    WORK = "work"


@dataclass(frozen=True, slots=True)
class Goal:
    """One metric and its target.

    Attributes:
        metric: what is measured.
        target: requests per replica (queue, waiting, running), percent (kv, cpu), seconds (ttft), tokens per second per
            replica (work); None: `work:learned`, the capacity is learned.
    """

    metric: MetricName
    target: float | None


AUTO = -1.0
"""A lookahead as long as the measured cold starts."""


class Fit(StrEnum):
    """How the slope of past demand is fitted for a lookahead."""

    THEIL_SEN = "theil_sen"
    LEAST_SQUARES = "least_squares"


@dataclass(frozen=True, slots=True)
class ScalePolicy:
    """All that the core is asked for.

    Attributes:
        goals: at least one; the largest valid proposal wins.
        min_replicas, max_replicas: the bounds, both included.
        behavior: the HPA's `behavior` with windows, policies and tolerances; None where none of them is set.
        controller: version and flags of the controller that is matched.
        plain: `hpa:` in front: the HPA layer alone, silent replicas are not filled in and coverage is not looked at.
        lookahead_s: how far ahead demand is projected; 0 off, AUTO as long as the measured cold starts.
        cooldown_s: idleness before zero; None: the larger of 300 s and three cold starts.
        coverage: below this share of expected replicas with a value the count is held, 0 to 1.
        guard: the share of the knee rate that the replicas left may carry after a scale-down (0.85 is usual); None off.
        knee: tokens per second that one replica carries; None: learned, where `guard` or `work` need it.
        prompt_weight: what a prompt token counts beside a generated one.
        quantile: of `ttft`, 0 to 1.
        fit, fit_samples: how a lookahead's slope is fitted, and to at most how many of the last samples (None: all of
            the window). The grammar leaves them as they are; a scenario of the simulator may not.
    """

    goals: tuple[Goal, ...]
    min_replicas: int = 1
    max_replicas: int = MAX_INT32
    behavior: Behavior | None = None
    controller: Controller = field(default_factory=Controller)
    plain: bool = False
    lookahead_s: float = 0.0
    cooldown_s: float | None = None
    coverage: float = 0.5
    guard: float | None = None
    knee: float | None = None
    prompt_weight: float = 0.1
    quantile: float = 0.95
    fit: Fit = Fit.THEIL_SEN
    fit_samples: int | None = None
