"""How the API server stand-in speaks HTTP, and how it goes wrong (`Fault`). `apiserver` has the answers."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.kube.podproxy import Route, relay
from tests.kube.store import Json, Refused

if TYPE_CHECKING:
    from tests.kube.apiserver import ApiServer


@dataclass
class Fault:
    """What goes wrong with the next `times` requests that match.

    Attributes:
        what: `slow`, `hang`, `reset`, `drip` (a header that never ends), `cut` (the connection ends within the body),
            `broken` (half of the JSON), `html`, or `status` (a Status object instead of doing anything).
        path: part of the path. method: empty for all.
        seconds: for slow. status: for status and html. retry_after: a header.
    """

    what: str
    path: str = "/namespaces/"
    method: str = ""
    times: int = 1
    seconds: float = 0.0
    status: int = 200
    retry_after: int | None = None


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    raw_path: str
    headers: dict[str, str]
    body: Any
    content_type: str
    authorization: str


class Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, api: ApiServer, tls: ssl.SSLContext | None) -> None:
        self.api, self._tls, self._connections = api, tls, set[socket.socket]()
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """A new connection."""
        sock, address = super().get_request()
        if self._tls:  # the handshake is done by the first read, in the connection's thread
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._connections.add(sock)
        return sock, address

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        self._connections.discard(request)
        self.close_request(request)

    def end_connections(self) -> None:
        """Let no client wait for the end of its connection."""
        for sock in list(self._connections):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left or does not trust us is none of our business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body after its head would wait 40 ms for the client's acknowledgement
    server: Server

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        api, url, data = self.server.api, urlsplit(self.path), self._body()
        proxied = "/proxy/" in url.path
        request = Request(
            method=self.command,
            path=unquote(url.path),
            query={key: values[-1] for key, values in parse_qs(url.query).items()},
            raw_path=self.path,
            headers=dict(self.headers),
            body=data if proxied else _json(data),
            content_type=self.headers.get("Content-Type") or "",
            authorization=self.headers.get("Authorization") or "",
        )
        with api.lock:
            api.requests.append(request)
            hits = [f for f in api.faults if f.times and f.path in url.path and f.method in ("", self.command)]
            fault = hits[0] if hits else Fault("")
            fault.times -= 1
        if self._unanswered(fault):
            self.close_connection = True
            return
        try:
            if fault.what == "status":
                raise Refused(fault.status, _REASONS[fault.status], "as the test wants it")
            if request.body is _BROKEN:
                raise Refused(400, "BadRequest", "the object provided is unrecognized: it is no JSON")
            code, answer = api.answer(request)
            if isinstance(answer, Route):
                self.close_connection = True
                relay(answer, request.headers, data, self.connection, api.stopping)
                return
        except Refused as refused:
            code, answer = refused.code, _status(refused.code, refused.reason, refused.message)
        self._send(fault, code, answer)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_GET  # noqa: N815

    def _body(self) -> bytes:
        """The body; kubectl's raw writes come in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _unanswered(self, fault: Fault) -> bool:
        stopping = self.server.api.stopping
        match fault.what:
            case "slow":
                stopping.wait(fault.seconds)
            case "hang":
                stopping.wait(60)
            case "drip":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
                while not stopping.wait(0.05):
                    self.wfile.write(b"x")
            case "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return fault.what in ("hang", "drip", "reset")

    def _send(self, fault: Fault, code: int, answer: Json) -> None:
        content_type = "application/json"
        data = json.dumps(answer).encode()
        if fault.what == "html":
            code, content_type, data = fault.status, "text/html", b"<html><body>Sign in to the proxy</body></html>"
        if fault.what == "broken":
            data = data[: len(data) // 2]
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        if fault.retry_after is not None:
            self.send_header("Retry-After", str(fault.retry_after))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if fault.what == "cut" else data)
        self.close_connection = self.close_connection or fault.what == "cut"


_BROKEN = object()
_REASONS = {422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


def _status(code: int, reason: str, message: str) -> Json:
    failure = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**failure, "message": message, "reason": reason, "details": {}, "code": code}


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return _BROKEN
