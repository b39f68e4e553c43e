"""The body of a request: read whole, once, into one buffer, before the request is lined up or passed on.

Whole, because a replica must not wait for a slow client, and because a connection that is refused can be tried
elsewhere. Called by the proxy.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from infscale.activator.queue import HoldQueue, Ticket
from infscale.activator.refusal import Refusal

READ_S = 60.0
"""For a body, from the head to the last byte: 16 MiB in that time are 2.2 Mbit/s."""


def announced(request: web.BaseRequest, max_bytes: int) -> int:
    """The length that the head announces; 0 where there is no body, or a chunked one.

    Raises:
        Refusal: it is more than `max_bytes`.
    """
    length = request.content_length or 0
    if length > max_bytes:
        raise too_large(max_bytes)
    return length


async def read_body(request: web.BaseRequest, queue: HoldQueue, ticket: Ticket, max_bytes: int) -> bytearray:
    """The body, as it was sent, without the chunks that it came in.

    Raises:
        Refusal: it is longer than `max_bytes`, broken, or not there in time.
        QueueFull: it was not announced, and there is no room for it.
    """
    body = bytearray()
    if not request.can_read_body:
        return body
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        if request.content.is_eof():  # it came with the head, as most do: no timer is needed
            await _read(request, queue, ticket, body, max_bytes)
        else:
            async with asyncio.timeout(READ_S):
                await _read(request, queue, ticket, body, max_bytes)
    except TimeoutError:
        raise Refusal(408, f"the request's body did not come within {READ_S:g} s", close=True) from None
    except web.RequestPayloadError as error:
        raise Refusal(400, f"the request's body is broken: {error}", close=True) from None
    return body


async def _read(request: web.BaseRequest, queue: HoldQueue, ticket: Ticket, body: bytearray, max_bytes: int) -> None:
    while chunk := await request.content.readany():
        if len(body) + len(chunk) > max_bytes:
            raise too_large(max_bytes)
        body += chunk
        if len(body) > ticket.size_bytes:
            queue.grow(ticket, len(body) - ticket.size_bytes)


def too_large(max_bytes: int) -> Refusal:
    """The answer to a body that is too long."""
    return Refusal(413, f"the request's body is longer than {max_bytes} bytes (--max-body-bytes)", close=True)
