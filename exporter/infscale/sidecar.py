"""The sidecar: reads the engines of its Pod when it is scraped, and publishes what they have in flight.

`infscale.cli.sidecar` parses the flags and starts it. Here is wiring only: scrape, outcome, watch, metrics and web each
do one thing and know nothing of each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from infscale import __version__
from infscale.client_watch import ClientsSeen
from infscale.metrics.collectors import ReplicaCollector, Settings, own_registry
from infscale.metrics.drains import DrainCollector, DrainCounters
from infscale.metrics.render import Collector, Renderer
from infscale.metrics.replica import ReplicaView, merge
from infscale.reading import FAILURES
from infscale.serving import json_response, metrics_route
from infscale.sidecar_engine import Engine, EngineSettings
from infscale.sidecar_page import sidecar_page
from infscale.sidecar_reading import PodIdentity, Standing, reading_json
from infscale.watch import View
from infscale.web.landing import HTML, Section
from infscale.web.message import Response
from infscale.web.routes import Router
from infscale.withdraw import Withdrawal

if TYPE_CHECKING:  # a sidecar without a fleet source pays neither the time nor the memory of deciding
    from infscale.evaluator import Evaluator

__all__ = ["Engine", "EngineSettings", "PodAround", "Sidecar"]


@dataclass(frozen=True)
class PodAround:
    """What a sidecar knows of its Pod besides the engines' pages and its termination.

    Attributes:
        identity: which Pod it is.
        withdrawal: whether it is out of rotation on request.
        clients: looks at the connections of the engines' clients; None where they cannot be seen.
        wall_clock: Unix seconds.
    """

    identity: PodIdentity = field(default_factory=PodIdentity)
    withdrawal: Withdrawal = field(default_factory=Withdrawal)
    clients: Callable[[], ClientsSeen | None] = lambda: None
    wall_clock: Callable[[], float] = time.time


class Sidecar:
    """The engines of one Pod as one replica: its page, its JSON, its landing page.

    Args:
        engines: at least one.
        settings: what the flags say about the page.
        draining: whether the Pod is terminating; a withdrawn replica is draining too.
        pod: what else is known of the Pod; None: nothing.
        drains: what adds up over the drains.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        settings: Settings,
        *,
        draining: Callable[[], bool] = lambda: False,
        pod: PodAround | None = None,
        drains: DrainCounters | None = None,
    ) -> None:
        self._engines = tuple(engines)
        self._settings = settings
        self._terminating, self._pod = draining, pod or PodAround()
        self._drains = drains or DrainCounters()
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
        return self._merged(self.views())

    def reading(self) -> dict[str, Any]:
        """What `/api/v1/reading` answers: the replica, and each engine with its state and why."""
        views = self.views()
        engines = [(engine.source, view) for engine, view in zip(self._engines, views, strict=True)]
        until_s = self._pod.withdrawal.until_s()
        standing = Standing(
            pod=self._pod.identity,
            draining=until_s is not None or self._terminating(),
            withdrawn_until_s=until_s,
            clients=self._pod.clients(),
            now_s=self._pod.wall_clock(),
        )
        return reading_json(self._merged(views), engines, standing)

    def draining(self) -> bool:
        """Whether the replica is no capacity and its requests are no demand: it is terminating or withdrawn."""
        return self._pod.withdrawal.active() or self._terminating()

    def routes(self, evaluator: Evaluator | None = None, *, also: Sequence[Collector] = ()) -> Router:
        """The main listener's paths, but for `/withdraw`.

        Args:
            evaluator: of the workload that the replica belongs to, where the sidecar evaluates it.
            also: further collectors, last on the page but for the process's own.
        """
        collector = ReplicaCollector(self.views, self.failures, self._settings)
        parts: list[Collector] = [DrainCollector(self.draining, self._drains)]
        if evaluator:
            from infscale.metrics.workload_collector import WorkloadCollector

            parts.append(WorkloadCollector(evaluator.view, evaluator.counters))
        router = Router()
        renderer = Renderer(collector, own_registry(__version__), also=[*parts, *also])
        router.add("/metrics", metrics_route(renderer))
        router.add("/api/v1/reading", lambda _request: json_response(self.reading()))
        router.add("/", lambda _request: Response(body=self._page(evaluator), content_type=HTML))
        if evaluator:
            from infscale.recommender import add_workload_routes

            add_workload_routes(router, evaluator)
        return router

    def _merged(self, views: Sequence[View]) -> ReplicaView:
        return merge(views, model_name=self._settings.model_name, capacity=self._settings.capacity)

    def _page(self, evaluator: Evaluator | None) -> bytes:
        if evaluator is None:
            return sidecar_page(self.reading())
        from infscale.recommender_page import decision_sections, decision_state

        view = evaluator.view()
        now = decision_state(view, time.time(), evaluator.max_age_s)
        first = Section("Workload", [(now.name, now.reason)])
        return sidecar_page(self.reading(), [first, *decision_sections(view, evaluator.history.entries())])
