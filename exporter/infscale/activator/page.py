"""What an activator serves on the main listener: its metrics, `/api/v1/held` as JSON, and a page for a person.

Wiring for `infscale.cli.activator`; the requests of clients have a listener of their own (`serve`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infscale import __version__
from infscale.activator.counts import HoldCollector
from infscale.activator.serve import Activator
from infscale.fleet.source import WorkloadName
from infscale.metrics.catalogue_activator import HELD_MEANINGS
from infscale.metrics.collectors import own_registry
from infscale.metrics.render import Renderer
from infscale.serving import json_response, metrics_route
from infscale.web.landing import HTML, Link, Section, State, landing_page
from infscale.web.message import Request, Response
from infscale.web.routes import Router

REFRESH_S = 5
ENDPOINTS_SHOWN = 50


def activator_routes(activator: Activator, workload: WorkloadName, woken: Callable[[], str]) -> Router:
    """The main listener's paths.

    Args:
        activator: which one.
        workload: whose requests it holds.
        woken: what came of the last look at the workload's replicas, in one line; empty where it only counts.
    """
    collector = HoldCollector(
        workload, activator.settings.max_held, lambda: activator.queue.pending, activator.counters
    )
    router = Router()
    router.add("/metrics", metrics_route(Renderer(collector, own_registry(__version__))))
    router.add("/api/v1/held", lambda _request: json_response(held(activator, workload, woken())))

    def page(_request: Request) -> Response:
        """The page for a person."""
        return Response(body=activator_page(held(activator, workload, woken()), activator), content_type=HTML)

    router.add("/", page)
    return router


def held(activator: Activator, workload: WorkloadName, woken: str) -> dict[str, Any]:
    """What is held now, as JSON has it; `held` is a plain number, which KEDA's metrics-api trigger can read."""
    settings = activator.settings
    return {
        "workload": {"namespace": workload.namespace, "name": workload.name},
        "held": activator.queue.pending,
        "held_bytes": activator.queue.bytes,
        "limits": {"held": settings.max_held, "held_bytes": settings.max_held_bytes, "hold_seconds": settings.hold_s},
        "under_way": activator.under_way,
        "endpoints": [
            {"address": endpoint.address, "ready": endpoint.ready, "outstanding": endpoint.outstanding}
            for endpoint in activator.endpoints
        ],
        "wake": woken or None,
    }


def activator_page(now: dict[str, Any], activator: Activator) -> bytes:
    """The page, as UTF-8 HTML."""
    workload = "/".join(now["workload"].values())
    ready = activator.endpoints.ready
    state = State("passing on", f"{ready} ready", "good")
    if not ready:
        why = now["wake"] or "nothing here wakes it: that is left to who reads infscale_pending_requests"
        state = State("holding", f"no replica is ready; {why}", "warn" if now["held"] else "good")
    shown = now["endpoints"][:ENDPOINTS_SHOWN]
    replicas = [
        (one["address"], f"{'ready' if one['ready'] else 'not ready'}, {one['outstanding']} outstanding")
        for one in shown
    ]
    if len(shown) < len(now["endpoints"]):
        replicas.append(("and more", str(len(now["endpoints"]) - len(shown))))
    outcomes = [(f"{name}: {HELD_MEANINGS[name]}", str(count)) for name, count in activator.counters.totals().outcomes]
    return landing_page(
        f"infscale activator {workload}",
        __version__,
        state=state,
        facts=(
            ("held", f"{now['held']}"),
            ("at most", f"{now['limits']['held']}"),
            ("bytes held", f"{now['held_bytes']:,}"),
            ("under way", f"{now['under_way']}"),
        ),
        sections=[Section("Replicas", replicas), Section("Held requests so far", outcomes)],
        links=(
            Link("/metrics", "/metrics", "what Prometheus scrapes"),
            Link("/api/v1/held", "/api/v1/held", "this page as JSON"),
        ),
        refresh_s=REFRESH_S,
    )
