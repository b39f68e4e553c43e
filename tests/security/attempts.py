"""Requests that two readers in a row could cut in different places: each carries, or hides, a second one.

`SMUGGLED` is the second one's path: it must never be answered by itself, nor reach a replica.
"""

from __future__ import annotations

SMUGGLED = "/smuggled"
_HIDDEN = f"GET {SMUGGLED} HTTP/1.1\r\nHost: h\r\n\r\n"


def _post(*lines: str, body: str = "", first: str = "POST /v1/x HTTP/1.1") -> bytes:
    return ("\r\n".join([first, "Host: h", *lines, "", ""]) + body).encode("latin-1")


_CHUNKED = "Transfer-Encoding: chunked"
_EMPTY_CHUNK = "0\r\n\r\n" + _HIDDEN
_LENGTH = f"Content-Length: {len(_EMPTY_CHUNK)}"

REFUSED = {
    "length, then chunked": _post(_LENGTH, _CHUNKED, body=_EMPTY_CHUNK),
    "chunked, then length": _post(_CHUNKED, _LENGTH, body=_EMPTY_CHUNK),
    "chunked in capitals": _post(_LENGTH, "TRANSFER-ENCODING: CHUNKED", body=_EMPTY_CHUNK),
    "chunked twice": _post(_CHUNKED, _CHUNKED, _LENGTH, body=_EMPTY_CHUNK),
    "chunked, identity": _post("Transfer-Encoding: chunked, identity", body=_EMPTY_CHUNK),
    "an unknown coding": _post("Transfer-Encoding: xchunked", _LENGTH, body=_EMPTY_CHUNK),
    "a blank before the colon": _post("Transfer-Encoding : chunked", _LENGTH, body=_EMPTY_CHUNK),
    "a vertical tab": _post("Transfer-Encoding: \x0bchunked", _LENGTH, body=_EMPTY_CHUNK),
    "a NUL byte": _post("Transfer-Encoding: chunked\0", _LENGTH, body=_EMPTY_CHUNK),
    "a bare carriage return": _post("X: y\rTransfer-Encoding: chunked", _LENGTH, body=_EMPTY_CHUNK),
    "a bare line feed": _post("X: y\nTransfer-Encoding: chunked", _LENGTH, body=_EMPTY_CHUNK),
    "a bare line feed with a length": _post("X: y\nContent-Length: 5", body=_HIDDEN),
    "a bare line feed before the end": _post("X: y\n", body=_HIDDEN),
    "chunked in HTTP/1.0": _post(_LENGTH, _CHUNKED, body=_EMPTY_CHUNK, first="POST /v1/x HTTP/1.0"),
    "two lengths": _post("Content-Length: 0", f"Content-Length: {len(_HIDDEN)}", body=_HIDDEN),
    "two equal lengths": _post("Content-Length: 0", "Content-Length: 0", body=_HIDDEN),
    "a list of lengths": _post("Content-Length: 0, 0", body=_HIDDEN),
    "a signed length": _post("Content-Length: +0", body=_HIDDEN),
    "a negative length": _post("Content-Length: -1", body=_HIDDEN),
    "a hexadecimal length": _post("Content-Length: 0x0", body=_HIDDEN),
    "a length in words": _post("Content-Length: 1e1", body=_HIDDEN),
    "a length with a blank": _post("Content-Length: 1 0", body=_HIDDEN),
    "another script's digits": _post("Content-Length: \xb2", body=_HIDDEN),
    "an empty length": _post("Content-Length:", body=_HIDDEN),
    "a huge length": _post("Content-Length: 99999999999999999999999999", body=_HIDDEN),
    "a folded line": _post("X: y", f" {_CHUNKED}", body=_EMPTY_CHUNK),
    "a fold first": f"POST /v1/x HTTP/1.1\r\n {_CHUNKED}\r\nHost: h\r\n\r\n{_EMPTY_CHUNK}".encode(),
    "a line without a colon": _post("Transfer-Encoding", body=_HIDDEN),
    "a name that is empty": _post(": chunked", body=_HIDDEN),
    "a name with a blank": _post("Content Length: 5", body=_HIDDEN),
    "two hosts": _post("Host: elsewhere", body=_HIDDEN),
    "a version of two digits": _post(first="POST /v1/x HTTP/1.10", body=_HIDDEN),
    "no version": f"GET /v1/x\r\nHost: h\r\n\r\n{_HIDDEN}".encode(),
    "no version, and a body": f"POST /v1/x\r\nContent-Length: {len(_HIDDEN)}\r\n\r\n{_HIDDEN}".encode(),
    "a small version": _post(first="POST /v1/x http/1.1", body=_HIDDEN),
    "HTTP/2": _post(first="POST /v1/x HTTP/2.0", body=_HIDDEN),
    "a blank in the target": _post(first=f"POST /v1/x HTTP/1.1 {SMUGGLED} HTTP/1.1", body=_HIDDEN),
    "a target that is no path": _post(first="POST v1/x HTTP/1.1", body=_HIDDEN),
    "a tunnel": _post(first="CONNECT elsewhere:80 HTTP/1.1", body=_HIDDEN),
}
"""What every listener refuses: an error, and the end of the connection, whatever follows on it."""

REFUSED_BY_PAGES = {
    "a second blank": _post(first="POST  /v1/x HTTP/1.1", body=_HIDDEN),
    "chunks": _post(_CHUNKED, body="3\r\nabc\r\n0\r\n\r\n" + _HIDDEN),
    "chunks with extensions": _post(_CHUNKED, body="3;a=b\r\nabc\r\n0;c\r\n\r\n" + _HIDDEN),
}
"""What the listeners for pages refuse besides."""

BAD_CHUNKS = {
    "a chunk size with 0x": "0x3\r\nabc\r\n0\r\n\r\n",
    "a signed chunk size": "+3\r\nabc\r\n0\r\n\r\n",
    "a negative chunk size": "-1\r\nabc\r\n0\r\n\r\n",
    "an empty chunk size": "\r\nabc\r\n0\r\n\r\n",
    "a huge chunk size": "ffffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "a chunk without its end": "3\r\nabc0\r\n\r\n",
    "a chunk that is too long": "3\r\nabcdef\r\n0\r\n\r\n",
    "chunks with bare line feeds": "3\nabc\n0\n\n",
    "a bare line feed in an extension": "3;x\nyy\r\nabc\r\n0\r\n\r\n",
    "a carriage return in an extension": "3;x\ry\r\nabc\r\n0\r\n\r\n",
}
"""Bodies in chunks that are none. The listeners for pages take no chunks; the activator does."""


def chunked(body: str) -> bytes:
    """A request with such a body, and a second one behind it."""
    return _post(_CHUNKED, body=body + _HIDDEN)
