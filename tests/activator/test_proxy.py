"""Requests that are passed on at once: what goes through as it came, what ends here, and how things go wrong."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest

from infscale.activator import relay
from tests.activator.rig import EVENT, Answer, Asker, Client, Replica, activator, free_port, outcomes, ready, until
from tests.fleet.dns_server import dns_server


def test_through_and_back():
    """Path, query, body and fields reach the replica as they came; so do status, fields and body the client."""
    with Replica(lambda answer: answer.whole(b'{"ok": 1}', status=201, X_Engine="vllm")) as replica:
        with activator(replica.url) as found, Client(found.port) as client:
            ready(found)
            client.post(b'{"a": 1}', "/v1/x%2Fy/../z?q=%zz&r", "Authorization: Bearer abc", "X-Two: 1", "x-two: 2")
            status, headers, body = client.answer()
        (seen,) = replica.seen
    assert (status, headers["x-engine"], body) == (201, "vllm", b'{"ok": 1}')
    assert (seen.method, seen.path, seen.body) == ("POST", "/v1/x%2Fy/../z?q=%zz&r", b'{"a": 1}')
    assert {"Authorization": "Bearer abc", "Host": "x", "Content-Length": "8"}.items() <= seen.headers.items()
    assert "Accept-Encoding" not in seen.headers
    assert "User-Agent" not in seen.headers


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"])
def test_methods(method):
    """Any method goes through; HEAD has the length of what GET would get, and no body."""
    with Replica(lambda answer: answer.whole(b"12345")) as replica, activator(replica.url) as found:
        ready(found)
        with Client(found.port) as client:
            client.send(f"{method} /v1/models HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = client.read_until(b"\r\n\r\n")
            assert b"Content-Length: 5" in head
            if method == "HEAD":  # the next answer follows at once
                client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200")
            assert client.read_until(b"12345")
        assert replica.seen[0].method == method
        assert replica.seen[0].headers.get("Content-Length", "0") == "0"


def test_fields_about_one_connection_end_here():
    """`Connection`, what it names, and their kin go neither way."""
    hop = {"Connection": "X-Secret", "X-Secret": "1", "Keep-Alive": "timeout=9", "Proxy-Authorization": "Basic eA=="}
    hop |= {"TE": "trailers", "Proxy-Connection": "keep-alive", "Upgrade": "h2c", "Trailer": "X"}
    with Replica(lambda answer: answer.whole(b"", Keep_Alive="timeout=5", Proxy_Authenticate="Basic")) as replica:
        with activator(replica.url) as found:
            ready(found)
            asker = Asker(found.port, headers={**hop, "X-Kept": "yes"}).answered()
        (seen,) = replica.seen
    assert asker.status == 200
    assert not {name.lower() for name in hop} & {name.lower() for name in seen.headers} - {"connection"}
    assert seen.headers.get("Connection", "keep-alive") == "keep-alive"
    assert seen.headers["X-Kept"] == "yes"
    assert not {"keep-alive", "proxy-authenticate"} & asker.headers.keys()


def test_a_chunked_request_has_a_length_afterwards():
    """Chunks are put together once; the replica gets one body with its length."""
    with Replica() as replica, activator(replica.url) as found, Client(found.port) as client:
        ready(found)
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        client.send(b"4\r\ndefg\r\n0\r\n\r\n")
        assert client.answer()[0] == 200
        (seen,) = replica.seen
    assert seen.body == b"abcdefg"
    assert seen.headers["Content-Length"] == "7"
    assert "Transfer-Encoding" not in seen.headers


@pytest.mark.parametrize("size", [1, 65536, 262145, 5_000_000])
def test_bodies_of_any_size(size):
    """Small and large bodies arrive whole, and so do answers."""
    body = os.urandom(size)

    def echo(answer: Answer) -> None:
        answer.whole(answer.server.seen[-1].body, content_type="application/octet-stream")

    with Replica(echo) as replica, activator(replica.url) as found:
        ready(found)
        asker = Asker(found.port, body=body).answered()
        assert asker.body == body
        assert found.queue.bytes == 0


def test_a_client_that_waits_for_100_continue():
    """It is told to go on; the replica hears nothing of that."""
    with Replica() as replica, activator(replica.url) as found, Client(found.port) as client:
        ready(found)
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"{}")
        assert client.answer()[0] == 200
        assert "Expect" not in replica.seen[0].headers


def test_a_stream_is_passed_on_event_by_event():
    """Each event is with the client before the replica sends the next."""
    step = threading.Semaphore(0)

    def slowly(answer: Answer) -> None:
        answer.begin_stream()
        for number in range(3):
            step.acquire()
            answer.chunk(b"data: %d\n\n" % number)
        answer.chunk(b"")

    with Replica(slowly) as replica, activator(replica.url) as found, Client(found.port) as client:
        ready(found)
        client.post()
        assert b"text/event-stream" in client.read_until(b"\r\n\r\n")
        for number in range(3):
            step.release()
            client.read_until(b"data: %d\n\n" % number)
        client.read_until(b"0\r\n\r\n")


def test_connections_are_used_again():
    """A client keeps its connection over many requests, and so does the activator towards the replica."""
    with Replica() as replica, activator(replica.url, probe_interval_s=60.0) as found, Client(found.port) as client:
        ready(found)
        probes = replica.connections
        for _ in range(5):
            client.post()
            assert client.answer()[0] == 200
        assert replica.connections - probes == 1
        assert len(replica.seen) == 5


def no_answer(answer: Answer) -> None:
    """End the connection before the answer."""
    answer.die()


def in_chunks(answer: Answer) -> None:
    """End it within a stream."""
    answer.begin_stream()
    answer.chunk()
    answer.die()


def reset_in_chunks(answer: Answer) -> None:
    """Reset it within a stream."""
    answer.begin_stream()
    answer.chunk()
    time.sleep(0.1)  # what a reset overtakes is lost on the way
    answer.die(reset=True)


def within_its_length(answer: Answer) -> None:
    """End it within an answer that told its length."""
    answer.send_response(200)
    answer.send_header("Content-Length", "1000")
    answer.end_headers()
    answer.wfile.write(EVENT)
    answer.die()


@pytest.mark.parametrize("behave", [in_chunks, reset_in_chunks, within_its_length])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_replica_that_dies_within_an_answer(behave, version):
    """The client gets what there was, and then a broken connection: neither silence nor a clean end."""
    with Replica(behave) as replica, activator(replica.url) as found, Client(found.port) as client:
        ready(found)
        client.send(f"POST / HTTP/{version}\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        client.read_until(EVENT)
        if version == "1.1" or behave is within_its_length:
            rest = client.read_all()
            assert b"0\r\n\r\n" not in rest
        else:
            with pytest.raises(ConnectionResetError):
                client.read_all()
        until(lambda: found.under_way == 0)
        assert len(replica.seen) == 1


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_what_was_sent_is_never_sent_again(method):
    """A replica that takes a request and ends the connection without an answer: 502, whatever the method."""
    with Replica(no_answer) as replica, activator(replica.url) as found, Client(found.port) as client:
        ready(found)
        client.send(f"{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        status, _, body = client.answer()
        assert status == 502
        assert "ended the connection before it answered" in json.loads(body)["error"]["message"]
        assert len(replica.seen) == 1


def test_a_connection_that_the_replica_has_closed_meanwhile():
    """An idle connection whose end was seen is not used: the next request gets another."""

    def once(answer: Answer) -> None:
        answer.whole()
        answer.close_connection = True

    with Replica(once) as replica, activator(replica.url) as found, Client(found.port) as client:
        ready(found)
        for _ in range(3):
            client.post()
            assert client.answer()[0] == 200
            time.sleep(0.05)


def test_a_replica_that_refuses_is_passed_over():
    """Nothing was sent to it, so the request goes to another, and its client sees none of that."""
    with dns_server() as names, Replica() as good:
        names.zone["vllm.test"] = ["127.0.0.1"]
        settings = {"dns_server": names.address, "probe_interval_s": 60.0}
        with activator(f"http://vllm.test:{good.port}", **settings) as found:
            ready(found)
            found.endpoints.update(["127.0.0.1", "127.0.0.2"])  # where nobody listens
            for endpoint in found.endpoints:
                endpoint.set_ready(True, "")
            assert [Asker(found.port).answered().status for _ in range(4)] == [200] * 4
            assert {endpoint.address: endpoint.ready for endpoint in found.endpoints}["127.0.0.2"] is False
            until(lambda: all(endpoint.outstanding == 0 for endpoint in found.endpoints))
        assert len(good.seen) == 4


def test_every_address_of_the_name_is_a_replica():
    """Requests go where the fewest are outstanding; a new address is found while it runs."""

    def wait(answer: Answer) -> None:
        answer.server.let_go.wait(30)
        answer.whole()

    with dns_server() as names, Replica(wait) as one, Replica(wait, host="127.0.0.2", port=one.port) as two:
        names.zone["vllm.test"] = ["127.0.0.1"]
        with activator(f"http://vllm.test:{one.port}", dns_server=names.address) as found:
            ready(found)
            askers = [Asker(found.port) for _ in range(3)]
            until(lambda: len(one.seen) == 3)
            names.zone["vllm.test"] = ["127.0.0.1", "127.0.0.2"]
            ready(found, 2)
            askers += [Asker(found.port) for _ in range(3)]
            until(lambda: len(two.seen) == 3)
            assert len(one.seen) == 3
            one.let_go.set()
            two.let_go.set()
            assert {asker.answered().status for asker in askers} == {200}


def test_no_byte_of_an_answer_in_time():
    """504 before the answer began; a broken connection within it."""

    def hang(answer: Answer) -> None:
        if answer.path == "/within":
            answer.begin_stream()
            answer.chunk()
        answer.server.let_go.wait(30)
        answer.close_connection = True

    with Replica(hang) as replica, activator(replica.url, read_timeout_s=0.3) as found:
        ready(found)
        asker = Asker(found.port).answered()
        assert asker.status == 504
        assert asker.error == "the replica did not answer within 0.3 s"
        with Client(found.port) as client:
            client.post(b"{}", "/within")
            client.read_until(EVENT)
            assert b"0\r\n\r\n" not in client.read_all()


def test_a_client_that_goes_away_ends_the_work():
    """The replica's connection is ended too, so that an engine stops generating for nobody."""
    ended = threading.Event()

    def stream(answer: Answer) -> None:
        answer.begin_stream()
        try:
            while not answer.server.let_go.is_set():
                answer.chunk()
                time.sleep(0.01)
        except OSError:
            ended.set()

    with Replica(stream) as replica, activator(replica.url) as found:
        ready(found)
        with Client(found.port) as client:
            client.post()
            client.read_until(EVENT)
        assert ended.wait(30)
        until(lambda: found.under_way == 0)
        assert [endpoint.outstanding for endpoint in found.endpoints] == [0]


