"""HTTP/1.1 messages as values: the head of a request read strictly, a response written in one piece. No sockets here.

`connection.py` feeds it bytes; routes and their handlers use `Request` and `Response`. The standard library's
`http.server` reads heads with the email package, which alone costs more than the rest of a scrape.

Rules are RFC 9110 and RFC 9112 (named "9112 5.1" and so on); what they leave open is refused: no folded header lines,
no blank before a colon, no chunked request bodies.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import parse_qs, unquote, urlsplit

MAX_REQUEST_LINE_BYTES = 8192
MAX_HEADERS = 100
MAX_HEAD_BYTES = 65536
MAX_BODY_BYTES = 1 << 20

TEXT = "text/plain; charset=utf-8"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_VERSION = re.compile(r"HTTP/\d\.\d")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class RequestError(Exception):
    """A request that cannot be answered as asked; the client gets `status` and the text, then the connection ends."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class Headers(Mapping[str, str]):
    """Header fields by name, whatever the case of the name; a repeated field's values are joined with a comma."""

    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        self._fields = {name.lower(): value for name, value in (fields or {}).items()}

    @classmethod
    def of_lines(cls, lines: list[str]) -> Headers:
        """Read header lines without their line ends; `RequestError` 400 or 431 for one that breaks the rules."""
        if len(lines) > MAX_HEADERS:
            raise RequestError(431, f"more than {MAX_HEADERS} header fields")
        headers = cls()
        fields = headers._fields
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not _TOKEN.fullmatch(name):
                raise RequestError(400, "a header line is not of the form 'Name: value'")
            name, value = name.lower(), value.strip(" \t")
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
        return headers

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def tokens(self, name: str) -> frozenset[str]:
        """Return the comma-separated tokens of a field, in lower case; empty when it is absent."""
        value = self._fields.get(name)
        return frozenset(part.strip().lower() for part in value.split(",")) if value else frozenset()


@dataclass(frozen=True)
class Request:
    """One request as a handler sees it.

    Attributes:
        method: in capitals, as `GET`; handlers of GET see HEAD too and need not care.
        path: percent-decoded, without the query.
        raw_query: what follows the `?`, as sent.
        headers: the header fields.
        body: at most MAX_BODY_BYTES.
        client: the peer's IP address.
    """

    method: str
    path: str
    raw_query: str = ""
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""
    client: str = ""

    @property
    def query(self) -> dict[str, list[str]]:
        """The query's parameters, each with its values in order; parsed when asked for."""
        return parse_qs(self.raw_query, keep_blank_values=True)


