"""The replicas that an activator knows: which are ready, and which has the least to do. No sockets, no clock.

`prober` tells what there is and how it answers, the proxy which one refused a connection; `release` and the proxy take
one for each request. Used on the loop's thread; counts may be read from any.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)

MAX_ENDPOINTS = 1024
"""A name with more addresses is a mistake, and each of them would be probed every second."""

MAX_TIMEOUTS = 3
"""Probes in a row that a ready replica may leave unanswered: a busy engine answers late, and is not gone."""


class Health(enum.Enum):
    """How a replica answered a probe."""

    READY = "ready"
    NOT_READY = "not ready"
    """It answers, and says that it is not; or nothing listens."""
    NO_ANSWER = "no answer"
    """Nothing came in time."""


class Endpoint:
    """One replica.

    Attributes:
        address: its IP.
        ready: whether requests go there.
        outstanding: requests that went there and are not at their end.
    """

    __slots__ = ("_last_turn", "_timeouts", "address", "outstanding", "ready")

    def __init__(self, address: str) -> None:
        self.address = address
        self.ready = False
        self.outstanding = 0
        self._timeouts = 0
        self._last_turn = 0

    def set_ready(self, ready: bool, why: str) -> None:
        """Change whether requests go there, and log it if that is news."""
        self._timeouts = 0
        if ready != self.ready:
            self.ready = ready
            what = "replica ready" if ready else "replica not ready"
            log.info(what, extra={"address": self.address, **({"reason": why} if why else {})})


class Endpoints:
    """All replicas of the workload; none at first."""

    def __init__(self) -> None:
        self._known: dict[str, Endpoint] = {}
        self._turns = 0

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(tuple(self._known.values()))

    @property
    def ready(self) -> int:
        """How many are ready."""
        return sum(endpoint.ready for endpoint in self)

    def update(self, addresses: Iterable[str]) -> None:
        """These are all that there are now; those that were known stay as they are."""
        known = self._known
        kept = list(addresses)[:MAX_ENDPOINTS]
        self._known = {address: known.get(address) or Endpoint(address) for address in kept}

    def keep_ready(self) -> None:
        """Nobody can say which there are: the ready ones are kept for as long as they answer."""
        self._known = {endpoint.address: endpoint for endpoint in self if endpoint.ready}

    def probed(self, endpoint: Endpoint, health: Health, why: str = "") -> None:
        """What a probe found; a ready one may be late a few times."""
        if health is Health.NO_ANSWER and endpoint.ready:
            endpoint._timeouts += 1
            if endpoint._timeouts < MAX_TIMEOUTS:
                return
        endpoint.set_ready(health is Health.READY, why)

    def take(self) -> Endpoint | None:
        """The ready one with the fewest outstanding requests, which now has one more; None where none is ready.

        Of several with as few it is the one that was taken the longest ago: two activators that count for themselves
        spread what they have, each over all replicas.
        """
        ready = [endpoint for endpoint in self._known.values() if endpoint.ready]
        if not ready:
            return None
        chosen = min(ready, key=lambda endpoint: (endpoint.outstanding, endpoint._last_turn))
        self._turns += 1
        chosen._last_turn = self._turns
        chosen.outstanding += 1
        return chosen

    def give_back(self, endpoint: Endpoint) -> None:
        """One request is at its end there."""
        endpoint.outstanding -= 1
