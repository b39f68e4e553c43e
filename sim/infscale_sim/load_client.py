"""One streaming request to an OpenAI-compatible server over a socket of its own, for `load_run`.

The standard library has no asyncio HTTP client, and the proxies of the environment must not apply. Every request
opens a connection unless `keep_alive`: behind kube-proxy a connection is what is balanced, not a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from infscale.errors import SourceError, UsageError
from infscale.scrape_url import Url, split_url

_LIMIT_BYTES = 1 << 20
_PIECE_BYTES = 64 * 1024
_CONNECT_S = 10.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RequestFailedError(Exception):
    """A request without a whole answer. Its text is the kind, a few words the same for all alike."""


@dataclass(frozen=True)
class Event:
    """What one chunk of the stream says.

    Attributes:
        text: whether it brings text.
        tokens: the server's count of generated tokens, in the chunk that has it.
        ended: whether it holds the reason of the end.
    """

    text: bool = False
    tokens: int | None = None
    ended: bool = False


class Client:
    """Sends requests to one server.

    Attributes:
        url: of the completions call.
        chat: whether that is the chat call.
    """

    def __init__(self, url: str, *, key: str = "", keep_alive: bool = False) -> None:
        self.url = completions_url(url)
        self.chat = self.url.path.endswith("/chat/completions")
        self._key, self._keep_alive = key, keep_alive
        self._tls = ssl.create_default_context() if self.url.scheme == "https" else None
        self._idle: list[Streams] = []
        self._addresses = itertools.cycle(_addresses(self.url))

    @property
    def shown_url(self) -> str:
        """The call's URL, for people."""
        return f"{self.url.scheme}://{self.url.place}{self.url.path}"

    async def models(self) -> list[str]:
        """Return the models that the server lists.

        Raises:
            SourceError: it cannot be asked, in one line.
        """
        path = self.url.path.removesuffix("/completions").removesuffix("/chat") + "/models"
        place = f"{self.url.scheme}://{self.url.place}{path}"
        try:
            async with asyncio.timeout(_CONNECT_S):
                body = await self._get(path)
            return [str(entry["id"]) for entry in json.loads(body)["data"]]
        except TimeoutError:
            raise SourceError(f"{place}: no answer within {_CONNECT_S:g} s") from None
        except RequestFailedError as error:
            raise SourceError(f"{place}: {error}; is the server up, and is this its address?") from None
        except (ValueError, KeyError, TypeError):
            raise SourceError(f"{place}: the answer is no list of models; tell the model with --model") from None

    async def stream(self, fields: dict[str, Any], tell: Callable[[Event], None]) -> None:
        """Send a request and tell of each chunk of its answer.

        Raises:
            RequestFailedError: with the kind of the failure.
        """
        body = json.dumps({**fields, "stream": True, "stream_options": {"include_usage": True}}).encode()
        reader, writer = await self._send("POST", self.url.path, body)
        reusable = False
        try:
            reusable = await self._read_stream(reader, tell)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise RequestFailedError(_kind(error)) from None
        finally:
            if reusable:
                self._idle.append((reader, writer))
            else:
                writer.transport.abort()

    def close(self) -> None:
        """Close the idle connections."""
        for _, writer in self._idle:
            writer.transport.abort()
        self._idle.clear()

    async def _get(self, path: str) -> bytes:
        reader, writer = await self._send("GET", path, b"")
        try:
            status, headers = await _read_head(reader)
            body = b""
            async for piece in _pieces(reader, headers):
                body += piece
                if len(body) > _LIMIT_BYTES:
                    raise ValueError("an answer is too large")
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise RequestFailedError(_kind(error)) from None
        finally:
            writer.transport.abort()
        if status != 200:
            raise RequestFailedError(f"http {status}")
        return body

    async def _send(self, method: str, path: str, body: bytes) -> Streams:
        """Send a request over a kept connection, or a new one where there is none or the server closed it."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.url.host_header}", "User-Agent: infscale-load"]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "Accept: text/event-stream"]
        lines += [f"Authorization: Bearer {self._key}"] if self._key else []
        lines += [] if self._keep_alive else ["Connection: close"]
        data = "\r\n".join([*lines, "", ""]).encode() + body
        while self._idle:
            reader, writer = self._idle.pop()
            if reader.at_eof() or writer.is_closing():
                writer.transport.abort()
                continue
            writer.write(data)
            return reader, writer
        try:
            async with asyncio.timeout(_CONNECT_S):
                name = self.url.host if self._tls else None
                host, port = next(self._addresses)
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=self._tls, server_hostname=name, limit=_LIMIT_BYTES
                )
        except TimeoutError:
            raise RequestFailedError("connect timed out") from None
        except ssl.SSLError:
            raise RequestFailedError("tls failed") from None
        except OSError as error:
            raise RequestFailedError(_kind(error)) from None
        writer.write(data)
        return reader, writer

    async def _read_stream(self, reader: asyncio.StreamReader, tell: Callable[[Event], None]) -> bool:
        """Read an answer to its end; whether the connection can be used again."""
        status, headers = await _read_head(reader)
        if status != 200:
            raise RequestFailedError(f"http {status}")
        if not headers.get("content-type", "").startswith("text/event-stream"):
            raise RequestFailedError("not a stream")
        try:
            ended = await self._read_events(reader, headers, tell)
        except asyncio.IncompleteReadError:
            ended = False
        if not ended:
            raise RequestFailedError("cut")
        chunked = headers.get("transfer-encoding") == "chunked"
        return self._keep_alive and chunked and headers.get("connection", "").lower() != "close"

    async def _read_events(
        self, reader: asyncio.StreamReader, headers: dict[str, str], tell: Callable[[Event], None]
    ) -> bool:
        """Tell of each chunk of an answer's body; whether the stream said its end."""
        buffer, ended = b"", False
        async for piece in _pieces(reader, headers):
            *lines, buffer = (buffer + piece).split(b"\n")
            if len(buffer) > _LIMIT_BYTES:
                raise RequestFailedError("bad answer")
            for line in lines:
                payload = line[5:].strip() if line.startswith(b"data:") else b""
                if payload and payload != b"[DONE]":
                    event = read_event(payload)
                    ended |= event.ended
                    tell(event)
        return ended


