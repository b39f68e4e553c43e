"""Whether it is this sidecar's turn to evaluate, among the peers that its source lists. Its evaluator asks.

A few speak for all, so that the reads grow with the replicas and not with their square; a query takes `max()` over
what they publish.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence

from infscale.errors import SourceError
from infscale.scrape import split_url

SPEAKERS = 3
"""Two may be lost at once before nobody evaluates."""

_EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (looked for, not listened on)


class Turn:
    """One sidecar among its peers.

    Args:
        names: the peers, as the source lists them now; may raise SourceError.
        speakers: how many of them evaluate.
        told: this sidecar's name among them; None: it is found.
        host, port: where this sidecar listens.
    """

    def __init__(
        self,
        names: Callable[[], tuple[str, ...]],
        *,
        speakers: int = SPEAKERS,
        told: str | None = None,
        host: str = "",
        port: int = 0,
    ) -> None:
        self._names, self._speakers = names, speakers
        self._me, self._host, self._port = told, host, port

    def why_not(self) -> str:
        """Why others evaluate, in one line; empty where this one is to.

        Where the peers cannot be listed it is to: they cannot be read either, and the evaluation says why.
        """
        try:
            names = self._names()
        except SourceError:
            return ""
        if len(names) <= self._speakers:
            return ""
        self._me = self._me or self._found(names)
        if self._me is None:
            return (
                f"none of the {len(names)} peers is known to be this sidecar: tell its name among them by --fleet.self"
            )
        before = sorted({name for name in names if name < self._me})  # one that is not listed yet stands where it will
        if len(before) < self._speakers:
            return ""
        return f"others evaluate this workload, ask one of them: {', '.join(before[: self._speakers])}"

    def _found(self, names: Sequence[str]) -> str | None:
        """The one name that can only be ours: where we listen, or else the only address that is this machine's."""
        ours = [name for name in names if self._is_ours(*_place(name))]
        return ours[0] if len(ours) == 1 else None

    def _is_ours(self, host: str, port: int) -> bool:
        if port and self._port and port != self._port:
            return False
        if self._host not in _EVERY_ADDRESS:
            return host == self._host
        return _is_local(host)


def _place(name: str) -> tuple[str, int]:
    """Host and port of a name: `10.0.0.1` (dns; port 0), `10.0.0.1:10047` (static)."""
    if name.count(":") != 1 and not name.startswith("["):
        return name, 0
    url = split_url(f"http://{name}")
    return url.host, url.port


def _is_local(host: str) -> bool:
    """Whether this machine has that address: only then can a socket be bound to it."""
    with contextlib.suppress(OSError), socket.socket(_family(host), socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return True
    return False


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
