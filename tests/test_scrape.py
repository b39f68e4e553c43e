"""One bounded read of one page: every way of sending it, and what is malformed or cut."""

from __future__ import annotations

import gzip

import pytest

from infscale.scrape import Page, Target, fetch
from tests.raw_server import Call, raw_server
from tests.scrape_reads import CHUNKED, OK, PAGE, failed, read


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: %d\r\n\r\n" % len(PAGE) + PAGE,
        OK + b"content-length:%d\r\n\r\n" % len(PAGE) + PAGE + b"more than was announced",
        OK + b"Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (len(PAGE), len(PAGE)) + PAGE,
        OK + b"Content-Type: text/plain\r\n\r\n" + PAGE,
        OK + b"\r\n" + PAGE,
        b"HTTP/1.0 200 OK\r\n\r\n" + PAGE,
        b"HTTP/1.0 200 OK\nServer: old\n\n" + PAGE,
        b"HTTP/1.1 200\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE,
        b"HTTP/1.1 200 \r\nTransfer-Encoding: identity\r\n\r\n" + PAGE,
        OK + b"X-Folded: a\r\n  b\r\nContent-Encoding: identity\r\n\r\n" + PAGE,
        OK + b"X-Long: " + b"a" * 60_000 + b"\r\n\r\n" + PAGE,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"\r\n" + PAGE,
        CHUNKED + b"%x\r\n" % len(PAGE) + PAGE + b"\r\n0\r\n\r\n",
        CHUNKED + b"5\r\n" + PAGE[:5] + b"\r\n000%X ; name=\"value\"\r\n" % len(PAGE[5:]) + PAGE[5:] + b"\r\n0\r\n\r\n",
        CHUNKED + b"%x\n" % len(PAGE) + PAGE + b"\n0\n\n",
        CHUNKED + b"%x\r\n" % len(PAGE) + PAGE + b"\r\n0;last\r\nX-Trailer: 1\r\nX-Other: 2\r\n\r\n",
        CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in PAGE) + b"0\r\n",
        OK + b"Transfer-Encoding: Chunked\r\nContent-Length: 3\r\n\r\n%x\r\n" % len(PAGE) + PAGE + b"\r\n0\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(PAGE, mtime=0),
        OK + b"Content-Encoding: x-gzip\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(gzip.compress(PAGE, mtime=0))
        + gzip.compress(PAGE, mtime=0) + b"\r\n0\r\n\r\n",
    ],
)  # fmt: skip
def test_every_way_of_sending_a_page_gives_the_page(answer):
    """By length, chunked or until the end, HTTP/1.0 and 1.1, plain and gzip: the same bytes."""
    page = read(answer)

    assert isinstance(page, Page), page
    assert (page.status, page.body) == (200, PAGE)


def test_a_page_in_single_bytes_is_the_same_page():
    """Wherever the network cuts an answer, what is read is the same."""
    answer = CHUNKED + b"5\r\n" + PAGE[:5] + b"\r\n%x;x\r\n" % len(PAGE[5:]) + PAGE[5:] + b"\r\n0\r\n\r\n"

    page = read(lambda call: call.drip(answer, 0.0))

    assert isinstance(page, Page), page
    assert page.body == PAGE


@pytest.mark.parametrize("cut", [3, 4, 20, *range(len(OK) + 7, len(OK) + 12)])
def test_headers_that_come_in_two_parts(cut):
    """The blank line is found wherever the network cuts it."""
    whole = OK + b"Age: 1\r\n\r\n" + PAGE

    def answer(call: Call) -> None:
        call.send(whole[:cut])
        call.hang(0.03)
        call.send(whole[cut:])

    page = read(answer)

    assert isinstance(page, Page), page
    assert page.body == PAGE


@pytest.mark.parametrize("status", [201, 400, 401, 403, 404, 405, 429, 500, 501, 503, 300, 305])
def test_any_status_is_a_page(status):
    """An error has a body that says more: it is a Page, and the caller decides."""
    page = read(lambda call: call.page(b'{"error":"no"}', "Content-Type: application/json", status=f"{status} x"))

    assert isinstance(page, Page), page
    assert (page.status, page.content_type, page.body) == (status, "application/json", b'{"error":"no"}')
    assert 0 < page.duration_s < 20


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body_ends_with_its_headers(status):
    """204 and 304 have no body, even if the server does not close."""

    def answer(call: Call) -> None:
        call.send(b"HTTP/1.1 %d x\r\nContent-Length: 10\r\n\r\n" % status)
        call.hang()

    page = read(answer)

    assert isinstance(page, Page), page
    assert (page.status, page.body, page.content_type) == (status, b"", "")


@pytest.mark.parametrize("answer", [OK + b"Content-Length: 2\r\n\r\nab", CHUNKED + b"2\r\nab\r\n0\r\n"])
def test_a_server_that_keeps_the_connection_is_not_waited_for(answer):
    """A body that is whole ends the read, whether or not the server closes."""

    def keep(call: Call) -> None:
        call.send(answer)
        call.hang()

    page = read(keep)

    assert isinstance(page, Page), page
    assert page.body == b"ab"


