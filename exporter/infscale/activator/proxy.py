"""One request through the activator: taken in, held while no replica is ready, handed over, answered. `serve` runs it.

    head -> queue (or 503) -> whole body -> a replica's turn, at once or when one is ready -> answer, piece by piece

A client that goes away cancels its own request wherever it stands (aiohttp's `handler_cancellation`), and with it the
replica's work. A replica that refuses the connection was sent nothing: the request goes back to its place in line.
After the first byte it is never sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from aiohttp import HttpVersion10, HttpVersion11, web

from infscale.activator.body import announced, read_body
from infscale.activator.comments import HeldClient, asks_for_stream
from infscale.activator.endpoints import Endpoint, Endpoints
from infscale.activator.headers import request_headers
from infscale.activator.queue import HoldQueue, QueueFull, Ticket
from infscale.activator.refusal import Refusal
from infscale.activator.relay import relay
from infscale.activator.release import Releaser
from infscale.activator.upstream import NotSent, Outgoing, Upstream

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rules:
    """How requests are treated.

    Attributes:
        max_body_bytes: of one request.
        keep_alive_s: from one comment to the next on a held stream; None: none.
    """

    max_body_bytes: int
    keep_alive_s: float | None = None


class Proxy:
    """What answers the requests of clients.

    Args:
        queue, endpoints, upstream, releaser: see their modules.
        rules: how requests are treated.
        on_held: called when a request has to wait.
    """

    def __init__(
        self,
        queue: HoldQueue,
        endpoints: Endpoints,
        upstream: Upstream,
        releaser: Releaser,
        rules: Rules,
        on_held: Callable[[], object],
    ) -> None:
        self._queue, self._endpoints, self._upstream = queue, endpoints, upstream
        self._releaser, self._rules, self._on_held = releaser, rules, on_held
        self._now = asyncio.get_running_loop().time
        self.under_way = 0
        self.stopping = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Cancelled when its client goes away."""
        self.under_way += 1
        try:
            response = await self._answer(request)
        except Refusal as refusal:
            response = refusal.response()
        except QueueFull as full:
            response = Refusal(503, str(full), close=True).response()  # and its descriptor is another's
        finally:
            self.under_way -= 1
        if self.stopping and not response.prepared:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        _check(request)
        ticket = self._queue.enter(announced(request, self._rules.max_body_bytes))
        try:
            client = HeldClient(request)
            try:
                return await self._pass_on(request, ticket, client)
            except Refusal as refusal:
                return await client.refuse(refusal)
        finally:
            self._leave(ticket)

    async def _pass_on(self, request: web.BaseRequest, ticket: Ticket, client: HeldClient) -> web.StreamResponse:
        body = await read_body(request, self._queue, ticket, self._rules.max_body_bytes)
        if self._rules.keep_alive_s and asks_for_stream(request, body):
            client.every_s = self._rules.keep_alive_s
        while True:
            endpoint = await self._turn(ticket, client)
            try:
                with self._at(endpoint):
                    headers = request_headers(request.headers, len(body), identity=client.response is not None)
                    outgoing = Outgoing(request.method, request.raw_path, headers, body)
                    answer = await self._upstream.send(endpoint, outgoing, partial(self._handed, ticket))
                    async with answer:
                        del outgoing, body  # nobody needs the body any more, and a stream may last
                        self._leave(ticket)
                        await client.fits(answer)
                        return await relay(request, answer, client.response, last=bool(self.stopping))
            except NotSent as fault:
                endpoint.set_ready(False, str(fault))

    async def _turn(self, ticket: Ticket, client: HeldClient) -> Endpoint:
        """The replica that a request goes to: at once where one is ready and nobody waits, else in line.

        Raises:
            Refusal: none was ready in time.
        """
        if not len(self._queue) and (endpoint := self._endpoints.take()) is not None:
            return endpoint
        turn: asyncio.Future[Endpoint | None] = asyncio.get_running_loop().create_future()
        self._queue.line_up(ticket, self._now(), partial(_resolve, turn))
        self._releaser.settled()
        self._releaser.news()
        self._on_held()
        try:
            found = await client.wait(turn)
        except BaseException:
            if not turn.cancel() and (given := turn.result()) is not None:
                self._endpoints.give_back(given)
            raise
        if found is None:
            self._queue.leave(ticket, self._now(), "stopped" if self.stopping else "timed_out")
            raise Refusal(503, self.stopping or f"no replica was ready within {self._queue.hold_s:g} s")
        return found

    @contextlib.contextmanager
    def _at(self, endpoint: Endpoint) -> Iterator[None]:
        try:
            yield
        finally:
            self._endpoints.give_back(endpoint)

    def _handed(self, ticket: Ticket) -> None:
        self._queue.handed(ticket, self._now())
        self._releaser.settled()

    def _leave(self, ticket: Ticket) -> None:
        self._queue.leave(ticket, self._now())
        self._releaser.settled()


def _resolve(turn: asyncio.Future[Endpoint | None], endpoint: Endpoint | None) -> bool:
    if turn.done():
        return False
    turn.set_result(endpoint)
    return True


def _check(request: web.BaseRequest) -> None:
    """Refuse what cannot be passed on.

    Raises:
        Refusal: a tunnel, a target that is no path, another version than HTTP/1.0 and 1.1, or two hosts in one Host: a
            replica might take the second. None, or two of the field, aiohttp refuses (RFC 9112 section 3.2).
    """
    # HTTP/0.9 has no headers and no body, 2 another framing, and yet the parser takes both.
    if not HttpVersion10 <= request.version <= HttpVersion11:
        raise Refusal(400, "the request names neither HTTP/1.0 nor HTTP/1.1: expected HTTP/1.1", close=True)
    if request.method == "CONNECT":
        raise Refusal(501, "tunnels are not for this proxy", close=True)
    if not request.raw_path.startswith("/"):
        raise Refusal(400, "the request's target is no path: expected as in POST /v1/completions", close=True)
    if "," in request.headers.get("Host", ""):
        raise Refusal(400, "a request needs exactly one Host header", close=True)