@dataclass(frozen=True)
class Response:
    """One answer. Content-Length, Date, Connection and compression are the server's business."""

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def text_response(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of one or more lines of text for a person; a final newline is added."""
    return Response(status, f"{text}\n".encode(), TEXT, headers or MappingProxyType({}))


@dataclass(frozen=True)
class Head:
    """The head of a request: what is known before its body is there.

    Attributes:
        method: in capitals.
        path: percent-decoded.
        raw_query: as sent.
        headers: the header fields.
        length: of the body, bytes.
        http_10: whether the client speaks HTTP/1.0.
        keep_alive: whether the connection may go on after the answer.
        expects_continue: whether the client waits for `100 Continue` before it sends the body.
    """

    method: str
    path: str
    raw_query: str
    headers: Headers
    length: int
    http_10: bool
    keep_alive: bool
    expects_continue: bool


def parse_head(head: bytes) -> Head:
    """Read a request's head, without the empty line that ends it; `RequestError` with the status to answer."""
    text = head.decode("latin-1").replace("\r\n", "\n")
    if _CONTROL.search(text):
        raise RequestError(400, "the request's head holds a control character")
    request_line, *lines = text.split("\n")
    method, path, query, http_10 = _request_line(request_line)
    headers = Headers.of_lines(lines)
    host = headers.get("host")
    if (host is None and not http_10) or (host is not None and "," in host):
        raise RequestError(400, "a request needs exactly one Host header (RFC 9112 3.2)")
    connection = headers.tokens("connection")
    expect = "" if http_10 else headers.get("expect", "").lower()
    if expect not in ("", "100-continue"):
        raise RequestError(417, "the only expectation answered is 100-continue")
    return Head(
        method=method,
        path=path,
        raw_query=query,
        headers=headers,
        length=_body_length(headers),
        http_10=http_10,
        keep_alive="keep-alive" in connection if http_10 else "close" not in connection,
        expects_continue=bool(expect),
    )


def _request_line(line: str) -> tuple[str, str, str, bool]:
    """Return method, path, query and whether it is HTTP/1.0."""
    parts = line.split(" ")
    if len(parts) != 3 or not _VERSION.fullmatch(parts[2]) or not _TOKEN.fullmatch(parts[0]):
        raise RequestError(400, "the request line is not of the form 'GET /path HTTP/1.1'")
    method, target, version = parts
    if not version.startswith("HTTP/1."):
        raise RequestError(505, "this server speaks HTTP/1.1 and HTTP/1.0")
    if target[:1] != "/":
        target = _path_of_absolute(target)
    path, _, query = target.partition("?")
    return method, unquote(path) if "%" in path else path, query, version == "HTTP/1.0"


def _path_of_absolute(target: str) -> str:
    """Return the path and query of an absolute target, which servers must accept (9112 3.2.2); `*` stays."""
    try:
        parts = urlsplit(target)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme in ("http", "https") and parts.netloc:
        return f"{parts.path or '/'}?{parts.query}"
    if target == "*":
        return target
    raise RequestError(400, "the request target is neither a path nor an http URL")


def _body_length(headers: Headers) -> int:
    """Return the body's length; a repeated Content-Length, equal or not, is refused (9112 6.3)."""
    if "transfer-encoding" in headers:
        raise RequestError(411, "send the body with Content-Length; Transfer-Encoding is not read here")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise RequestError(400, "Content-Length is not one whole number")
    if len(text) > 18 or int(text) > MAX_BODY_BYTES:
        raise RequestError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    return int(text)


def render(
    response: Response,
    *,
    head_only: bool = False,
    http_10: bool = False,
    close: bool = False,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return the bytes of an answer, head and body in one piece: two writes would cost 40 ms of delayed ACK.

    Args:
        response: the answer; its own headers win over `headers`.
        head_only: the request was HEAD.
        http_10: the client speaks HTTP/1.0 and must be told that the connection stays open.
        close: the connection ends after this answer.
        headers: fields for every answer, as the web config file sets them.

    Raises:
        ValueError: a header holds a line break or a character outside Latin-1.
    """
    lines = [
        f"HTTP/1.1 {response.status} {_phrase(response.status)}",
        f"Date: {_http_date(int(time.time()))}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
    ]
    if close or http_10:
        lines.append("Connection: close" if close else "Connection: keep-alive")
    fields = {"X-Content-Type-Options": "nosniff", **(headers or {}), **response.headers}
    lines += [f"{name}: {value}" for name, value in fields.items()]
    text = "\r\n".join(lines)
    if _CONTROL.search(text.replace("\r\n", "\n")) or text.count("\n") != len(lines) - 1:
        raise ValueError("a response header holds a line break or another control character")
    head = text.encode("latin-1") + b"\r\n\r\n"
    return head if head_only else head + response.body


@lru_cache(maxsize=64)
def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase


@lru_cache(maxsize=2)
def _http_date(now_s: int) -> str:
    """Return a Unix time as HTTP writes it (9110 5.6.7), in English whatever the locale."""
    t = time.gmtime(now_s)
    clock = f"{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"
    return f"{_DAYS[t.tm_wday]}, {t.tm_mday:02} {_MONTHS[t.tm_mon - 1]} {t.tm_year} {clock} GMT"
