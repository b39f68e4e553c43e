"""Which of a workload's sidecars evaluate, so that the reads grow with the replicas and not with their square.

Called by the sidecar with the names that its source lists. A query takes `max()` over those that speak.
"""

from __future__ import annotations

from collections.abc import Iterable

SPEAKERS = 3
"""Two may be lost at once before nobody evaluates."""


def speaks(me: str, names: Iterable[str], speakers: int = SPEAKERS) -> bool:
    """Whether `me` is among the first `speakers` of the sorted names.

    A name that is not listed yet (its address is new) stands where it will stand: only those before it count.
    """
    return sum(name < me for name in set(names)) < speakers
