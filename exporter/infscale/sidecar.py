"""The sidecar: reads the engines of its Pod when it is scraped, and publishes what they have in flight.

`infscale.cli.sidecar` parses the flags and starts it. Here is wiring only: scrape, outcome, watch, metrics and web each
do one thing and know nothing of each other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from infscale import __version__
from infscale.engines import PROFILES
from infscale.engines.profile import Profile
from infscale.fleet.from_readings import buckets_of
from infscale.fleet.peer import ttft_json
from infscale.metrics.collectors import ReplicaCollector, Settings, own_registry
from infscale.metrics.drains import DrainCollector, DrainCounters
from infscale.metrics.render import Collector, Renderer
from infscale.metrics.replica import ReplicaView, merge
from infscale.outcome import outcome
from infscale.reading import FAILURES, ReadFailure, Reading
from infscale.scrape import Page, SharedRead, Target, fetch
from infscale.serving import json_response, metrics_route
from infscale.sidecar_page import sidecar_page
from infscale.watch import HOLD_S, STALE_AFTER_S, TERMINATING_HOLD_S, View, Watch
from infscale.web.landing import HTML, Section
from infscale.web.message import Response
from infscale.web.routes import Router

if TYPE_CHECKING:  # a sidecar without a fleet source pays neither the time nor the memory of deciding
    from infscale.evaluator import Evaluator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineSettings:
    """How the engines are read.

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
        self._shared: SharedRead[View] = SharedRead(self._read, 0.0, clock)

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


class Sidecar:
    """The engines of one Pod as one replica: its page, its JSON, its landing page.

    Args:
        engines: at least one.
        settings: what the flags say about the page.
        draining: whether the Pod is terminating.
        drains: what adds up over the drains.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        settings: Settings,
        *,
        draining: Callable[[], bool] = lambda: False,
        drains: DrainCounters | None = None,
    ) -> None:
        self._engines = tuple(engines)
        self._settings = settings
        self._draining, self._drains = draining, drains or DrainCounters()
        # Several engines are read at once, so that one that hangs costs its own time-out and not the sum.
        self._pool = ThreadPoolExecutor(len(engines), "engine") if len(engines) > 1 else None

    def views(self) -> list[View]:
        """Each engine's view, read now or shared."""
        if self._pool is None:
            return [self._engines[0].view()]
        return list(self._pool.map(Engine.view, self._engines))

    def failures(self) -> Mapping[str, float]:
        """Failed reads of all engines by reason."""
        return {reason: sum(engine.failures[reason] for engine in self._engines) for reason in FAILURES}

    def replica(self) -> ReplicaView:
        """The replica as it is now."""
        return merge(self.views(), model_name=self._settings.model_name, capacity=self._settings.capacity)

    def reading(self) -> dict[str, Any]:
        """What `/api/v1/reading` answers: the replica, and each engine with its state and why."""
        views = self.views()
        replica = merge(views, model_name=self._settings.model_name, capacity=self._settings.capacity)
        known = replica.models
        return {
            "state": replica.state,
            "message": replica.message,
            "up": replica.up,
            "inflight": replica.inflight,
            "running": _sum([model.running for model in known]),
            "waiting": _sum([model.waiting for model in known]),
            "kv": max((model.kv for model in known if model.kv is not None), default=None),
            "capacity": replica.capacity,
            "cpu_ratio": replica.cpu_ratio,
            "prompt_tokens": _sum([model.prompt_tokens for model in known]),
            "generation_tokens": _sum([model.generation_tokens for model in known]),
            "ttft": ttft_json(buckets_of(found.histogram for found in replica.histograms)),
            "draining": self._draining(),
            "read_at": replica.read_at_s,
            "models": [asdict(model) for model in known],
            "engines": [
                {
                    "url": engine.source,
                    "engine": view.known.engine if view.known else None,
                    "state": view.state,
                    "message": view.message,
                }
                for engine, view in zip(self._engines, views, strict=True)
            ],
            "warnings": list(replica.warnings),
        }

    def routes(self, evaluator: Evaluator | None = None) -> Router:
        """The main listener's paths.

        Args:
            evaluator: of the workload that the replica belongs to, where the sidecar evaluates it.
        """
        collector = ReplicaCollector(self.views, self.failures, self._settings)
        also: list[Collector] = [DrainCollector(self._draining, self._drains)]
        if evaluator:
            from infscale.metrics.workload_collector import WorkloadCollector

            also.append(WorkloadCollector(evaluator.view, evaluator.counters))
        router = Router()
        router.add("/metrics", metrics_route(Renderer(collector, own_registry(__version__), also=also)))
        router.add("/api/v1/reading", lambda _request: json_response(self.reading()))
        router.add("/", lambda _request: Response(body=self._page(evaluator), content_type=HTML))
        if evaluator:
            from infscale.recommender import add_workload_routes

            add_workload_routes(router, evaluator)
        return router

    def _page(self, evaluator: Evaluator | None) -> bytes:
        if evaluator is None:
            return sidecar_page(self.reading())
        from infscale.recommender_page import decision_sections, decision_state

        view = evaluator.view()
        now = decision_state(view, time.time(), evaluator.max_age_s)
        first = Section("Workload", [(now.name, now.reason)])
        return sidecar_page(self.reading(), [first, *decision_sections(view, evaluator.history.entries())])


def _sum(values: Sequence[float | None]) -> float | None:
    if not values or any(value is None for value in values):
        return None
    return sum(value for value in values if value is not None)
