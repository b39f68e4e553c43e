"""Header fields that go on through the activator, in both directions, and those that end here.

Rules: RFC 9110 section 7.6.1 (a field about one connection is not passed on, nor what `Connection` names) and RFC 9112
section 6 (who frames the message anew writes the length).
"""

from __future__ import annotations

from collections.abc import Mapping

from multidict import CIMultiDict, CIMultiDictProxy

from infscale.activator.refusal import SERVER, Refusal

HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_REQUEST_ENDS = HOP_BY_HOP | {"content-length", "expect"}


def request_headers(headers: CIMultiDictProxy[str], body_bytes: int, *, identity: bool) -> CIMultiDict[str]:
    """The fields that a replica gets.

    Args:
        headers: of the client, `Host` among them.
        body_bytes: length of the body, which is whole by now.
        identity: ask for an answer that is not compressed: it follows comments that were sent as they are.

    Raises:
        Refusal: a field is not UTF-8, and could not be sent on as it came.
    """
    onward = _without(headers, _REQUEST_ENDS | {"accept-encoding"} if identity else _REQUEST_ENDS)
    for name, value in onward.items():
        if not value.isascii() and not _encodable(value):
            raise Refusal(400, f"the header {name} is neither ASCII nor UTF-8")
    if body_bytes or "Content-Length" in headers or "Transfer-Encoding" in headers:
        onward["Content-Length"] = str(body_bytes)
    return onward


def response_headers(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The fields that the client gets; what is not UTF-8 is read as latin-1."""
    onward = _without(headers, HOP_BY_HOP)
    for name, value in headers.items():
        if not value.isascii() and not _encodable(value) and name in onward:
            onward[name] = value.encode("utf-8", "surrogateescape").decode("latin-1")
    onward.setdefault("Server", SERVER)
    return onward


def _without(headers: Mapping[str, str], ends: frozenset[str]) -> CIMultiDict[str]:
    named = headers.get("Connection", "")
    if named and named.lower() not in ("keep-alive", "close"):
        ends = ends | {name.strip().lower() for name in named.split(",")}
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in ends)


def _encodable(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
