"""What is remembered of a workload's replicas from look to look: who was ready once, who is lost, and since when.

Every source has one `Members`. "Expected are those not terminating that were ready once, whatever their
readiness now; one that gives no value is silent; one that never was ready is starting": a hole never reads as no load.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from infscale.core.replicas import Phase, Replica
from infscale.errors import SourceError
from infscale.fleet.sighting import Sighting
from infscale.reading import UNREACHABLE

log = logging.getLogger(__name__)

LOST_S = 600.0
"""How long a replica that is listed no more counts as silent. A node that is gone takes its Pods off the Service at
once, while the engines on it may well go on; after ten minutes they are not coming back."""

MAX_MEMBERS = 10_000

_NAMES_SHOWN = 5


@dataclass(slots=True)
class _Member:
    """One replica as last seen; times in Unix seconds but for `lost_since_s` (monotonic), None where unknown."""

    replica: Replica
    ready_once: bool
    created_s: float | None
    served_s: float | None = None
    lost_since_s: float | None = None


class Members:
    """The memory of one workload. Not thread-safe: one look at a time.

    Args:
        lost_s: for how long a replica that is listed no more counts as silent; 0 where the list is the truth (the API).
        limit: of replicas.
        clock: monotonic seconds, for `lost_s`: a wall clock that is set forward would forget the lost at once.
    """

    def __init__(
        self, *, lost_s: float = LOST_S, limit: int = MAX_MEMBERS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lost_s, self._limit, self._clock = lost_s, limit, clock
        self._members: dict[str, _Member] = {}
        self._looked_s: float | None = None  # the last look that worked

    def take(self, sightings: Sequence[Sighting], now_s: float, *, expected: int | None = None) -> tuple[Replica, ...]:
        """One look: what each replica is now, in the order of their names.

        Args:
            sightings: one for each replica that is listed, with or without an answer.
            now_s: Unix seconds.
            expected: how many replicas there are that are not leaving, where that is known: no more are missed than
                that. Without it a replica that left and is listed no more would be missed, beside the fewer that
                there should be, and the hole could raise the count again. One that never was ready takes nobody's
                place: until it answers, what the replica had that it stands in for is not known to be gone.

        Raises:
            SourceError: more replicas than can be held.
        """
        if len(sightings) > self._limit:
            raise SourceError(f"{len(sightings)} replicas are listed: expected at most {self._limit}")
        before = self._silent_names()
        listed = {seen.replica.name: self._step(seen, now_s) for seen in sightings}
        room = self._limit - len(listed)
        if expected is not None:
            there = sum(one.ready_once and one.replica.phase is not Phase.DRAINING for one in listed.values())
            room = max(0, min(room, expected - there))
        lost = self._lost(listed, room)
        self._members = {**listed, **lost}
        self._looked_s = now_s
        self._log_silent(before, {seen.replica.name: seen.message for seen in sightings})
        return self._replicas()

    def missed(self) -> tuple[Replica, ...]:
        """The source could not be read: everyone who was ready once is silent, until it can be again."""
        for member in self._members.values():
            if member.lost_since_s is None and member.replica.phase is Phase.SERVING:
                member.replica = _without_values(member.replica, Phase.SILENT)
        self._members = {name: m for name, m in self._members.items() if not self._forgotten(m)}
        return self._replicas()

    def _step(self, seen: Sighting, now_s: float) -> _Member:
        replica = seen.replica
        old = self._members.get(replica.name)
        if old is not None and replica.created_s not in (None, old.created_s):
            old = None  # another Pod with the same name
        serving = replica.phase is Phase.SERVING
        ready_once = serving or seen.served_before or (old is not None and old.ready_once)
        if old is not None:
            member = replace(old, ready_once=ready_once, lost_since_s=None)
        else:
            member = _Member(replica, ready_once, replica.created_s or self._appeared_s(ready_once, now_s))
        if serving and member.served_s is None and self._watched_start(old, member.created_s):
            member.served_s = now_s
        phase = replica.phase
        if phase in (Phase.SILENT, Phase.STARTING):
            phase = Phase.SILENT if ready_once else Phase.STARTING
        member.replica = replace(replica, phase=phase, created_s=member.created_s, served_s=member.served_s)
        return member

    def _appeared_s(self, ready_once: bool, now_s: float) -> float | None:
        """When a replica whose source tells no creation was made: when it was first listed, if that was watched."""
        return None if ready_once or self._looked_s is None else now_s

    def _watched_start(self, old: _Member | None, created_s: float | None) -> bool:
        """Whether a replica that serves now was seen not to serve, so that its cold start ends here."""
        if old is not None:
            return not old.ready_once
        return created_s is not None and self._looked_s is not None and created_s >= self._looked_s

    def _lost(self, listed: Collection[str], room: int) -> dict[str, _Member]:
        """Members that are listed no more and are missed; one that was leaving, or never was ready, is not."""
        lost = {}
        for name, member in self._members.items():
            if name in listed or not member.ready_once or member.replica.phase is Phase.DRAINING:
                continue
            if member.lost_since_s is None:
                member.lost_since_s = self._clock()
            member.replica = _without_values(member.replica, Phase.SILENT)
            if not self._forgotten(member):
                lost[name] = member
        latest = sorted(lost, key=lambda name: lost[name].lost_since_s or 0.0, reverse=True)[:room]
        return {name: lost[name] for name in latest}

    def _forgotten(self, member: _Member) -> bool:
        return member.lost_since_s is not None and self._clock() - member.lost_since_s >= self._lost_s

    def _silent_names(self) -> set[str]:
        return {name for name, member in self._members.items() if member.replica.phase is Phase.SILENT}

    def _replicas(self) -> tuple[Replica, ...]:
        return tuple(self._members[name].replica for name in sorted(self._members))

    def _log_silent(self, before: set[str], messages: dict[str, str]) -> None:
        """One line for those that fell silent with this look, one for those that are back."""
        now = self._silent_names()
        if fell := sorted(now - before):
            reason = messages.get(fell[0]) or "it is listed no more"
            log.warning("replicas silent", extra={"count": len(fell), "names": _some(fell), "reason": reason})
        if back := sorted(name for name in before - now if name in self._members):
            log.info("replicas answer again", extra={"count": len(back), "names": _some(back)})


def _without_values(replica: Replica, phase: Phase) -> Replica:
    return Replica(replica.name, phase, state=UNREACHABLE, created_s=replica.created_s, served_s=replica.served_s)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ",".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
