"""What one look at one replica gave; `members` makes of it, and of what was seen before, what the replica is."""

from __future__ import annotations

from dataclasses import dataclass

from infscale.core.replicas import Phase, Replica
from infscale.reading import UNREACHABLE


@dataclass(frozen=True, slots=True)
class Sighting:
    """One look.

    Attributes:
        replica: with the phase that this look alone tells: SERVING with a value, DRAINING, else SILENT or STARTING.
        message: why it gives no value, in one line.
        served_before: the look itself tells that it was ready once, whatever it is now.
    """

    replica: Replica
    message: str = ""
    served_before: bool = False


def silent(name: str, message: str, *, state: str = UNREACHABLE, served_before: bool = False) -> Sighting:
    """A replica that was looked for and gave no value."""
    return Sighting(Replica(name, Phase.SILENT, state=state), message, served_before)
