"""What a member's own sidecar says of it: `/api/v1/reading`, read as values. Pure.

The sidecar's word is a claim. `member` holds it against the series on the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from infscale.reading import MISCONFIGURED, STATS_DISABLED, UNREACHABLE
from infscale.retire.rules import Reason, Rule

READING_PATH = "/api/v1/reading"
WITHDRAW_PATH = "/withdraw"


@dataclass(frozen=True, slots=True)
class Clients:
    """Connections of the engines' clients, on the sidecar's clock (Unix seconds).

    Attributes:
        established: now, idle keep-alive ones included.
        queued: of them, with bytes that were not taken yet.
        last_seen_s: when one was there last; None when none was since `looked_since_s`.
        looked_since_s: since when it is looked without a gap.
        looked_at_s: the instant of this look; None where the sidecar does not tell.
    """

    established: float
    queued: float
    last_seen_s: float | None
    looked_since_s: float
    looked_at_s: float | None

    def quiet_s(self, now_s: float) -> float:
        """For how long no client was connected; `now_s` is taken where the sidecar does not tell its own time."""
        at_s = now_s if self.looked_at_s is None else self.looked_at_s
        return at_s - max(self.looked_since_s, self.last_seen_s or self.looked_since_s)


@dataclass(frozen=True, slots=True)
class EngineSaid:
    """One engine beside the sidecar, by its name (None: not known yet), role and start."""

    engine: str | None
    role: str | None
    port: int | None
    started_at_s: float | None
    state: str
    message: str


@dataclass(frozen=True, slots=True)
class Envelope:
    """The sidecar's word.

    Attributes:
        complete: every engine gave all its gauges on a read of now.
        inflight: requests in flight; None where it shows none.
        state, message: of the replica.
        withdrawn: it fails its readiness on request.
        clients: None where they cannot be seen.
        read_at_s: when the engine was read, on the sidecar's clock.
        pod_uid: of the Pod that it is in; None where it was not told.
        engines: beside it, at least one.
    """

    complete: bool
    inflight: float | None
    state: str
    message: str
    withdrawn: bool
    clients: Clients | None
    read_at_s: float | None
    pod_uid: str | None
    engines: tuple[EngineSaid, ...]

    @property
    def claims_idle(self) -> bool:
        """Whether it says that nothing is in flight, on complete gauges."""
        return self.complete and self.inflight == 0

    @property
    def lack(self) -> str:
        """What it lacks to be complete, as a line: what is unusable before what is missing."""
        faults = [engine for engine in self.engines if engine.message] or [
            EngineSaid(None, None, None, None, self.state, self.message)
        ]
        worst = min(faults, key=lambda fault: _ORDER.get(fault.state, len(_ORDER)))
        return f"{worst.state}: {worst.message or 'the sidecar gives no reason'}"


_ORDER = {UNREACHABLE: 0, MISCONFIGURED: 1, STATS_DISABLED: 2}


def parse_envelope(body: bytes) -> Envelope | Reason:
    """The envelope in an answer of `/api/v1/reading`, or why it is none."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return _no_envelope("it is no JSON")
    try:
        return _envelope(_Said(said))
    except _WrongError as wrong:
        return _no_envelope(str(wrong))


def _no_envelope(why: str) -> Reason:
    return Reason(Rule.READ_FAILED, f"the sidecar's {READING_PATH} is not what it should be: {why}")


class _WrongError(Exception):
    """A field that is absent or of another type."""


class _Said:
    """A JSON object whose fields are asked for by type; bool is no number."""

    def __init__(self, json: object) -> None:
        if not isinstance(json, Mapping):
            raise _WrongError("expected an object")
        self._json = json

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._json.get(key)
        if not isinstance(value, bool):
            raise _WrongError(f"{key}: expected true or false")
        return value

    def number(self, key: str) -> float | None:
        """A number, 0 or more; None where it is null or absent."""
        value = self._json.get(key)
        if value is None:
            return None
        # Python's JSON has NaN, Infinity and integers of any length; float64 ends at 1.8e308.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
            raise _WrongError(f"{key}: expected a number, 0 or more, or null")
        return value

    def count(self, key: str) -> float:
        """A number, 0 or more, that has to be there."""
        value = self.number(key)
        if value is None:
            raise _WrongError(f"{key}: expected a number, 0 or more")
        return value

    def text(self, key: str) -> str | None:
        """Text; None where it is null or absent."""
        value = self._json.get(key)
        if value is not None and not isinstance(value, str):
            raise _WrongError(f"{key}: expected text or null")
        return value

    def at(self, key: str) -> _Said | None:
        """The object within; None where it is null or absent."""
        value = self._json.get(key)
        return None if value is None else _Said(value)

    def items(self, key: str) -> list[_Said]:
        """The objects of a list that is not empty."""
        value = self._json.get(key)
        if not isinstance(value, list) or not value:
            raise _WrongError(f"{key}: expected a list with something in it")
        return [_Said(item) for item in value]


def _envelope(said: _Said) -> Envelope:
    pod, clients = said.at("pod"), said.at("client_connections")
    return Envelope(
        complete=said.flag("complete"),
        inflight=said.number("inflight"),
        state=said.text("state") or "",
        message=said.text("message") or "",
        withdrawn=said.flag("withdrawn"),
        clients=_clients(clients) if clients else None,
        read_at_s=said.number("read_at"),
        pod_uid=pod.text("uid") if pod else None,
        engines=tuple(_engine(engine) for engine in said.items("engines")),
    )


def _clients(said: _Said) -> Clients:
    return Clients(
        established=said.count("established"),
        queued=said.count("queued"),
        last_seen_s=said.number("last_seen_at"),
        looked_since_s=said.count("looked_since"),
        looked_at_s=said.number("looked_at"),
    )


def _engine(said: _Said) -> EngineSaid:
    port = said.number("port")
    return EngineSaid(
        engine=said.text("engine"),
        role=said.text("role"),
        port=None if port is None else int(port),
        started_at_s=said.number("started_at"),
        state=said.text("state") or "",
        message=said.text("message") or "",
    )
