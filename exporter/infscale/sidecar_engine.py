"""One engine beside the sidecar: read when it is asked for, its answer shared, its reads remembered.

`infscale.sidecar` adds several up to one replica; the drain reads through it too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from infscale.engines import PROFILES
from infscale.engines.profile import Profile
from infscale.outcome import outcome
from infscale.reading import FAILURES, ReadFailure, Reading
from infscale.scrape import Page, Target, fetch
from infscale.scrape_shared import SharedRead
from infscale.watch import HOLD_S, STALE_AFTER_S, TERMINATING_HOLD_S, View, Watch

log = logging.getLogger(__name__)


@dataclass
class EngineSettings:
    """How the engines are read. All engines of a sidecar share one: a reload replaces `profile` and `profiles` in it.

    Attributes:
        profile: the engine, where it was told.
        profiles: those to look for otherwise, in the order of detection.
        min_interval_s: a read is shared for this long; None: as the engine's profile says.
        stale_after_s: see `infscale.watch`.
        cpu_request: CPU cores that the engine's Pod requests; None when not told.
        histograms: whether the engines' histograms are read.
    """

    profile: Profile | None = None
    profiles: tuple[Profile, ...] = tuple(PROFILES.values())
    min_interval_s: float | None = None
    stale_after_s: float = STALE_AFTER_S
    cpu_request: float | None = None
    histograms: bool = True


class Engine:
    """One engine beside the sidecar: at most one read under way, its answer shared.

    Args:
        target: where its metrics page is.
        settings: how it is read.
        wall_clock: Unix seconds, for what is published.
        clock: monotonic seconds, for sharing.
        terminating: whether the Pod is; then the values of an engine that does not answer are held less long.
    """

    def __init__(
        self,
        target: Target,
        settings: EngineSettings,
        *,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        terminating: Callable[[], bool] = lambda: False,
    ) -> None:
        self.source = target.url
        self.failures = dict.fromkeys(FAILURES, 0)
        self._target, self._settings, self._wall_clock = target, settings, wall_clock
        self._terminating = terminating
        self._watch = Watch(stale_after_s=settings.stale_after_s, cpu_request=settings.cpu_request)
        self._found: Profile | None = settings.profile
        self._state = ""
        self._shared: SharedRead[View] = SharedRead(self._read, clock)

    def view(self) -> View:
        """What the engine shows now: a new read, or one that is younger than the interval."""
        interval_s = self._settings.min_interval_s
        if interval_s is None:
            interval_s = self._found.min_interval_s if self._found else 1.0
        return self._shared.get(max_age_s=interval_s, timeout_s=self._target.timeout_s + 1.0)

    @property
    def profile(self) -> Profile | None:
        """The engine that it was told to be or was found to be; None before."""
        return self._found

    def read(self, timeout_s: float | None = None) -> tuple[Reading | ReadFailure, float]:
        """One read of its own, and how long it took in seconds; nothing is shared, counted or remembered of it.

        Args:
            timeout_s: for all of it, in seconds; None: as the flags say.
        """
        settings = self._settings
        answer = fetch(self._target, timeout_s=timeout_s)
        # A page shows its engine itself; for anything else the hints are those of the engine that was there before.
        page = isinstance(answer, Page) and answer.status == 200
        found = outcome(
            answer,
            profile=settings.profile if page else self._found,
            profiles=settings.profiles,
            source=self.source,
            histograms=settings.histograms,
        )
        return found, answer.duration_s

    def _read(self) -> View:
        settings = self._settings
        result, duration_s = self.read()
        if isinstance(result, ReadFailure):
            self.failures[result.reason] += 1
        else:
            self._found = next((p for p in settings.profiles if p.name == result.engine), settings.profile)
        hold_s = TERMINATING_HOLD_S if self._terminating() else HOLD_S
        view = self._watch.step(result, self._wall_clock(), duration_s=duration_s, hold_s=hold_s)
        self._log_change(view)
        return view

    def _log_change(self, view: View) -> None:
        """One line for each change of state; the page's counters tell the rest."""
        if view.state == self._state:
            return
        level = logging.INFO if view.state in ("ok", "fresh", "asleep", "loading") else logging.WARNING
        fields: dict[str, object] = {"url": self.source, "state": view.state, "was": self._state or "unknown"}
        if view.message:
            fields["reason"] = view.message
        log.log(level, "engine state", extra=fields)
        self._state = view.state
