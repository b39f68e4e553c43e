"""The activator's process: its pages are there until the last held request is answered. `cli.activator` runs it.

`infscale.serving.serve` stops everything at once. What an activator still holds at its end must be read until then: it
is demand, and a recommender that cannot read it knows nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from infscale.activator.serve import Activator
from infscale.serving import DRAIN_S, KUBELET_REQUESTS, kubelet_routes
from infscale.web.lifecycle import Lifecycle, Stoppable
from infscale.web.routes import Router
from infscale.web.server import Limits, Listener
from infscale.web.webconfig import WebConfig

log = logging.getLogger(__name__)


class _InOrder:
    """The activator is stopped first, and then what shows it."""

    def __init__(self, activator: Activator, listeners: Sequence[Stoppable]) -> None:
        self._parts = activator, *listeners

    def stop(self, drain_s: float) -> bool:
        """See `Stoppable`."""
        stopped = [part.stop(drain_s) for part in self._parts]
        return all(stopped)


def serve(main: Router, flags: Mapping[str, Any], activator: Activator) -> int:
    """Run until the process was told to stop; the exit code.

    Args:
        main: the main listener's paths.
        flags: as for `infscale.serving.serve`.
        activator: started when both listeners are.
    """
    lifecycle = Lifecycle()
    lifecycle.install()
    config = flags["web_config_file"]
    listeners = (
        Listener(
            str(flags["web_listen_address"]),
            main,
            web_config=WebConfig(config) if config is not None else None,
            limits=Limits(max_requests=flags["web_max_requests"]),
        ),
        Listener(
            str(flags["kubelet_listen_address"]),
            kubelet_routes(lambda: not lifecycle.stopping),
            flag="--kubelet.listen-address",
            limits=Limits(max_requests=KUBELET_REQUESTS),
        ),
    )
    for listener in listeners:
        listener.start()
        log.info("listening", extra={"address": listener.address, "port": listener.port})
    activator.start()
    ended = _InOrder(activator, listeners)
    return lifecycle.run([ended], delay_s=flags["web_shutdown_delay"], drain_s=DRAIN_S)
