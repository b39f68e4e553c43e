"""Whether requests can still reach the target. Pure.

It is out of rotation when its sidecar fails its readiness on request, no EndpointSlice serves it, and no client was
connected to the engine for 10 s: that an endpoint was removed does not prove that its connections ended. A router that
ignores readiness is asked itself (`router`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from infscale.kube.objects import Endpoint
from infscale.retire.envelope import Clients
from infscale.retire.rules import Reason, Rule

QUIET_S = 10.0
"""So long no client may have been connected to the engine."""


def still_served(endpoints: Iterable[Endpoint], discovery: Collection[str] = ()) -> Reason | None:
    """The Services that still send requests to the target; None if none does.

    Args:
        endpoints: every endpoint that is the target.
        discovery: Services that publish addresses that are not ready, and send nobody there: a LeaderWorkerSet's own.
    """
    serving = [
        endpoint for endpoint in endpoints if endpoint.serving or (endpoint.ready and endpoint.service not in discovery)
    ]
    if not serving:
        return None
    names = ", ".join(sorted({endpoint.service or endpoint.slice_name for endpoint in serving}))
    hint = "" if any(e.serving for e in serving) else " (it publishes addresses that are not ready)"
    return Reason(Rule.ENDPOINTS, f"Service {names} still sends requests there{hint}")


def still_connected(clients: Clients | None, now_s: float) -> Reason | None:
    """The clients that are connected, or were a moment ago; None if none was for QUIET_S."""
    if clients is None:
        return Reason(Rule.CLIENTS, "the engine's client connections cannot be seen")
    if clients.established:
        return Reason(Rule.CLIENTS, f"{clients.established:g} connection(s) to the engine's port")
    quiet_s = clients.quiet_s(now_s)
    if quiet_s >= QUIET_S:
        return None
    return Reason(Rule.CLIENTS, f"none for {max(0.0, quiet_s):.0f} s: expected none for {QUIET_S:g} s")
