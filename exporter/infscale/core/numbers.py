"""The numbers the controller computes with: thousandths as int64, ratios as float64, replicas as int32, the tolerance.

Every other module of the core uses these and does no conversion of its own, so that a result is the controller's to the
last digit: one float64 rounding per operation, in the order that the controller writes them. Kubernetes' Go code
overflows or leaves a conversion to the CPU at a few places; here every number saturates instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction

MAX_INT32 = 2**31 - 1
MIN_INT32 = -(2**31)
MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)

LONG_AGO_S = -62135596800.0
"""Go's zero time (1 January of year 1) in Unix seconds: what a time that was never set counts as, in every field."""


def int32(number: int) -> int:
    """The number, held within int32 (the controller's type for replicas and percents)."""
    return max(MIN_INT32, min(MAX_INT32, number))


def int64(number: int) -> int:
    """The number, held within int64 (the controller's type for thousandths)."""
    return max(MIN_INT64, min(MAX_INT64, number))


def to_milli(quantity: float | Decimal) -> int:
    """A quantity in thousandths, rounded up and held within int64: 2.1 is 2100, 0.0001 is 1.

    A float counts as the decimal number it prints as, as in a manifest: 16.1 is 16100, although 16.1 * 1000 is a little
    more in float64. Source: Quantity.MilliValue (apimachinery pkg/api/resource/quantity.go), which rounds up.

    Raises:
        ValueError: for NaN and infinity, which are no quantity; whoever reads a value turns that into "no value".
    """
    if isinstance(quantity, int):
        return int64(quantity * 1000)
    if not math.isfinite(quantity):
        raise ValueError(f"{quantity} is not a quantity: expected a finite number")
    exact = quantity if isinstance(quantity, Decimal) else Decimal(repr(quantity))
    return int64(int(exact.scaleb(3).to_integral_value(ROUND_CEILING)))


def milli_text(milli: int) -> str:
    """Thousandths for a person: 12000 is `12`, 8600 is `8.6`."""
    sign, whole, rest = "-" if milli < 0 else "", *divmod(abs(milli), 1000)
    return f"{sign}{whole}.{rest:03d}".rstrip("0").rstrip(".")


def ratio(dividend: float, divisor: float) -> float:
    """Division as float64 has it: x/0 is infinite and 0/0 is NaN, never an error."""
    if divisor != 0.0:
        return dividend / divisor
    if dividend == 0.0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def quotient(dividend: int, divisor: int) -> int:
    """Whole division cut toward zero, as Go has it (Python's `//` rounds -7/2 down to -4, Go's `/` gives -3)."""
    return math.trunc(Fraction(dividend, divisor))


def whole_up(number: float) -> int:
    """`ceil(number)` replicas, held within int32. The number may be infinite, not NaN.

    Source: pkg/controller/podautoscaler/replica_calculator.go, `int32(math.Ceil(x))`, at most 2^31-1.
    """
    return math.ceil(max(MIN_INT32, min(MAX_INT32, number)))


def whole_toward_zero(number: float) -> int:
    """`int(number)`: the fraction dropped, held within int32. The number may be infinite, not NaN."""
    return int(max(MIN_INT32, min(MAX_INT32, number)))


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a ratio may be from 1 without a change.

    Attributes:
        down: how far below 1.
        up: how far above 1.
        by_distance: compare `abs(1.0 - r)` as controllers up to 1.32 do, for which both are the same, instead of r with
            the two edges. The forms differ at exactly 1.1, where `abs(1.0 - 1.1)` is 0.10000000000000009 and
            `1.0 + 0.1` is 1.1.
    """

    down: float
    up: float
    by_distance: bool = False

    def within(self, usage_ratio: float) -> bool:
        """Whether the ratio is close enough to 1 to change nothing; never for NaN and infinity.

        Source: replica_calculator.go, `Tolerances.isWithin` (1.33 and newer), `math.Abs(1.0-usageRatio)` (up to 1.32).
        """
        if not math.isfinite(usage_ratio):
            return False
        if self.by_distance:
            return abs(1.0 - usage_ratio) <= self.up
        return (1.0 - self.down) <= usage_ratio <= (1.0 + self.up)
