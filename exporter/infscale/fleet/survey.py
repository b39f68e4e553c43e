"""Places of replicas become replicas: each is read under the one deadline of the look, and remembered.

`static`, `dns` and `kubernetes` know where the replicas are; what they share is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infscale.core.replicas import Phase, Replica
from infscale.fleet import peer
from infscale.fleet.crowd import MAX_OPEN, Answer
from infscale.fleet.engines import Engines
from infscale.fleet.members import Members
from infscale.fleet.reader import Ask, Reader
from infscale.fleet.sighting import Sighting
from infscale.fleet.source import FleetSettings
from infscale.scrape import Target
from infscale.scrape_wire import Deadline


@dataclass(frozen=True, slots=True)
class Place:
    """A replica that is listed.

    Attributes:
        name: unique in the workload.
        url: where it is read; empty: it has no address yet and is not read.
        engine: the URL is an engine's page, and not a sidecar's reading.
        created_s: when it was created, Unix seconds; None where the source does not tell.
        served_before: the source tells that it was ready once.
        leaving: the source tells that it is terminating.
    """

    name: str
    url: str
    engine: bool = False
    created_s: float | None = None
    served_before: bool = False
    leaving: bool = False


def url_of(address: str, port: int, settings: FleetSettings) -> tuple[str, bool]:
    """Where the replica at an IP address is read, and whether that is its engine's page."""
    host = f"[{address}]" if ":" in address else address
    engine_port = settings.engines.port
    if engine_port is not None:
        return f"http://{host}:{engine_port}{settings.engines.path}", True
    return f"http://{host}:{port}{peer.READING_PATH}", False


class Survey:
    """The replicas of one workload.

    Args:
        settings: how they are read.
        members: what is remembered of them.
    """

    def __init__(self, settings: FleetSettings, *, members: Members | None = None) -> None:
        self._settings = settings
        self._members = members or Members()
        self._reader = Reader()
        self._engines = Engines(settings.engines, histograms=settings.ttft)
        self._last_answers: frozenset[str] = frozenset()
        self._looks = 0

    def deadline(self) -> Deadline:
        """The time of one look, from now on."""
        return self._reader.deadline(self._settings.timeout_s)

    def take(
        self, places: Sequence[Place], now_s: float, deadline: Deadline, *, expected: int | None = None
    ) -> tuple[Replica, ...]:
        """Read every place, and say what each replica is.

        Args:
            places: every replica that is listed.
            now_s: Unix seconds.
            deadline: for all reads.
            expected: see `Members.take`.

        Raises:
            SourceError: more replicas than can be held.
        """
        order = self._in_turn([place for place in places if place.url])
        seen = self._reader.read([self._ask(place, now_s) for place in order], deadline)
        sightings = [_told(place, sighting) for place, sighting in zip(order, seen, strict=True)]
        sightings += [_told(place, _unread(place)) for place in places if not place.url]
        self._engines.keep({place.name for place in places})
        self._last_answers = frozenset(s.replica.name for s in seen if s.replica.inflight is not None)
        return self._members.take(sightings, now_s, expected=expected)

    def _in_turn(self, places: list[Place]) -> list[Place]:
        """Those that answered last time first: many that hang must not cost the turn of one that is well.

        The others move up by half of the connections with each look, so that none waits behind the same ones for ever.
        """
        others = [place for place in places if place.name not in self._last_answers]
        shift = self._looks * MAX_OPEN // 2 % max(1, len(others))
        self._looks += 1
        return [place for place in places if place.name in self._last_answers] + others[shift:] + others[:shift]

    def missed(self) -> tuple[Replica, ...]:
        """The replicas as they are remembered, when they could not be listed."""
        return self._members.missed()

    def close(self) -> None:
        """Gives threads back."""
        self._reader.close()

    def _ask(self, place: Place, now_s: float) -> Ask:
        settings, name, url = self._settings, place.name, place.url
        if place.engine:
            engines = settings.engines
            target = Target(
                url,
                token_file=engines.token_file,
                ca_file=engines.ca_file,
                insecure_skip_verify=engines.insecure_skip_verify,
            )

            def understand(answer: Answer) -> Sighting:
                """The page of the engine, as its watch sees it."""
                return self._engines.understand(name, url, answer, now_s)

            return Ask(target, understand)
        target = Target(url, max_bytes=peer.MAX_BYTES, accept="application/json")
        if url.startswith("https://"):  # a token never goes out in the clear
            target = replace(target, ca_file=settings.ca_file, token_file=settings.token_file)
        return Ask(target, lambda answer: peer.sighting_of(name, answer))


def _unread(place: Place) -> Sighting:
    return Sighting(Replica(place.name, Phase.STARTING, state="loading"), "it has no address yet")


def _told(place: Place, seen: Sighting) -> Sighting:
    """A sighting with what the source knows of the replica."""
    phase = Phase.DRAINING if place.leaving else seen.replica.phase
    replica = replace(seen.replica, phase=phase, created_s=place.created_s)
    return Sighting(replica, seen.message, seen.served_before or place.served_before)
