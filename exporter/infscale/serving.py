"""What every long-running role serves alike: /metrics, JSON, the probes, and two listeners from start to stop."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infscale.metrics.render import Renderer
from infscale.web.compression import accepts_gzip
from infscale.web.lifecycle import Lifecycle, Stoppable
from infscale.web.message import Request, Response
from infscale.web.routes import Router
from infscale.web.server import Limits, Listener
from infscale.web.webconfig import WebConfig

log = logging.getLogger(__name__)

JSON = "application/json"

DRAIN_S = 5.0
"""For scrapes under way at the end: longer than any read of an engine takes by default."""

KUBELET_REQUESTS = 32
"""At once: the 16 drains that may wait, each for its whole grace period, and as many probes and reports beside them."""


def metrics_route(renderer: Renderer) -> Callable[[Request], Response]:
    """`/metrics`, in the format and encoding that the scrape asks for."""

    def answer(request: Request) -> Response:
        """One scrape."""
        headers = request.headers
        page = renderer.page(headers.get("accept", ""), accepts_gzip(headers.get("accept-encoding", "")))
        more = {"Vary": "Accept, Accept-Encoding"}
        if page.content_encoding:
            more["Content-Encoding"] = page.content_encoding
        return Response(body=page.body, content_type=page.content_type, headers=more)

    return answer


def json_response(value: Mapping[str, Any], status: int = 200) -> Response:
    """A JSON object."""
    return Response(status, (json.dumps(value, indent=1) + "\n").encode(), JSON)


def kubelet_routes(ready: Callable[[], bool], why_not_ready: Callable[[], str] = lambda: "") -> Router:
    """`/-/healthy` while the process can answer, `/-/ready` while it is to be asked.

    Args:
        ready: false once the process was told to stop. It does not depend on an engine: a sidecar whose readiness
            followed a loading engine would take the whole Pod out of service.
        why_not_ready: why it is not to be asked though it goes on, in one line; empty if it is.
    """
    router = Router()
    router.add("/-/healthy", lambda _request: Response(body=b"healthy\n"))

    def readiness(_request: Request) -> Response:
        """200, or 503 with the reason."""
        why = why_not_ready() if ready() else "stopping"
        return Response(503, f"{why}\n".encode()) if why else Response(body=b"ready\n")

    router.add("/-/ready", readiness)
    return router


class _InOrder:
    """Parts that are stopped one after the other, each to its end."""

    def __init__(self, *parts: Stoppable) -> None:
        self._parts = parts

    def stop(self, drain_s: float) -> bool:
        """See `Stoppable`."""
        stopped = [part.stop(drain_s) for part in self._parts]
        return all(stopped)


def serve(
    main: Router,
    flags: Mapping[str, Any],
    *,
    first: Stoppable | None = None,
    also: Sequence[Stoppable] = (),
    add_kubelet_routes: Callable[[Router], None] = lambda _router: None,
    once_listening: Callable[[], object] = lambda: None,
    why_not_ready: Callable[[], str] = lambda: "",
) -> int:
    """Both listeners, from their start until the process was told to stop; the exit code.

    Args:
        main: the main listener's paths.
        flags: `web_listen_address`, `web_config_file`, `web_max_requests`, `web_shutdown_delay` and
            `kubelet_listen_address`, as the command line has them.
        first: what is stopped before the listeners, which show it to its end.
        also: what is stopped with the listeners.
        add_kubelet_routes: adds what the kubelet listener answers beside the probes.
        once_listening: starts what is not to run in a process that cannot be reached, such as one whose port is taken.
        why_not_ready: see `kubelet_routes`.
    """
    lifecycle = Lifecycle()
    lifecycle.install()
    kubelet = kubelet_routes(lambda: not lifecycle.stopping, why_not_ready)
    add_kubelet_routes(kubelet)
    config = flags["web_config_file"]
    listeners = [
        Listener(
            str(flags["web_listen_address"]),
            main,
            web_config=WebConfig(config) if config is not None else None,
            limits=Limits(max_requests=flags["web_max_requests"]),
        ),
        Listener(
            str(flags["kubelet_listen_address"]),
            kubelet,
            flag="--kubelet.listen-address",
            limits=Limits(max_requests=KUBELET_REQUESTS),
        ),
    ]
    for listener in listeners:
        listener.start()
        log.info("listening", extra={"address": listener.address, "port": listener.port})
    once_listening()
    shown = [*listeners] if first is None else [_InOrder(first, *listeners)]
    return lifecycle.run([*shown, *also], delay_s=flags["web_shutdown_delay"], drain_s=DRAIN_S)
