"""Engines without a sidecar, read directly (`--fleet.engine-port`): an engine's page as the sighting of its replica.

A recommender in dry run so needs no restart of any engine. Called by `survey`; per replica it keeps what the sidecar
keeps of its engine: the profile once found, and the Watch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from infscale.core.replicas import Phase
from infscale.engines import PROFILES
from infscale.engines.profile import Profile
from infscale.fleet.crowd import Answer
from infscale.fleet.from_readings import replica_of_view
from infscale.fleet.sighting import Sighting
from infscale.outcome import outcome
from infscale.reading import SATURATED, Reading
from infscale.scrape import Page
from infscale.watch import STALE_AFTER_S, Watch


@dataclass
class EngineSettings:
    """How engines' pages are understood. A reload replaces `profile` and `profiles` in it, from the next look on.

    Attributes:
        port: of every replica's engine; None: the sidecars are asked.
        path: of the metrics page.
        profile: the engine, where it is told.
        profiles: those to look for otherwise.
        token_file: bearer token or API key of the engines; the file is read for each page.
        ca_file, insecure_skip_verify: for engines that are listed with https.
        cpu_request: CPU cores that a replica requests; None when not told.
        stale_after_s: see `infscale.watch`.
    """

    port: int | None = None
    path: str = "/metrics"
    profile: Profile | None = None
    profiles: tuple[Profile, ...] = tuple(PROFILES.values())
    token_file: str | None = None
    ca_file: str | None = None
    insecure_skip_verify: bool = False
    cpu_request: float | None = None
    stale_after_s: float = STALE_AFTER_S


class Engines:
    """The engines of one workload, by the names of their replicas."""

    def __init__(self, settings: EngineSettings, *, histograms: bool) -> None:
        self._settings, self._histograms = settings, histograms
        self._known: dict[str, tuple[Watch, Profile | None]] = {}

    def understand(self, name: str, source: str, answer: Answer, now_s: float) -> Sighting:
        """What the answer of a replica's engine tells of it.

        Args:
            name: of the replica.
            source: names the engine in messages.
            answer: what the read gave.
            now_s: Unix seconds.
        """
        settings = self._settings
        watch, found = self._known.get(name) or (self._watch(), settings.profile)
        # A page shows its engine itself; for anything else the hints are those of the engine that was there before.
        page = isinstance(answer, Page) and answer.status == 200
        result = outcome(
            answer,
            profile=settings.profile if page else found,
            profiles=settings.profiles,
            source=source,
            histograms=self._histograms,
        )
        if isinstance(result, Reading):
            found = next((p for p in settings.profiles if p.name == result.engine), settings.profile)
        view = watch.step(result, now_s, duration_s=answer.duration_s)
        self._known[name] = watch, found
        replica = replica_of_view(name, view)
        # An engine that loads refuses or says so; one that accepts and does not answer is full, and was there before.
        served_before = view.known is not None or view.state == SATURATED
        return Sighting(replica, view.message if replica.phase is not Phase.SERVING else "", served_before)

    def keep(self, names: Collection[str]) -> None:
        """Forget every engine but these."""
        self._known = {name: self._known[name] for name in names if name in self._known}

    def _watch(self) -> Watch:
        return Watch(stale_after_s=self._settings.stale_after_s, cpu_request=self._settings.cpu_request)
