"""What comes back on a `Wire`: the head and the body of one HTTP/1 answer, both bounded.

Called by `infscale.scrape`. Bodies by length, chunked, or until the server closes; as they are or gzip. Since each read
has a connection of its own, whatever a server sends after the body is not looked at.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from infscale.scrape_wire import Wire, WireFault

MAX_HEAD_BYTES = 64 * 1024
"""Status line and headers, all interim (1xx) answers together."""

_MAX_CHUNK_LINE_BYTES = 4096
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE = re.compile(r"HTTP/1\.[01] +([1-9][0-9][0-9])(?: .*)?")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?")


@dataclass(frozen=True)
class Head:
    """Status and headers of an answer; names in lower case, repeated headers joined with `, `."""

    status: int
    headers: dict[str, str]


def read_head(wire: Wire) -> Head:
    """Reads up to the body; interim answers (100 Continue) are passed over.

    Raises:
        WireFault: `http` for what is no HTTP, `too_large`, and whatever the wire raises.
    """
    wire.step = "the headers"
    room = MAX_HEAD_BYTES
    while True:
        block = _head_block(wire, room)
        room -= len(block)
        head = _parse_head(block, wire)
        if head.status >= 200:
            return head
        if head.status == 101:
            raise WireFault("http", "answered with a change of protocol (101) that was not asked for")


def _head_block(wire: Wire, room: int) -> bytes:
    searched = 0
    while True:
        end = _HEAD_END.search(wire.buffer, searched)
        if end is not None and end.end() <= room:
            return wire.take(end.end())
        _check_start(wire)
        if end is not None or len(wire.buffer) > room:
            raise WireFault("too_large", f"its headers are longer than {MAX_HEAD_BYTES} bytes")
        searched = max(0, len(wire.buffer) - 3)
        if not wire.receive():
            raise wire.cut()


def _check_start(wire: Wire) -> None:
    """Says at the first bytes that this is no HTTP, instead of waiting for the end of its headers."""
    start = bytes(wire.buffer[:5])
    if b"HTTP/".startswith(start):
        return
    if start[0] in (0x15, 0x16):  # the TLS records "alert" and "handshake"
        raise WireFault("tls", "the server speaks TLS: the URL must begin with https://")
    said = wire.quote(wire.buffer[:_MAX_CHUNK_LINE_BYTES].decode("latin-1"))  # cut after the secret is hidden
    raise WireFault("http", f"the server does not speak HTTP/1: it answered {said}")


def _parse_head(block: bytes, wire: Wire) -> Head:
    lines = block.decode("latin-1").replace("\r\n", "\n").rstrip("\n").split("\n")
    status_line = _STATUS_LINE.fullmatch(lines[0])
    if status_line is None:
        raise WireFault("http", f"expected a status line of HTTP/1, got {wire.quote(lines[0])}")
    headers: dict[str, str] = {}
    name = ""
    for line in lines[1:]:
        if line[0] in " \t" and name:  # a folded line goes on with the one before
            headers[name] += " " + line.strip()
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if not colon or not name:
            raise WireFault("http", f"expected a header, got {wire.quote(line)}")
        value = value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Head(int(status_line[1]), headers)


def read_body(wire: Wire, head: Head, max_bytes: int) -> bytes:
    """Reads the body that follows `head`, decompressed, at most `max_bytes` of it before and after that.

    Raises:
        WireFault: `too_large`, `reset` for a body that is cut, `http` for a length, chunk or coding that is malformed
            or was not asked for, and whatever the wire raises.
    """
    wire.step = "the body"
    if head.status in (204, 304):
        return b""
    transfer = head.headers.get("transfer-encoding", "identity").lower()
    if transfer == "chunked":
        body = _chunked(wire, max_bytes)
    elif transfer != "identity":
        raise WireFault("http", f"expected a chunked transfer, got the transfer-encoding {wire.quote(transfer)}")
    elif "content-length" in head.headers:
        count = _length(head.headers["content-length"], wire)
        if count > max_bytes:
            raise _too_large(max_bytes)
        body = _take(wire, count)
    else:
        body = _until_close(wire, max_bytes)
    coding = head.headers.get("content-encoding", "identity").lower()
    if coding in ("", "identity"):
        return body
    if coding not in ("gzip", "x-gzip"):
        raise WireFault("http", f"expected no compression, got the content-encoding {wire.quote(coding)}")
    return _gunzip(body, max_bytes)


def _too_large(max_bytes: int) -> WireFault:
    return WireFault("too_large", f"the page is larger than {max_bytes} bytes")


def _length(text: str, wire: Wire) -> int:
    lengths = {part.strip() for part in text.split(",")}  # repeated headers that agree are one
    if len(lengths) > 1 or not re.fullmatch("[0-9]{1,18}", min(lengths)):
        raise WireFault("http", f"expected a length in bytes, got the content-length {wire.quote(text)}")
    return int(min(lengths))


def _take(wire: Wire, count: int) -> bytes:
    while len(wire.buffer) < count:
        if not wire.receive():
            raise wire.cut()
    return wire.take(count)


def _until_close(wire: Wire, max_bytes: int) -> bytes:
    while len(wire.buffer) <= max_bytes:
        if not wire.receive():
            return wire.take(len(wire.buffer))
    raise _too_large(max_bytes)


def _chunked(wire: Wire, max_bytes: int) -> bytes:
    """The chunks' data; extensions are passed over, and trailers not read, since nothing follows them."""
    body = bytearray()
    while True:
        line = _chunk_line(wire)
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise WireFault("http", f"expected the size of a chunk, got {wire.quote(line.decode('latin-1'))}")
        count = int(size[1], 16)
        if count == 0:
            return bytes(body)
        if len(body) + count > max_bytes:
            raise _too_large(max_bytes)
        body += _take(wire, count)
        line = _chunk_line(wire)
        if line:
            raise WireFault("http", f"expected the end of a chunk, got {wire.quote(line.decode('latin-1'))}")


def _chunk_line(wire: Wire) -> bytes:
    searched = 0
    while True:
        end = wire.buffer.find(b"\n", searched)
        if end >= 0:
            line = wire.take(end + 1)
            return line[:-2] if line.endswith(b"\r\n") else line[:-1]
        searched = len(wire.buffer)
        if searched > _MAX_CHUNK_LINE_BYTES:
            raise WireFault("http", f"expected the size of a chunk, got a line of over {_MAX_CHUNK_LINE_BYTES} bytes")
        if not wire.receive():
            raise wire.cut()


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    import zlib

    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)  # 16: a gzip header and trailer
    try:
        page = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise WireFault("http", f"the gzip body is damaged: {error}") from None
    if len(page) > max_bytes:
        raise _too_large(max_bytes)
    if not stream.eof:
        raise WireFault("reset", f"the gzip body ends early, after {len(page)} bytes of the page")
    if stream.unused_data:
        raise WireFault("http", "the gzip body goes on after its end")
    return page