def test_an_empty_page_is_a_page():
    """Nothing in the body is an answer too."""
    assert read(OK + b"Content-Length: 0\r\n\r\n").body == b""
    assert read(OK + b"\r\n").body == b""


def test_the_request_that_is_sent():
    """GET, the path with its query, Host, Accept, no compression asked for, one request per connection."""
    with raw_server(lambda call: call.page(PAGE)) as server:
        fetch(Target(server.url("/metrics?model=a%20b#part"), timeout_s=20))
        fetch(Target(server.url(), timeout_s=20, accept="application/json"))

    first, second = server.calls
    assert first.request.startswith(b"GET /metrics?model=a%20b HTTP/1.1\r\n")
    assert first.header("host") == f"127.0.0.1:{server.port}"
    assert first.header("accept") == "text/plain;version=0.0.4"
    assert first.header("accept-encoding") == "identity"
    assert first.header("connection") == "close"
    assert (first.header("user-agent") or "").startswith("infscale/")
    assert first.header("authorization") is None
    assert second.header("accept") == "application/json"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"vllm:num_requests_running 3\n", "does not speak HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "'SSH-2.0-OpenSSH_9.6"),
        (b"<html>", "'<html>'"),
        (b"\x00\x01\x02\x03\x04\x05", "does not speak HTTP"),
        (b"HTTP/2 200\r\n\r\n", "status line"),
        (b"HTTP/1.1 OK\r\n\r\n", "status line"),
        (b"HTTP/1.1 099 x\r\n\r\n", "status line"),
        (b"HTTP/1.1 2000\r\n\r\n", "status line"),
        (b"HTTP/9.9\r\n\r\n" + PAGE, "status line"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "101"),
        (OK + b"no colon here\r\n\r\n", "'no colon here'"),
        (OK + b": no name\r\n\r\n", "': no name'"),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "'1, 2'"),
        (OK + b"Content-Length: -1\r\n\r\nab", "'-1'"),
        (OK + b"Content-Length: \r\n\r\nab", "content-length ''"),
        (OK + b"Content-Length: 1_0\r\n\r\nab", "'1_0'"),
        (OK + b"Content-Length: \xb2\r\n\r\nab", "content-length"),
        (OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nab", "content-length '999"),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "'gzip, chunked'"),
        (OK + b"Content-Encoding: br\r\n\r\nab", "'br'"),
        (OK + b"Content-Encoding: gzip, gzip\r\n\r\nab", "'gzip, gzip'"),
        (OK + b"Content-Encoding: gzip\r\n\r\nab not gzip", "damaged"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(PAGE, mtime=0) + b"more", "goes on after its end"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(PAGE, mtime=0)[:-8] + bytes(8), "damaged"),
        (CHUNKED + b"\r\n", "size of a chunk, got ''"),
        (CHUNKED + b"0x5\r\nabcde\r\n", "'0x5'"),
        (CHUNKED + b"-5\r\nabcde\r\n", "'-5'"),
        (CHUNKED + b"+5\r\nabcde\r\n", "'+5'"),
        (CHUNKED + b"1_0\r\nabcde\r\n", "'1_0'"),
        (CHUNKED + b"5 5\r\nabcde\r\n", "'5 5'"),
        (CHUNKED + b"f" * 17 + b"\r\n", "size of a chunk"),
        (CHUNKED + b"2\r\nabc\r\n0\r\n\r\n", "end of a chunk, got 'c'"),
        (CHUNKED + b"2;" + b"x" * 200_000, "a line of over 4096 bytes"),
        (CHUNKED + b"2\r\nab" + b"x" * 200_000, "a line of over 4096 bytes"),
    ],
)
def test_what_is_no_http_is_told_with_the_offending_text(answer, says):
    """Malformed answers are failures `http` that quote what came."""
    failed(read(answer), "http", says=says)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "without an answer"),
        (b"HT", "in the middle of the headers (2 bytes came)"),
        (OK + b"Content-Le", "in the middle of the headers"),
        (OK + b"Content-Length: 100\r\n\r\nabc", "in the middle of the body"),
        (CHUNKED, "in the middle of the body"),
        (CHUNKED + b"5\r\nabc", "in the middle of the body"),
        (CHUNKED + b"3\r\nabc", "in the middle of the body"),
        (CHUNKED + b"3\r\nabc\r\n", "in the middle of the body"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(PAGE, mtime=0)[:-9], "gzip body ends early"),
        (OK + b"Content-Encoding: gzip\r\n\r\n", "gzip body ends early"),
    ],
)
def test_what_is_cut_is_a_reset(answer, says):
    """A server that closes too early cut its answer: never a shorter page."""
    failed(read(answer), "reset", says=says)


@pytest.mark.parametrize(
    "start", [b"", OK, OK + b"Content-Length: 100\r\n\r\nabc", OK + b"\r\nabc", CHUNKED + b"5\r\na"]
)
def test_a_connection_that_is_reset(start):
    """RST before, in or after the headers is a reset, also where the body has no length."""

    def answer(call: Call) -> None:
        call.send(start)
        call.hang(0.1)  # so that what was sent arrives before the RST
        call.reset()

    failed(read(answer), "reset", says="reset")
