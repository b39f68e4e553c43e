"""The workload's side of the activator: a request goes to one replica, a probe asks one whether it is ready.

aiohttp's client does the HTTP; what it must not do here is switched off: no proxy of the environment, no redirects, no
cookies, no decompression, and no second try of its own. Called by the proxy and the prober.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from infscale.activator.endpoints import Endpoint, Health
from infscale.activator.refusal import Refusal
from infscale.activator.settings import Settings, upstream_url
from infscale.scrape_wire import tls_context

KEPT_S = 2.0
"""An idle connection is used again for this long. uvicorn (vLLM, SGLang) and llama.cpp end theirs after 5 s, and a
request that meets that end is lost: it may have been read, and must not be sent again."""

_SLICE_BYTES = 256 * 1024
"""Of a body, written at once: what a replica does not take is not copied into the connection's buffer."""

_AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class NotSent(Exception):
    """No connection to the replica: not one byte was sent, so another may be tried."""


class _SentBefore(Exception):
    """aiohttp is about to send a request for the second time."""


@dataclass(frozen=True)
class Outgoing:
    """A request as a replica gets it.

    Attributes:
        method: as the client sent it.
        path: path and query, as the client sent them.
        headers: see `headers.request_headers`.
        body: whole.
    """

    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytearray


class Upstream:
    """The replicas behind one URL; each is reached at its own address. Made on the loop.

    Args:
        settings: of which the URL gives the port, and the name that certificates are for.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = url = upstream_url(settings.upstream)
        self._read_timeout_s, connect_s = settings.read_timeout_s, settings.connect_timeout_s
        self._server_name = url.host if url.scheme == "https" else None
        tls: ssl.SSLContext | bool = tls_context(settings.ca_file, False) if url.scheme == "https" else True
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_on_headers_sent)
        self._requests = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_S, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=settings.read_timeout_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTO_HEADERS,
            trace_configs=[trace],
        )
        # A probe wants to know whether somebody accepts connections, so it never uses one again.
        self._probes = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """End all connections."""
        await self._requests.close()
        await self._probes.close()

    async def send(
        self, endpoint: Endpoint, outgoing: Outgoing, on_sent: Callable[[], object]
    ) -> aiohttp.ClientResponse:
        """Send a request, once; returns its answer, of which the head is there.

        Args:
            endpoint: the replica.
            outgoing: the request.
            on_sent: called when there is a connection and the first byte is about to be sent.

        Raises:
            NotSent: there was no connection.
            Refusal: 502 or 504; the request may have been read.
        """
        sent = False

        def once() -> None:
            """Tell that the request goes out; a second time it is not sent again."""
            nonlocal sent
            if sent:
                raise _SentBefore
            sent = True
            on_sent()

        try:
            return await self._requests.request(
                outgoing.method,
                self._address(endpoint, outgoing.path),
                data=_payload(outgoing.body),
                headers=outgoing.headers,
                allow_redirects=False,
                server_hostname=self._server_name,
                trace_request_ctx=once,
            )
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            if not sent:
                raise NotSent(str(error) or "no connection in time") from None
            if isinstance(error, TimeoutError):
                raise Refusal(504, f"the replica did not answer within {self._read_timeout_s:g} s") from None
            raise Refusal(502, "the replica ended the connection before it answered") from None
        except _SentBefore:
            raise Refusal(502, "the replica ended the connection before it answered") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise Refusal(502, f"the replica's answer cannot be used: {type(error).__name__}") from None

    async def probe(self, endpoint: Endpoint, path: str) -> tuple[Health, str]:
        """Ask a replica whether it is ready, and if not, why not."""
        try:
            async with self._probes.get(
                self._address(endpoint, path), allow_redirects=False, server_hostname=self._server_name
            ) as answer:
                ready = 200 <= answer.status < 300
                # The body is not read: it may be of any length, and the connection ends here anyway.
                answer.close()
        except TimeoutError:
            return Health.NO_ANSWER, "no answer in time"
        except (aiohttp.ClientError, OSError) as error:
            return Health.NOT_READY, str(error)
        return (Health.READY, "") if ready else (Health.NOT_READY, f"HTTP {answer.status} for {path}")

    def _address(self, endpoint: Endpoint, path: str) -> URL:
        host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
        return URL(f"{self._url.scheme}://{host}:{self._url.port}{path}", encoded=True)


async def _on_headers_sent(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx()


def _payload(body: bytearray) -> bytearray | AsyncIterator[memoryview] | None:
    if len(body) <= _SLICE_BYTES:
        return body or None
    return _slices(memoryview(body))


async def _slices(body: memoryview) -> AsyncIterator[memoryview]:
    for start in range(0, len(body), _SLICE_BYTES):
        yield body[start : start + _SLICE_BYTES]
