"""What comes out: each step's value with its reason in words, and the decision that they add up to.

The steps of the core make these; the roles print and publish them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why the count is what it is: the closed list of `infscale_decision_reason`."""

    METRIC = "metric"
    TOLERANCE = "tolerance"
    STABILISED = "stabilised"
    RATE_LIMITED = "rate_limited"
    MIN = "min"
    MAX = "max"
    NO_SAMPLES = "no_samples"
    PARTIAL_SAMPLES = "partial_samples"
    ACTIVATE_FROM_ZERO = "activate_from_zero"
    IDLE_TO_ZERO = "idle_to_zero"
    COOLDOWN = "cooldown"
    LOOKAHEAD = "lookahead"
    GUARD = "guard"
    DISABLED = "disabled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Proposal:
    """What one metric asks for.

    Attributes:
        replicas: the count it proposes; may be negative for a negative value, the evaluation begins at 0.
        within: whether the ratio was within the tolerance, so that the count is kept.
        words: how it came to be, with the numbers.
        usage_milli: the current value as the HPA reports it: the sum for Value, per Pod for averages.
        utilization_percent: of the requests, for Utilization.
    """

    replicas: int
    within: bool
    words: str
    usage_milli: int
    utilization_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a metric proposes nothing: NO_SAMPLES where nothing was measured, else ERROR; and in words."""

    reason: Reason
    words: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as the HPA would show it in its status."""

    type: str
    status: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """What one step made of the count.

    Attributes:
        name: `zero`, `bounds`, `metrics`, `stabilise`, `limit`, or one of those that `layer.decide` adds.
        before, after: the count going in and coming out.
        reason: why it changed the count or, where it did not, why it holds it; None where it has nothing to say.
        words: the same for a person, with the numbers.
    """

    name: str
    before: int
    after: int
    reason: Reason | None
    words: str


@dataclass(frozen=True, slots=True)
class Decision:
    """How many replicas, and why.

    Attributes:
        current: the count that was asked for before (spec replicas).
        replicas: the count to ask for now.
        proposal: what the metrics propose, before stabilisation and limits; None where none was looked at or counts.
        reason: see `reason_of`.
        steps: what each step made of the count, in order.
        conditions: as the HPA would show them.
    """

    current: int
    replicas: int
    proposal: int | None
    reason: Reason
    steps: tuple[Step, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def direction(self) -> str:
        """`up`, `down` or `none`."""
        if self.replicas == self.current:
            return "none"
        return "up" if self.replicas > self.current else "down"

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if the HPA would have set one."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


def reason_of(steps: tuple[Step, ...]) -> Reason:
    """The one reason for the result of some steps.

    Leaving zero is its own reason. Otherwise it is that of the last step that changed the count; if none did, of the
    last that holds it; and if none holds it, the metric itself asks for just the count that is there.
    """
    if steps and steps[0].before == 0 and steps[-1].after > 0:
        return Reason.ACTIVATE_FROM_ZERO
    changing = [step.reason for step in steps if step.reason is not None and step.after != step.before]
    holding = [step.reason for step in steps if step.reason is not None]
    return (changing or holding or [Reason.METRIC])[-1]
