"""The HTTP server: a `Listener` for each address, made by the sidecar and the recommender, stopped by `lifecycle`.

Connections that wait for their client are parked (`parking.py`); a worker gets one only while it has something to do.
So 200 silent clients cost 200 small objects, one that drips bytes costs no thread, and the number of threads follows
the requests in work. Everything is bounded: connections, requests in work, the size of a request, the time of a step.
"""

from __future__ import annotations

import logging
import select
from dataclasses import dataclass, field
from threading import Semaphore

from infscale.web.bind import listen
from infscale.web.compression import compressed, compressor
from infscale.web.connection import Connection, Timeouts
from infscale.web.message import Head, Request, RequestError, Response, text_response
from infscale.web.parking import Parking
from infscale.web.routes import Router
from infscale.web.stream import NotReadyError
from infscale.web.webconfig import WebConfig, WebSettings
from infscale.web.workers import Workers

log = logging.getLogger(__name__)

_SPARE_WORKERS = 2
"""Above max_requests: they say 503 and move bytes while that many handlers are at work."""

_LINGER_MS = 10
"""How long a worker stays with a client it has just answered: a busy one is served without a switch of threads."""

_PLAIN = WebSettings()


@dataclass(frozen=True)
class Limits:
    """What one listener bears.

    Attributes:
        max_requests: requests in work at once; one more is answered 503.
        max_connections: over it, the connection that has waited longest is closed.
        timeouts: how long clients may take.
    """

    max_requests: int = 40
    max_connections: int = 512
    timeouts: Timeouts = field(default_factory=Timeouts)


class Listener:
    """One listening address and its connections.

    Args:
        address: `HOST:PORT`, `[IPV6]:PORT` or `:PORT`.
        router: what answers which path; shared by listeners or not.
        flag: the flag that gave the address, for messages.
        web_config: TLS, client certificates, basic authentication, headers; None for plain HTTP.
        limits: what it bears.

    Raises:
        UsageError: nothing can listen on the address.
    """

    def __init__(
        self,
        address: str,
        router: Router,
        *,
        flag: str = "--web.listen-address",
        web_config: WebConfig | None = None,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self.address = address
        self._router = router
        self._web_config = web_config
        self._slots = Semaphore(limits.max_requests)
        self._compress = compressor()
        sock = listen(address, flag)
        self.port: int = sock.getsockname()[1]
        name = f"http-{self.port}"
        self._workers: Workers[Connection] = Workers(self._serve, limits.max_requests + _SPARE_WORKERS, name)
        self._parking = Parking(sock, self._workers.submit, limits.timeouts, limits.max_connections, name)

    def start(self) -> None:
        """Begin to answer."""
        self._parking.start()

    def stop(self, drain_s: float) -> bool:
        """Refuse new connections and let the requests under way be answered.

        Returns:
            True when all were, False when some were not within `drain_s` seconds; their threads are daemons.
        """
        drained = self._parking.stop(drain_s)
        self._workers.close()
        return drained

    def _settings(self) -> WebSettings:
        return self._web_config.current() if self._web_config else _PLAIN

    def _serve(self, connection: Connection) -> None:
        """Take a connection as far as it goes without waiting for its client. A worker's whole work."""
        try:
            while self._advance(connection):
                if self._workers.backlog:
                    self._workers.submit(connection)  # to the end of the queue: nobody is served for ever
                    return
        except NotReadyError as wait:
            self._parking.park(connection, wait.event)
            return
        except OSError as error:
            level = logging.INFO if connection.handshaking else logging.DEBUG
            what = "TLS handshake failed" if connection.handshaking else "connection lost"
            log.log(level, what, extra={"client": connection.client, "reason": str(error)})
        except Exception:
            log.exception("connection failed", extra={"client": connection.client})  # a worker outlives any of them
        self._parking.forget(connection)

    def _advance(self, connection: Connection) -> bool:
        """Take one step; False when the connection is at its end."""
        try:
            connection.begin(self._settings().wrap)
            if not connection.flush():
                return False
            received = connection.next_request()
        except RequestError as error:
            connection.refuse(error)
            return True
        if received is None:
            return connection.receive()
        self._answer(connection, *received)
        if not connection.flush():
            return False
        if connection.idle and not self._workers.backlog and not self._parking.stopping:
            _wait_readable(connection.fd, _LINGER_MS)
        return True

    def _answer(self, connection: Connection, head: Head, request: Request) -> None:
        settings = self._settings()
        response = self._response(request, settings)
        try:
            connection.answer(head, response, settings.headers, close=self._parking.stopping)
        except ValueError:
            log.exception("answer cannot be sent", extra={"method": request.method, "path": request.path})
            connection.answer(head, _internal_error(), settings.headers, close=self._parking.stopping)

    def _response(self, request: Request, settings: WebSettings) -> Response:
        if not self._slots.acquire(blocking=False):
            return text_response(503, "too many requests at once, try again", {"Retry-After": "1"})
        try:
            refusal = settings.auth.refusal(request.headers.get("authorization", "")) if settings.auth else None
            return refusal or compressed(request, self._router.dispatch(request), self._compress)
        except Exception:
            # A handler's fault is its own: the client learns that there was one, the log what it was.
            log.exception("request failed", extra={"method": request.method, "path": request.path})
            return _internal_error()
        finally:
            self._slots.release()


def _internal_error() -> Response:
    return text_response(500, "internal error; the log of this process says more")


def _wait_readable(fd: int, timeout_ms: int) -> None:
    """Wait until a descriptor is readable, at most so long."""
    poll = select.poll()  # select.select cannot watch descriptors from 1024 on
    poll.register(fd, select.POLLIN)
    poll.poll(timeout_ms)