def test_a_slow_client_stalls_nobody_and_gathers_nothing():
    """One that does not read holds its own replica back, within a bounded buffer; others are served meanwhile."""
    sent = [0]

    def flood(answer: Answer) -> None:
        if answer.path != "/flood":
            answer.whole()
            return
        answer.begin_stream()
        try:
            for _ in range(2000):
                answer.chunk(b"x" * 65536)
                sent[0] += 65536
        except OSError:
            pass

    with Replica(flood) as replica, activator(replica.url) as found, Client(found.port, receive_bytes=4096) as slow:
        ready(found)
        slow.post(b"{}", "/flood")
        until(lambda: sent[0])
        before = -1
        while before != sent[0]:  # until nothing moves any more
            before = sent[0]
            assert Asker(found.port).answered().took_s < 10
            time.sleep(0.2)
        assert sent[0] < 60 << 20  # of 125 MiB: what two pairs of kernel buffers take


def test_a_client_that_takes_nothing_is_let_go(monkeypatch):
    """After a while its connection is ended, and the replica's with it."""
    monkeypatch.setattr(relay, "STALL_S", 0.2)
    ended = threading.Event()

    def flood(answer: Answer) -> None:
        answer.begin_stream()
        try:
            while not answer.server.let_go.is_set():
                answer.chunk(b"x" * 65536)
        except OSError:
            ended.set()

    with Replica(flood) as replica, activator(replica.url) as found, Client(found.port, receive_bytes=4096) as slow:
        ready(found)
        slow.post()
        assert ended.wait(30)
        until(lambda: found.under_way == 0)


