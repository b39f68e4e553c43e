"""gzip by Accept-Encoding."""

from __future__ import annotations

import gzip

import pytest

from infscale.web.compression import accepts_gzip, compressed, compressor
from infscale.web.message import Headers, Request, Response

BODY = b"a line of a page\n" * 200


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("deflate, gzip;q=0.1", True),
        ("gzip;q=1.000", True),
        ("gzip ; q=0.5", True),
        ("*", True),
        ("*;q=0.1", True),
        ("br, *;q=0, gzip", True),
        ("identity;q=0.5, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("identity, gzip;q=0.5", False),
        ("gzip;q=high", False),
        ("gzip;q=2", False),
        ("gzip;q=-1", False),
        ("gzip;q=nan", False),
        ("", False),
        ("br, deflate", False),
        ("gzipped", False),
    ],
)
def test_quality_values(header, accepted):
    """Quality values count, and what cannot be read means no."""
    assert accepts_gzip(header) is accepted


def ask(accept_encoding: str) -> Request:
    """A request with that header."""
    return Request("GET", "/", headers=Headers({"Accept-Encoding": accept_encoding}))


def test_gzipped():
    """A large body is gzipped for who takes it, and says that it depends on the header."""
    answer = compressed(ask("gzip"), Response(200, BODY), compressor())
    assert gzip.decompress(answer.body) == BODY
    assert answer.headers == {"Vary": "Accept-Encoding", "Content-Encoding": "gzip"}


def test_plain_for_others():
    """Who does not take gzip gets the body as it is; caches are told that others may not."""
    answer = compressed(ask("gzip;q=0"), Response(200, BODY), compressor())
    assert answer.body == BODY
    assert answer.headers == {"Vary": "Accept-Encoding"}


def test_what_an_answer_depends_on():
    """An answer that depends on more headers says so itself, gzipped or not."""
    page = Response(200, BODY, headers={"Vary": "Accept, Accept-Encoding"})
    for accept_encoding in ("gzip", ""):
        assert compressed(ask(accept_encoding), page, compressor()).headers["Vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize("response", [Response(200, b"small"), Response(200, BODY, headers={"Content-Encoding": "br"})])
def test_left_alone(response):
    """Small bodies, and those that a handler encoded itself, are left alone."""
    assert compressed(ask("gzip"), response, compressor()) is response


def test_compressed_once():
    """The same page is compressed once."""
    compress = compressor()
    assert compress(BODY) is compress(bytes(bytearray(BODY)))
