"""Quantities of Kubernetes, as its API and a policy have them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from infscale.quantity import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("24", "24"),
        ("0.05", "0.05"),
        ("-.5", "-0.5"),
        ("2.", "2"),
        ("500m", "0.5"),
        ("1500u", "0.0015"),
        ("1n", "0.000000001"),
        ("2k", "2000"),
        ("12Gi", str(12 * 2**30)),
        ("1E", str(10**18)),
        ("1E3", "1000"),
        ("1e-3", "0.001"),
    ],
)
def test_what_is_one(text, value):
    """A number with a suffix or an exponent; E is exa where no number follows."""
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "m", "5%", "1 k", "1e3k", "1ki", "1Km", "nan", "1e9999"])
def test_what_is_none(text):
    """Anything else; a suffix and an exponent together too."""
    assert quantity(text) is None
