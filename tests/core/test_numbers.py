"""Thousandths, int64, int32, float64: the numbers behave as the controller's."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.core.numbers import (
    MAX_INT32,
    MAX_INT64,
    MIN_INT32,
    MIN_INT64,
    Tolerance,
    milli_text,
    quotient,
    ratio,
    to_milli,
    whole_toward_zero,
    whole_up,
)


@pytest.mark.parametrize(
    ("quantity", "milli"),
    [
        (0, 0),
        (4, 4000),
        (2.1, 2100),
        (16.1, 16100),  # 16.1 * 1000 is 16100.000000000002 in float64
        (0.0001, 1),
        (1.0001, 1001),
        (-0.0001, 0),
        (-1.5, -1500),
        (Decimal("0.7"), 700),
        (1e300, MAX_INT64),
        (-1e300, MIN_INT64),
        (2**70, MAX_INT64),
    ],
)
def test_a_quantity_in_thousandths_is_rounded_up(quantity, milli):
    """Thousandths of the decimal number, rounded up, held within int64."""
    assert to_milli(quantity) == milli


@pytest.mark.parametrize("quantity", [math.nan, math.inf, -math.inf, Decimal("NaN")])
def test_what_is_no_number_is_refused(quantity):
    """NaN and infinity are no quantity."""
    with pytest.raises(ValueError, match="expected a finite number"):
        to_milli(quantity)


def test_three_of_a_float_quotient():
    """ceil(2.1/0.7) is 3 in thousandths, without an epsilon; in plain floats it is 4."""
    assert whole_up(ratio(float(to_milli(2.1)), float(to_milli(0.7)))) == 3
    assert math.ceil(2.1 / 0.7) == 4


@given(st.integers(MIN_INT64, MAX_INT64))
def test_thousandths_for_people_read_back(milli):
    """The text of thousandths is the same number, without trailing zeros."""
    text = milli_text(milli)
    assert Decimal(text) * 1000 == milli
    assert "." not in text or not text.endswith(("0", "."))


def test_division_by_zero_is_infinite_or_nan():
    """x/0 and 0/0 follow float64."""
    assert ratio(1.0, 0.0) == math.inf
    assert ratio(-1.0, 0.0) == -math.inf
    assert ratio(1.0, -0.0) == -math.inf
    assert math.isnan(ratio(0.0, 0.0))
    assert ratio(6.0, 4.0) == 1.5


@given(st.integers(MIN_INT64, MAX_INT64), st.integers(1, MAX_INT64))
def test_whole_division_cuts_toward_zero(dividend, divisor):
    """As Go has it: the remainder has the dividend's sign and is smaller than the divisor."""
    remainder = dividend - quotient(dividend, divisor) * divisor
    assert abs(remainder) < divisor
    assert remainder == 0 or (remainder < 0) == (dividend < 0)


@pytest.mark.parametrize(
    ("number", "up", "cut"),
    [(2.0, 2, 2), (2.1, 3, 2), (-2.5, -2, -2), (math.inf, MAX_INT32, MAX_INT32), (-1e12, MIN_INT32, MIN_INT32)],
)
def test_counts_are_whole_and_within_int32(number, up, cut):
    """Rounded up or cut, and saturated."""
    assert (whole_up(number), whole_toward_zero(number)) == (up, cut)


def test_the_two_forms_of_the_tolerance_differ_at_exactly_one_tenth_above():
    """1.1 is within by the edges (1.33 and newer) and not by the distance (up to 1.32)."""
    edges, distance = Tolerance(0.1, 0.1), Tolerance(0.1, 0.1, by_distance=True)
    assert edges.within(1.1)
    assert not distance.within(1.1)
    for usage_ratio in (0.9, 0.95, 1.0, 1.0999):
        assert edges.within(usage_ratio)
        assert distance.within(usage_ratio)
    for usage_ratio in (0.8999, 1.1001):
        assert not edges.within(usage_ratio)
        assert not distance.within(usage_ratio)


@pytest.mark.parametrize("by_distance", [False, True])
def test_the_edges_are_within(by_distance):
    """A half either way, which float64 has exactly."""
    half = Tolerance(0.5, 0.5, by_distance)
    assert half.within(0.5)
    assert half.within(1.5)
    assert not half.within(0.4999)
    assert not half.within(1.5001)


def test_each_direction_has_its_own_tolerance():
    """A wide one upwards does not widen the other."""
    tolerance = Tolerance(down=0.0, up=2.0)
    assert tolerance.within(3.0)
    assert tolerance.within(1.0)
    assert not tolerance.within(0.999)


@pytest.mark.parametrize("usage_ratio", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("by_distance", [False, True])
def test_nan_and_infinity_are_never_within(usage_ratio, by_distance):
    """Not even with a boundless tolerance."""
    assert not Tolerance(math.inf, math.inf, by_distance).within(usage_ratio)