def completions_url(url: str) -> Url:
    """Return the URL of the completions call: of a server, of its `/v1`, or of the call itself (chat too).

    Raises:
        UsageError: it is no http or https URL.
    """
    parts = split_url(url)
    path = parts.path.partition("?")[0].rstrip("/")
    if not path.endswith("/completions"):
        path += "/completions" if path.endswith("/v1") else "/v1/completions"
    return Url(parts.scheme, parts.host, parts.port, path)


def _addresses(url: Url) -> list[tuple[str, int]]:
    """Return the server's addresses, looked up once: a lookup for every connection would be part of its time."""
    try:
        found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"no such host {url.host!r}: {error.strerror or error}") from None
    return [(str(place[0]), int(place[1])) for _, _, _, _, place in found]


def read_event(payload: bytes) -> Event:
    """Read one chunk of a stream.

    Raises:
        RequestFailedError: it is not JSON, or tells of an error.
    """
    try:
        chunk = json.loads(payload)
        if "error" in chunk:
            raise RequestFailedError("error in the stream")
        usage = chunk.get("usage")
        tokens = usage.get("completion_tokens") if usage else None
        if not (tokens is None or (isinstance(tokens, int) and tokens >= 0)):
            raise TypeError
        choices = chunk.get("choices")
        if not choices:
            return Event(tokens=tokens)
        choice = choices[0]
        delta = choice.get("delta") or {}
        text = choice.get("text") or delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
        return Event(bool(text), tokens, choice.get("finish_reason") is not None)
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        raise RequestFailedError("bad answer") from None


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Return an answer's status and header fields, names in lower case."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    parts = first.split(" ")
    if not first.startswith("HTTP/1.") or len(parts) < 2 or not parts[1].isdigit():
        raise ValueError("not an HTTP answer")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(parts[1]), fields


async def _pieces(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """Yield an answer's body as it comes: chunked, of a length, or to the end of the connection."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            if size > _LIMIT_BYTES:
                raise ValueError("a chunk is too large")
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass  # trailers
        return
    left = int(headers.get("content-length", 1 << 62))
    while left > 0 and (data := await reader.read(min(left, _PIECE_BYTES))):
        left -= len(data)
        yield data


def _kind(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return "reset"
    if isinstance(error, asyncio.IncompleteReadError):
        return "closed"
    if isinstance(error, OSError):
        return f"network ({error.strerror or type(error).__name__})"
    return "bad answer"
