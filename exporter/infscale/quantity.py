"""A quantity of Kubernetes (`24`, `0.05`, `500m`, `2k`, `1Gi`, `1e3`) as an exact number.

Called by `kube.fields` for what the API says, and by `policy_yaml` for what a policy says in text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(m|u|n|k|M|G|T|P|E|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?")
_SUFFIX: Mapping[str | None, Decimal] = {
    None: Decimal(1),
    **{letter: Decimal(1000) ** -power for power, letter in enumerate("mun", 1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


def quantity(text: str) -> Decimal | None:
    """The number that a quantity is; None where the text is none.

    Source: apimachinery pkg/api/resource/quantity.go, its grammar: a suffix or an exponent, not both.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, suffix = match.groups()
    unit = _SUFFIX.get(suffix)
    return Decimal(number) * (Decimal(f"1{suffix}") if unit is None else unit)
