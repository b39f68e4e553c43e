"""Heads of requests: what is read, and what is refused with which status."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.web.message import Headers, RequestError, Response, parse_head, render

HOST = "\r\nHost: h"


def head(text: str) -> bytes:
    """A head as it stands on the wire."""
    return text.encode("latin-1")


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/metrics", "/metrics", ""),
        ("/%6Detrics?name[]=a&x=1%20b", "/metrics", "name[]=a&x=1%20b"),
        ("/a?b?c", "/a", "b?c"),
        ("http://example.org:10047/metrics?a=b", "/metrics", "a=b"),
        ("http://example.org", "/", ""),
        ("*", "*", ""),
        ("//double", "//double", ""),
    ],
)
def test_target(target, path, query):
    """A target is a path or an absolute URL; the path is decoded, the query is left as it is."""
    read = parse_head(head(f"GET {target} HTTP/1.1{HOST}"))
    assert (read.path, read.raw_query) == (path, query)


def test_headers_are_found_in_any_case_and_repeated_ones_joined():
    """Header names have no case; a repeated field is a list."""
    read = parse_head(head(f"GET / HTTP/1.1{HOST}\r\naCCept: a\r\nAccept:\tb \r\nX-Empty:"))
    assert read.headers.get("ACCEPT") == "a, b"
    assert read.headers["x-empty"] == ""
    assert "Accept" in read.headers
    assert len(read.headers) == len(list(read.headers)) == 3


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("GET /", 400),
        ("GET  / HTTP/1.1" + HOST, 400),
        ("GET / x HTTP/1.1" + HOST, 400),
        ("GET / HTTP/1.1 " + HOST, 400),
        ("G@T / HTTP/1.1" + HOST, 400),
        ("GET metrics HTTP/1.1" + HOST, 400),
        ("GET ftp://h/ HTTP/1.1" + HOST, 400),
        ("GET http://[ HTTP/1.1" + HOST, 400),
        ("GET / HTTP/2.0" + HOST, 505),
        ("GET / HTTP/3.1" + HOST, 505),
        ("GET / http/1.1" + HOST, 400),
        ("GET / HTTP/1.1", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b", 400),
        (f"GET / HTTP/1.1{HOST}\r\nBlank : x", 400),
        (f"GET / HTTP/1.1{HOST}\r\n folded", 400),
        (f"GET / HTTP/1.1{HOST}\r\nno colon", 400),
        (f"GET / HTTP/1.1{HOST}\r\n: no name", 400),
        (f"GET / HTTP/1.1{HOST}\r\nA: nul\x00", 400),
        (f"GET / HTTP/1.1{HOST}\r\nA: carriage\rreturn", 400),
        (f"GET / HTTP/1.1{HOST}\r\nContent-Length: -1", 400),
        (f"GET / HTTP/1.1{HOST}\r\nContent-Length: +1", 400),
        (f"GET / HTTP/1.1{HOST}\r\nContent-Length: 1_0", 400),
        (f"GET / HTTP/1.1{HOST}\r\nContent-Length: \xb2", 400),
        (f"GET / HTTP/1.1{HOST}\r\nContent-Length: ", 400),
        (f"GET / HTTP/1.1{HOST}\r\nContent-Length: 1\r\nContent-Length: 1", 400),
        (f"POST / HTTP/1.1{HOST}\r\nContent-Length: 1048577", 413),
        (f"POST / HTTP/1.1{HOST}\r\nContent-Length: {'9' * 5000}", 413),
        (f"POST / HTTP/1.1{HOST}\r\nTransfer-Encoding: chunked", 411),
        (f"POST / HTTP/1.1{HOST}\r\nTransfer-Encoding: chunked\r\nContent-Length: 3", 411),
        (f"POST / HTTP/1.1{HOST}\r\nExpect: miracle", 417),
        (f"GET / HTTP/1.1{HOST}" + "\r\nA: b" * 100, 431),
    ],
)
def test_refused(text, status):
    """What breaks the rules is refused with the status that says how, in one line."""
    with pytest.raises(RequestError) as caught:
        parse_head(head(text))
    assert caught.value.status == status
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [
        ("1.1", "", True),
        ("1.1", "close", False),
        ("1.1", "Upgrade, Close", False),
        ("1.1", "keep-alive", True),
        ("1.0", "", False),
        ("1.0", "Keep-Alive", True),
    ],
)
def test_keep_alive(version, connection, kept):
    """HTTP/1.1 connections stay unless asked otherwise, HTTP/1.0 ones end unless asked otherwise."""
    assert parse_head(head(f"GET / HTTP/{version}{HOST}\r\nConnection: {connection}")).keep_alive is kept


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    """No bytes make the reader fail in another way than by refusing them."""
    for text in (data, b"GET / HTTP/1.1\r\nHost: h\r\n" + data):
        with contextlib.suppress(RequestError):
            parse_head(text)


def test_answer_on_the_wire():
    """An answer is one piece: status line, date, type, length, the rest, body."""
    data = render(Response(200, b"body", headers={"X-A": "1"}), headers={"X-A": "0", "X-B": "2"})
    first, *lines = data.split(b"\r\n")
    assert first == b"HTTP/1.1 200 OK"
    assert lines[0].startswith(b"Date: ")
    assert lines[0].endswith(b" GMT")
    assert lines[1:] == [
        b"Content-Type: text/plain; charset=utf-8",
        b"Content-Length: 4",
        b"X-Content-Type-Options: nosniff",
        b"X-A: 1",
        b"X-B: 2",
        b"",
        b"body",
    ]


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\rb", "a\0b", "☃"])
def test_header_injection(value):
    """A header value that would end its line is never sent."""
    with pytest.raises(ValueError, match=r"."):
        render(Response(headers={"X": value}))


def test_headers_without_case():
    """Headers made by hand are found in any case too."""
    assert Headers({"Content-TYPE": "x"})["content-type"] == "x"
