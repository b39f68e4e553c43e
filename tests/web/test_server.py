"""What a client sees of a listener: routes, HEAD, errors, keep-alive, pipelining, split requests."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from infscale.web.message import Request, Response
from infscale.web.routes import Router
from infscale.web.server import Listener
from tests.web.rig import PAGE, Client, listening


@pytest.fixture(scope="module")
def server() -> Iterator[Listener]:
    """A listener for the whole module: no request may leave a trace in the next."""
    with listening() as listener:
        yield listener


@pytest.fixture
def client(server) -> Iterator[Client]:
    """A new connection."""
    with Client(server.port) as connection:
        yield connection


def test_get(client):
    """A page comes with its type and length, and says not to guess at its type."""
    answer = client.get("/metrics")
    assert (answer.status, answer.body) == (200, PAGE)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "connection" not in answer.headers


def test_head(client):
    """HEAD gives the head of the answer to GET, and the connection goes on."""
    head = client.get("/metrics", method="HEAD")
    assert head.headers["content-length"] == str(len(PAGE))
    assert client.get("/metrics").body == PAGE


def test_unknown_path(client):
    """An unknown path is 404 in text that names the known ones and does not repeat what was asked for."""
    answer = client.get("/unknown<b>")
    assert answer.status == 404
    assert answer.headers["content-type"].startswith("text/plain")
    assert b"/metrics" in answer.body
    assert b"unknown<b>" not in answer.body


def test_wrong_method(client):
    """A known path with another method is 405 with Allow."""
    answer = client.get("/echo", method="DELETE")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")


def test_method_twice_is_a_mistake():
    """Two handlers for one path and method are a mistake of the program."""
    router = Router()
    router.add("/a", lambda _: Response())
    router.add("/a", lambda _: Response(), methods=("POST",))
    with pytest.raises(ValueError, match="GET /a has a handler already"):
        router.add("/a", lambda _: Response())
    assert router.dispatch(Request("POST", "/a")).status == 200


def test_request_as_handlers_see_it(client):
    """A handler gets method, decoded path, query, body and the client's address."""
    client.send(b"POST /ech%6f?a=1&a=2&b= HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz")
    assert client.answer().body == b"POST /echo {'a': ['1', '2'], 'b': ['']} 3 127.0.0.1\n"


def test_gzip(client):
    """A large page is gzipped for who takes it."""
    answer = client.get("/metrics", "Accept-Encoding: gzip")
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body) == PAGE
    assert client.get("/metrics", "Accept-Encoding: gzip;q=0").body == PAGE


def test_keep_alive(client):
    """Many requests go over one connection."""
    assert all(client.get("/echo").status == 200 for _ in range(50))


def test_close_when_asked(client):
    """Connection: close is honoured and repeated."""
    assert client.get("/echo", "Connection: close").headers["connection"] == "close"
    assert client.at_end()


def test_http_10(client, server):
    """HTTP/1.0 connections end after the answer, unless keep-alive is asked for."""
    client.send(b"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert client.answer().headers["connection"] == "keep-alive"
    client.send(b"GET /echo HTTP/1.0\r\n\r\n")
    assert client.answer().headers["connection"] == "close"
    assert client.at_end()


def test_pipelining(client):
    """Requests sent in one go are answered in order, bodies included."""
    requests = b"".join(
        b"POST /echo?n=%d HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s" % (n, n, b"z" * n) for n in range(60)
    )
    client.send(requests)
    for n in range(60):
        assert client.answer().body == f"POST /echo {{'n': ['{n}']}} {n} 127.0.0.1\n".encode()


def test_pipelining_many_clients(server):
    """More clients than workers, each with a pipeline of large pages, all get everything."""
    clients = [Client(server.port) for _ in range(60)]
    try:
        for connection in clients:
            connection.send(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 10)
        for connection in clients:
            assert all(connection.answer().body == PAGE for _ in range(10))
    finally:
        for connection in clients:
            connection.__exit__(None, None, None)


def test_split_request(client):
    """A request may come byte by byte; two line feeds, or empty lines first, are understood too."""
    for byte in b"\r\nPOST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab":
        client.send(bytes([byte]))
    assert client.answer().body == b"POST /echo {} 2 127.0.0.1\n"
    client.send(b"\n\nGET /echo HTTP/1.1\nHost: h\n\n")
    assert client.answer().status == 200


def test_slow_reader(server):
    """A client that reads late gets all of it, and holds up nobody."""
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.settimeout(10)
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 300 + b"GET /nowhere HTTP/1.0\r\n\r\n")
        with Client(server.port) as other:
            assert other.get("/metrics").body == PAGE
        received = 0
        while chunk := slow.recv(65536):
            received += len(chunk)
    assert received > 300 * len(PAGE)


def test_expect_continue(client):
    """A client that waits for 100 Continue before it sends the body gets it."""
    client.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    assert client.answer().status == 100
    client.send(b"body")
    assert client.answer().body == b"POST /echo {} 4 127.0.0.1\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"a" * 9000, 414),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 66000, 431),
        (b"GET / HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 500_000, 413),
        (b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\x00\x00\x00", 400),
        (b"GET /\r\n\r\n", 400),
    ],
)
def test_refused_and_closed(client, sent, status):
    """A request that cannot be understood is answered in text, even while more of it comes, and the connection ends."""
    client.send(sent)
    answer = client.answer()
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert answer.body.endswith(b"\n")
    client.sock.shutdown(socket.SHUT_WR)
    assert client.at_end()


def test_largest_body(client):
    """A body of 1 MiB is read."""
    client.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n" + b"x" * (1 << 20))
    assert client.answer().body == b"POST /echo {} 1048576 127.0.0.1\n"


@pytest.mark.parametrize("path", ["/broken", "/bad-header"])
def test_handler_that_fails(client, caplog, path):
    """A handler's fault is 500 without its text, one log record with it, and the connection goes on."""
    with caplog.at_level(logging.INFO, "infscale.web"):
        answer = client.get(path)
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert client.get("/metrics").status == 200


def test_client_that_leaves(server):
    """A client that resets in the middle of an answer disturbs nobody."""
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port)) as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            rude.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 5)
    with Client(server.port) as client:
        assert client.get("/metrics").body == PAGE


def test_many_clients_at_once(server):
    """Thirty clients in parallel each get all their pages."""
    pages: list[bytes] = []

    def scrape() -> None:
        with Client(server.port) as client:
            pages.extend(client.get("/metrics").body for _ in range(20))

    threads = [threading.Thread(target=scrape) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert pages == [PAGE] * 600
