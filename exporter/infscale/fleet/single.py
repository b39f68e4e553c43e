"""The source `single`: the replica beside this sidecar is the whole workload. Only for who says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infscale.core.replicas import Fleet, Phase
from infscale.errors import SourceError
from infscale.fleet.members import Members
from infscale.fleet.peer import sighting_of_reading
from infscale.fleet.source import FleetSettings, WorkloadName

NAME = "self"


class Single:
    """One replica, read in this process.

    Its count is 1, since that is what `single` says, unless `--spec-replicas` tells another.

    Args:
        settings: workload and count are taken.
        reading: the sidecar's own reading, as its JSON has it.
    """

    def __init__(self, settings: FleetSettings, reading: Callable[[], Mapping[str, Any]]) -> None:
        self._settings, self._reading = settings, reading
        self._members = Members()

    @property
    def workload(self) -> WorkloadName:
        """See `Source`."""
        return self._settings.workload

    def observe(self, now_s: float) -> Fleet:
        """See `Source`."""
        spec = 1 if self._settings.spec_replicas is None else self._settings.spec_replicas
        try:
            told = self._reading()
        except SourceError as error:
            return Fleet(now_s, spec, replicas=self._members.missed(), failure=str(error))
        (replica,) = self._members.take([sighting_of_reading(NAME, told)], now_s)
        ready = int(replica.phase is Phase.SERVING)
        return Fleet(now_s, spec, status_replicas=1, ready_replicas=ready, replicas=(replica,))

    def names(self) -> tuple[str, ...]:
        """See `Source`."""
        return ()

    def close(self) -> None:
        """See `Source`."""