def test_a_body_over_the_bound():
    """413, announced or not, and nothing reaches the replica."""
    with Replica() as replica, activator(replica.url, max_body_bytes=100) as found:
        ready(found)
        assert Asker(found.port, body=b"x" * 101).answered().status == 413
        with Client(found.port) as client:
            client.send(
                b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101 + b"\r\n"
            )
            status, _, body = client.answer()
        assert status == 413
        assert "longer than 100 bytes (--max-body-bytes)" in json.loads(body)["error"]["message"]
        assert Asker(found.port, body=b"x" * 100).answered().status == 200
        assert len(replica.seen) == 1
        assert found.queue.bytes == 0


CHUNKED = b"Transfer-Encoding: chunked"

SMUGGLED = {
    "length and chunks": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n" + CHUNKED + b"\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
    "a signed length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
    "an odd coding": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 4\r\n\r\nabcd",
    "a folded line": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a huge head": b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 20000 + b"\r\n\r\n",
    "a broken chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
    "no path": b"GET http://elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2 in the words of 1": b"POST / HTTP/2.0\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "two hosts in one": b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "not UTF-8": b"GET / HTTP/1.1\r\nHost: x\r\nA: \xe9\r\n\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_what_is_no_clean_request(name, caplog):
    """It is refused with 400 in our name, its connection ended; no part of it reaches a replica; the log is quiet."""
    with Replica() as replica, activator(replica.url) as found, Client(found.port) as client:
        ready(found)
        client.send(SMUGGLED[name])
        head = client.read_until(b"\r\n\r\n")
        assert head.split()[1] == b"400"
        assert b"Server: infscale\r\n" in head
        if name != "not UTF-8":
            client.read_all()
        assert replica.seen == []
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_tunnel_is_refused():
    """CONNECT is 501."""
    with Replica() as replica, activator(replica.url) as found, Client(found.port) as client:
        client.send(b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n\r\n")
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 501 ")
        assert replica.seen == []


def test_the_environment_names_no_proxy(monkeypatch):
    """Proxies of the environment never apply."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    with Replica() as replica, activator(replica.url) as found:
        ready(found)
        assert Asker(found.port).answered().status == 200


def test_redirects_and_cookies_are_the_clients():
    """A redirect is passed on and not followed; a cookie of one client is not sent for another."""
    with Replica(lambda answer: answer.whole(b"", status=307, Location="/x", Set_Cookie="a=b")) as replica:
        with activator(replica.url) as found:
            ready(found)
            first, _ = (Asker(found.port).answered() for _ in range(2))
        assert (first.status, first.headers["location"], first.headers["set-cookie"]) == (307, "/x", "a=b")
        assert [("Cookie" in seen.headers) for seen in replica.seen] == [False, False]


def test_compressed_stays_compressed():
    """An answer that is compressed goes through as it is, and so does a request."""
    with Replica(lambda answer: answer.whole(b"\x1f\x8bnot really", Content_Encoding="gzip")) as replica:
        with activator(replica.url) as found:
            ready(found)
            asker = Asker(found.port, body=b"\x1f\x8bneither", headers={"Content-Encoding": "gzip"}).answered()
        assert (asker.body, asker.headers["content-encoding"]) == (b"\x1f\x8bnot really", "gzip")
        assert replica.seen[0].body == b"\x1f\x8bneither"


def test_what_is_passed_on_at_once_was_not_held():
    """With a replica ready nothing counts as held, and nothing is pending afterwards."""
    with Replica() as replica, activator(replica.url) as found:
        ready(found)
        assert Asker(found.port).answered().status == 200
        assert outcomes(found) == {}
        assert found.queue.pending == 0
