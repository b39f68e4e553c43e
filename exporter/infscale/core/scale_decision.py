"""What the layer answers: the count to ask for, and everything that explains it.

The roles publish it (`infscale_recommended_replicas` and the series beside it), `infscale decide` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass

from infscale.core.decision import Reason, Step
from infscale.core.replicas import Replica


@dataclass(frozen=True, slots=True)
class Counts:
    """How many replicas are in each phase."""

    serving: int = 0
    silent: int = 0
    starting: int = 0
    draining: int = 0


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """How many replicas, and why.

    Attributes:
        current: what the workload asks for now; None: not read, and then nothing is recommended.
        desired: what to ask for; None: no recommendation.
        hpa: what a plain HPA would ask for with the same input; None as `desired`.
        proposal: what the metrics propose (silent replicas filled in, demand projected), before stabilisation and
            limits; None where none was looked at or counts.
        reason: the last step that changed the number; see `decision.reason_of`.
        steps: what the HPA's metrics proposed and what each later step made of it.
        note: why there is no recommendation; else empty.
        inflight: the measured requests of replicas that are not draining, held ones included; None: nothing measured.
        demand: the same by the policy's first request metric, with silent replicas filled in; None without such a
            metric or without a value.
        projection: the demand of that metric as the lookahead projects it; None without a lookahead.
        coverage: replicas that gave a value, of those that should; 1 where none should.
        counts: replicas by phase.
        cold_starts_s: the cold starts measured by this evaluation, seconds.
        replicas: the replicas as they were seen, for whoever chooses which of them leave; filled in by the evaluator.
    """

    current: int | None
    desired: int | None
    hpa: int | None
    proposal: int | None
    reason: Reason
    steps: tuple[Step, ...]
    counts: Counts
    coverage: float
    note: str = ""
    inflight: float | None = None
    demand: float | None = None
    projection: float | None = None
    cold_starts_s: tuple[float, ...] = ()
    replicas: tuple[Replica, ...] = ()

    @property
    def direction(self) -> str:
        """`up`, `down` or `none`."""
        if self.current is None or self.desired is None or self.desired == self.current:
            return "none"
        return "up" if self.desired > self.current else "down"
