"""`/withdraw`: the sidecar takes its replica out of rotation for whoever has the token, and puts it back by itself.

A retirement asks for it before it deletes the Pod: readiness fails, so that no Service sends requests any more, while
the engine goes on with those that it has. It is a lease: a retirement that dies renews it no more, and the replica is
back. `Withdrawal` is the lease, pure on a clock; `WithdrawEndpoint` answers the main listener's path. Wired by
`infscale.cli.sidecar_withdraw`.
"""

from __future__ import annotations

import hmac
import logging
import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from infscale.errors import UsageError
from infscale.scrape_token import read_token
from infscale.serving import json_response
from infscale.web.message import Request, Response, text_response
from infscale.web.routes import Router

log = logging.getLogger(__name__)

PATH = "/withdraw"
HEADER = "X-Infscale-Token"

DEFAULT_LEASE_S, MIN_LEASE_S, MAX_LEASE_S = 60.0, 5.0, 300.0
"""The longest is a whole retirement's budget: what died leaves no replica idle for longer."""

LOOK_S = 1.0
"""From one look at the engine's clients to the next while withdrawn: ten of them make the 10 s without a client that a
retirement waits for."""


class Withdrawal:
    """Whether the replica is withdrawn, and until when. From any thread.

    Args:
        clock: monotonic seconds: a wall clock that jumps neither ends a lease nor keeps it.
        wall_clock: Unix seconds, for what is shown.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._wall_clock = clock, wall_clock
        self._lease: tuple[float, float] | None = None  # its end on either clock; replaced as a whole

    def renew(self, lease_s: float) -> float:
        """Withdraw for so long from now on, whatever was left before; its end in Unix seconds."""
        until_s = self._wall_clock() + lease_s
        self._lease = (self._clock() + lease_s, until_s)
        return until_s

    def end(self) -> bool:
        """Put the replica back; whether it was withdrawn."""
        was, self._lease = self.active(), None
        return was

    def active(self) -> bool:
        """Whether the replica is withdrawn now."""
        return self.until_s() is not None

    def until_s(self) -> float | None:
        """The lease's end in Unix seconds; None while there is none, or it has run out."""
        lease = self._lease
        return lease[1] if lease is not None and self._clock() < lease[0] else None

    def why_not_ready(self) -> str:
        """For the readiness probe: why the replica is not ready, in one line; empty if it is."""
        until_s = self.until_s()
        if until_s is None:
            return ""
        return f"withdrawn until {datetime.fromtimestamp(until_s, UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}"


class WithdrawEndpoint:
    """Answers `/withdraw`, and looks at the engine's clients each second while the replica is withdrawn.

    Args:
        withdrawal: the lease.
        token_file: holds the token, read anew for each request; None: everything is refused.
        look: looks at the clients.
        look_s: from one look to the next, in seconds.
    """

    def __init__(
        self,
        withdrawal: Withdrawal,
        token_file: str | None,
        *,
        look: Callable[[], object] = lambda: None,
        look_s: float = LOOK_S,
    ) -> None:
        self._withdrawal, self._token_file = withdrawal, token_file
        self._look, self._look_s = look, look_s
        self._lock = threading.Lock()
        self._wake = threading.Event()  # the lease was ended
        self._thread: threading.Thread | None = None
        self._fault = ""

    def add_routes(self, router: Router) -> None:
        """Add the path to the main listener's router."""
        router.add(PATH, self._withdraw, methods=("POST",))
        router.add(PATH, self._put_back, methods=("DELETE",))

    def start(self) -> None:
        """Look at the token file, so that a wrong one is told at the start. It may come later: a Secret may."""
        if self._token_file is not None:
            self._token(self._token_file)

    def stop(self, drain_s: float) -> bool:
        """End the lease and the looking; see `infscale.web.lifecycle.Stoppable`."""
        self._withdrawal.end()
        self._wake.set()
        thread = self._thread
        if thread is not None:
            thread.join(drain_s)
        return thread is None or not thread.is_alive()

    def _withdraw(self, request: Request) -> Response:
        """`POST /withdraw?lease=SECONDS`."""
        if refusal := self._refusal(request):
            return refusal
        try:
            lease_s = lease_of(request)
        except UsageError as error:
            return text_response(400, str(error))
        with self._lock:
            if not self._withdrawal.active():
                log.info("withdrawn: not ready on request", extra={"lease_s": lease_s, "client": request.client})
            until_s = self._withdrawal.renew(lease_s)
            self._wake.clear()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="withdrawn", daemon=True)
                self._thread.start()
        return json_response({"withdrawn": True, "until": until_s})

    def _put_back(self, request: Request) -> Response:
        """`DELETE /withdraw`."""
        if refusal := self._refusal(request):
            return refusal
        with self._lock:
            if self._withdrawal.end():
                log.info("back in rotation", extra={"client": request.client})
            self._wake.set()
        return json_response({"withdrawn": False, "until": None})

    def _watch(self) -> None:
        """Look until the lease has ended, in either way."""
        while True:
            with self._lock:
                if not self._withdrawal.active():
                    if not self._wake.is_set():
                        log.warning("back in rotation", extra={"reason": "the lease ran out and was not renewed"})
                    self._thread = None
                    return
            try:
                self._look()
            except Exception:
                log.exception("look at the engine's clients failed")
            self._wake.wait(self._look_s)

    def _refusal(self, request: Request) -> Response | None:
        """403 without the right token; which of both is at fault is told, the token never."""
        if self._token_file is None:
            return _forbidden("no token is configured: start the sidecar with --withdraw.token-file FILE")
        token = self._token(self._token_file)
        if not token:
            return _forbidden("the sidecar's own token cannot be read: its log says why")
        said = request.headers.get(HEADER)
        if said is None:
            return _forbidden(f"the header {HEADER} is missing")
        if not hmac.compare_digest(said.encode("latin-1"), token.encode("latin-1")):
            return _forbidden(f"the token in {HEADER} is not the one of this sidecar: was it replaced?")
        return None

    def _token(self, path: str) -> str:
        """The token as it is now; empty if it cannot be read: a line for each new fault, not for each request."""
        token = fault = ""
        try:
            token = read_token(path)
        except UsageError as error:
            fault = str(error)
        if fault and fault != self._fault:
            log.warning("nothing can be withdrawn", extra={"reason": fault})
        self._fault = fault
        return token


def lease_of(request: Request) -> float:
    """The seconds of the query's `lease`, or the default.

    Raises:
        UsageError: it is no number within the bounds, or is given twice.
    """
    given = request.query.get("lease", [str(DEFAULT_LEASE_S)])
    try:
        lease_s = float(given[0]) if len(given) == 1 else math.nan
    except ValueError:
        lease_s = math.nan
    if not MIN_LEASE_S <= lease_s <= MAX_LEASE_S:
        shown = ", ".join(given)[:40]
        raise UsageError(f"lease is {shown!r}: expected seconds, {MIN_LEASE_S:g} to {MAX_LEASE_S:g}, as lease=60")
    return lease_s


def _forbidden(why: str) -> Response:
    return text_response(403, f"not allowed: {why}")
