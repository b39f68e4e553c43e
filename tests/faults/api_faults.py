"""What goes wrong with the API server, for whoever looks through it: the recommender, `infscale kube`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.faults.rig import Relay
from tests.kube.apiserver import ApiServer
from tests.kube.wire import Fault

ALWAYS = 10**9

Wrong = Callable[[ApiServer, Relay], None]
"""Lets the API server, or the way to it, go wrong."""


def goes_wrong(what: str, path: str = "", **more: Any) -> Wrong:
    """A fault of every request."""

    def begin(api: ApiServer, way: Relay) -> None:
        api.faults[:] = [Fault(what, path=path, times=ALWAYS, **more)]

    return begin


def down(api: ApiServer, way: Relay) -> None:
    """Nothing listens there."""
    way.refuse()


def forbid(api: ApiServer, way: Relay) -> None:
    """Its Role is taken away."""
    api.role = []
