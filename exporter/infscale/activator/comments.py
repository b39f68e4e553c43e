"""Keeps the stream of a client that is held alive: comments of Server-Sent Events, which every reader of them skips.

Gateways and clients end a connection on which nothing comes for a minute or so, and a cold start takes longer. The
price: the head of the answer, 200, is sent before a replica has said anything, so an error comes inside the stream.
Only with `--keep-alive`, and only to clients that asked for a stream. Called by the proxy.
"""

from __future__ import annotations

import asyncio
import json

import aiohttp
from aiohttp import web

from infscale.activator.endpoints import Endpoint
from infscale.activator.refusal import Refusal

COMMENT = b": held until a replica is ready\n\n"
_DONE = b"data: [DONE]\n\n"
_MAX_PARSED_BYTES = 1 << 20
"""A longer body is not parsed to find `stream`: that would hold everybody up."""

_MAX_ERROR_BYTES = 64 * 1024


def asks_for_stream(request: web.BaseRequest, body: bytearray) -> bool:
    """Whether a request wants Server-Sent Events: it says so, or has `"stream": true` as OpenAI's API has it."""
    if "text/event-stream" in request.headers.get("Accept", ""):
        return True
    if request.method != "POST" or len(body) > _MAX_PARSED_BYTES or b'"stream"' not in body:
        return False
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(asked, dict) and asked.get("stream") is True


class HeldClient:
    """The client's side of one request while it is held.

    Args:
        request: the client's.

    Attributes:
        every_s: from one comment to the next; None: none.
        response: the stream, once a comment has been sent; None before.
    """

    def __init__(self, request: web.BaseRequest) -> None:
        self.every_s: float | None = None
        self.response: web.StreamResponse | None = None
        self._request = request

    async def wait(self, turn: asyncio.Future[Endpoint | None]) -> Endpoint | None:
        """What the turn gives, with comments until then.

        Raises:
            ConnectionError: the client is gone.
        """
        while not turn.done():
            await asyncio.wait((turn,), timeout=self.every_s)
            if not turn.done():
                await self._comment()
        return turn.result()

    async def _comment(self) -> None:
        if self.response is None:
            headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
            self.response = web.StreamResponse(headers=headers)
            await self.response.prepare(self._request)
        await self.response.write(COMMENT)

    async def refuse(self, refusal: Refusal) -> web.StreamResponse:
        """Answer with an error: as a status, or as an event where the stream has begun."""
        if self.response is None:
            return refusal.response()
        await self.response.write(b"data: " + refusal.body() + b"\n\n" + _DONE)
        return self.response

    async def fits(self, answer: aiohttp.ClientResponse) -> None:
        """See to it that a replica's answer can follow the comments.

        Raises:
            Refusal: the stream has begun, and this is none; it carries the replica's own error, if it told one.
        """
        if self.response is None or (answer.status == 200 and answer.content_type == "text/event-stream"):
            return
        raise Refusal(answer.status, f"the replica answered HTTP {answer.status}: {await _words(answer)}")


async def _words(answer: aiohttp.ClientResponse) -> str:
    """What a replica says in an answer that is no stream, on one line."""
    said = b""
    while len(said) < _MAX_ERROR_BYTES and (piece := await answer.content.readany()):
        said += piece
    text = said[:_MAX_ERROR_BYTES].decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, RecursionError, TypeError, KeyError):
        pass
    return " ".join(str(text).split())
