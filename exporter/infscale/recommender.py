"""The recommender: one workload evaluated with no engine beside it. It outlives the Pods, and publishes the 0 at zero.

`infscale.cli.recommender` parses the flags and starts it; a sidecar that evaluates answers the same paths. Wiring only:
`infscale.evaluator` decides, `infscale.metrics` and `infscale.recommender_page` show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from infscale import __version__
from infscale.evaluator import Evaluator
from infscale.metrics.collectors import own_registry
from infscale.metrics.render import Collector, Renderer
from infscale.metrics.workload_collector import WorkloadCollector
from infscale.recommender_answers import load, recommendation, status_of
from infscale.recommender_page import recommender_page
from infscale.serving import json_response, metrics_route
from infscale.web.landing import HTML
from infscale.web.message import Request, Response
from infscale.web.routes import Router


def recommender_routes(
    evaluator: Evaluator, *, also: Sequence[Collector] = (), wall_clock: Callable[[], float] = time.time
) -> Router:
    """The main listener's paths of a recommender; `also`: further collectors of its page."""
    collector = WorkloadCollector(evaluator.view, evaluator.counters)
    router = Router()
    router.add("/metrics", metrics_route(Renderer(collector, own_registry(__version__), also=also)))
    add_workload_routes(router, evaluator, wall_clock=wall_clock)

    def page(_request: Request) -> Response:
        """The page for a person."""
        body = recommender_page(evaluator.view(), evaluator.history, wall_clock(), max_age_s=evaluator.max_age_s)
        return Response(body=body, content_type=HTML)

    router.add("/", page)
    return router


def add_workload_routes(router: Router, evaluator: Evaluator, *, wall_clock: Callable[[], float] = time.time) -> None:
    """The paths that KEDA's metrics-api trigger reads, on whichever role evaluates."""

    def recommended(_request: Request) -> Response:
        """`/api/v1/recommendation`."""
        answer = recommendation(evaluator.view(), evaluator.history, wall_clock(), max_age_s=evaluator.max_age_s)
        return json_response(answer, status_of(answer))

    def loaded(_request: Request) -> Response:
        """`/api/v1/load`."""
        answer = load(evaluator.view(), wall_clock(), max_age_s=evaluator.max_age_s)
        return json_response(answer, status_of(answer))

    router.add("/api/v1/recommendation", recommended)
    router.add("/api/v1/load", loaded)
