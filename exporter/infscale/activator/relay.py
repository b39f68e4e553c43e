"""An answer on its way from a replica to the client: each piece is written as it comes, and nothing is gathered.

A client that is slow slows down the reading of its own answer, and nobody else's. Called by the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct

import aiohttp
from aiohttp import web

from infscale.activator.headers import response_headers

log = logging.getLogger(__name__)

STALL_S = 300.0
"""A client that takes nothing for so long has its connection ended; looked at once in that time."""

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for 0 seconds. A connection that is closed ends with RST then, and not as after an answer."""


async def relay(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, begun: web.StreamResponse | None, *, last: bool
) -> web.StreamResponse:
    """Pass an answer on, to its end.

    Args:
        request: the client's.
        answer: its head is there.
        begun: the response to the client, where its head has been sent already.
        last: end the client's connection with it.

    Returns:
        The response; cut off without its end, where the replica did not end it.

    Raises:
        ConnectionError: the client is gone.
    """
    response = begun or web.StreamResponse(
        status=answer.status, reason=answer.reason, headers=response_headers(answer.headers)
    )
    if begun is None:
        if last:
            response.force_close()
        await response.prepare(request)
    with _Watch(request) as watch:
        try:
            while piece := await answer.content.readany():
                watch.writing = True
                await response.write(piece)
                watch.writing = False
                watch.written += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the client is gone") from None
            log.warning("answer broken off", extra={"path": request.path, "reason": str(error) or "no byte in time"})
            break_off(request, response)
    return response


def break_off(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """End the client's connection so that it cannot take what it got for the whole.

    What was written is still delivered where the client knows that more was to come; where only the connection's end
    tells the end of the answer (HTTP/1.0), it is reset.
    """
    transport = request.transport
    if transport is None:
        return
    if "Transfer-Encoding" in response.headers or "Content-Length" in response.headers:
        transport.close()
        asyncio.get_running_loop().call_later(STALL_S, transport.abort)
    else:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()


class _Watch(contextlib.AbstractContextManager["_Watch"]):
    """Ends the connection of a client that takes nothing any more. A timer for each piece would cost more than it."""

    def __init__(self, request: web.BaseRequest) -> None:
        self.writing = False
        self.written = 0
        self._request = request
        self._seen = -1
        self._timer = self._later()

    def __exit__(self, *_error: object) -> None:
        self._timer.cancel()

    def _later(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(STALL_S, self._look)

    def _look(self) -> None:
        transport = self._request.transport
        if self.writing and self.written == self._seen and transport is not None:
            log.warning("client takes nothing", extra={"client": self._request.remote})
            transport.abort()
            return
        self._seen = self.written
        self._timer = self._later()
