"""Requests that are held: counted, kept in order, released, refused, and kept alive; and how the activator stops."""

from __future__ import annotations

import json
import threading
import time

import pytest

from infscale.activator.comments import COMMENT
from tests.activator.rig import (
    EVENT,
    Answer,
    Asker,
    Client,
    Replica,
    activator,
    free_port,
    holds,
    outcomes,
    ready,
    refused,
    until,
)

STREAM = b'{"prompt": "x", "stream": true}'


def test_held_until_a_replica_is_ready():
    """Requests at zero wait, count as pending, and reach the replica in their order as soon as it is ready."""
    port = free_port()
    with activator(f"http://127.0.0.1:{port}") as found:
        askers = []
        for number in range(5):
            askers.append(Asker(found.port, f"/{number}"))
            holds(found, number + 1)
        began_s = time.monotonic()
        with Replica(ready=False, serial=True, port=port) as replica:
            until(lambda: replica.probes > 1)  # it listens, and says that it is not ready
            assert found.queue.pending == 5
            assert replica.seen == []
            replica.ready = True
            opened_s = time.monotonic()
            assert [asker.answered().status for asker in askers] == [200] * 5
            assert [seen.path for seen in replica.seen] == [f"/{number}" for number in range(5)]
        assert all(asker.took_s >= opened_s - began_s for asker in askers)
        assert found.queue.pending == found.queue.bytes == 0
        assert outcomes(found) == {"released": 5}
        assert found.counters.totals().sum_s >= 5 * (opened_s - began_s)


def test_many_are_released_in_order():
    """Two hundred connections reach the replica one after the other, as they came."""
    port = free_port()
    with activator(f"http://127.0.0.1:{port}") as found:
        clients = []
        for number in range(200):
            clients.append(Client(found.port))
            clients[-1].post(b"{}", f"/{number}")
            holds(found, number + 1)
        with Replica(serial=True, port=port) as replica:
            for client in clients:
                assert client.answer()[0] == 200
                client.close()
            assert [seen.path for seen in replica.seen] == [f"/{number}" for number in range(200)]


def test_who_comes_while_others_wait_waits_behind_them():
    """A replica that is ready is no shortcut past those in line."""
    port = free_port()
    with activator(f"http://127.0.0.1:{port}") as found:
        first = Asker(found.port, "/first")
        holds(found, 1)
        later: list[Asker] = []

        def behave(answer: Answer) -> None:
            if answer.path == "/first":
                later.append(Asker(found.port, "/later"))
            answer.whole()

        with Replica(behave, port=port) as replica:
            first.answered()
            until(lambda: later)
            later[0].answered()
            assert [seen.path for seen in replica.seen] == ["/first", "/later"]


def test_too_long():
    """After the time-out: 503, when to try again, and why."""
    with activator(f"http://127.0.0.1:{free_port()}", hold_s=0.3) as found:
        asker = Asker(found.port).answered()
        assert (asker.status, asker.headers["retry-after"]) == (503, "5")
        assert asker.error == "no replica was ready within 0.3 s"
        assert asker.took_s >= 0.3
        assert outcomes(found) == {"timed_out": 1}
        assert found.queue.pending == 0


def test_over_the_bound_of_requests():
    """One more is answered 503 at once, and those that are held stay."""
    with (
        activator(f"http://127.0.0.1:{free_port()}", max_held=2) as found,
        Client(found.port) as one,
        Client(found.port) as two,
        Client(found.port) as three,
    ):
        one.post()
        two.post()
        holds(found, 2)
        three.post()
        status, headers, body = three.answer()
        assert (status, headers["retry-after"]) == (503, "5")
        assert json.loads(body)["error"]["message"] == "2 requests are held already"
        assert outcomes(found) == {"full": 1}
        assert found.queue.pending == 2


def test_over_the_bound_of_bytes():
    """A body that does not fit is refused by its announced length, before it is read; a chunked one as it comes."""
    with activator(f"http://127.0.0.1:{free_port()}", max_held_bytes=100) as found:
        with Client(found.port) as one, Client(found.port) as two, Client(found.port) as three:
            one.post(b"x" * 60)
            holds(found, 1)
            two.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 41\r\n\r\n")
            status, _, body = two.answer()
            assert status == 503
            assert "60 bytes are held already" in json.loads(body)["error"]["message"]
            three.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n29\r\n" + b"x" * 41)
            assert three.answer()[0] == 503
            assert (found.queue.pending, found.queue.bytes) == (1, 60)
        until(lambda: found.queue.bytes == 0)


def test_a_client_that_goes_away_leaves_the_queue():
    """Its place, its bytes and its count are free, and no replica sees its request."""
    port = free_port()
    with activator(f"http://127.0.0.1:{port}") as found:
        stays = Asker(found.port, "/stays")
        holds(found, 1)
        with Client(found.port) as goes:
            goes.post(b"x" * 1000, "/goes")
            holds(found, 2)
        holds(found, 1)
        assert found.queue.bytes == 2
        with Replica(port=port) as replica:
            assert stays.answered().status == 200
            assert [seen.path for seen in replica.seen] == ["/stays"]
        assert outcomes(found) == {"left": 1, "released": 1}


def test_a_slow_sender_holds_nobody_up():
    """A request is in line once its body is there; it counts as pending from its head on."""
    port = free_port()
    with activator(f"http://127.0.0.1:{port}") as found, Client(found.port) as slow:
        slow.send(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
        until(lambda: found.queue.pending == 1)
        other = Asker(found.port, "/other")
        until(lambda: len(found.queue) == 1)
        with Replica(port=port) as replica:
            assert other.answered().status == 200
            slow.send(b"}")
            assert slow.answer()[0] == 200
            assert [seen.path for seen in replica.seen] == ["/other", "/slow"]


def test_a_replica_that_is_gone_again():
    """One that said ready and then refuses: the request goes back in line and is served when it is there."""
    port = free_port()
    with activator(f"http://127.0.0.1:{port}", probe_interval_s=0.5) as found:
        until(lambda: list(found.endpoints))
        for endpoint in found.endpoints:
            endpoint.set_ready(True, "")
        asker = Asker(found.port)
        holds(found, 1)
        with Replica(port=port):
            assert asker.answered().status == 200
        assert outcomes(found) == {"released": 1}


def test_somebody_held_is_told_of():
    """The waker is asked for each request that has to wait; somebody waits for as long as nothing is ready."""
    port, asked = free_port(), []
    with activator(f"http://127.0.0.1:{port}") as found:
        found.on_held = lambda: asked.append(found.waiting())
        assert not found.waiting()
        asker = Asker(found.port)
        until(lambda: asked == [True])
        with Replica(port=port):
            asker.answered()
        assert not found.waiting()


@pytest.mark.parametrize("accept", [False, True])
def test_comments_keep_a_held_stream_alive(accept):
    """A client that asked for a stream gets comments while it waits, then the replica's events."""
    port = free_port()
    body, lines = (b"{}", ["Accept: text/event-stream"]) if accept else (STREAM, [])
    with activator(f"http://127.0.0.1:{port}", keep_alive_s=0.05) as found, Client(found.port) as client:
        client.post(body, "/v1/completions", *lines, "Accept-Encoding: gzip")
        head = client.read_until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"Content-Type: text/event-stream" in head
        for _ in range(3):
            client.read_until(COMMENT)
        with Replica(lambda answer: answer.stream(2), port=port) as replica:
            client.read_until(EVENT)
            client.read_until(EVENT)
            client.read_until(b"0\r\n\r\n")
            assert "Accept-Encoding" not in replica.seen[0].headers
        assert outcomes(found) == {"released": 1}


@pytest.mark.parametrize(
    "body", [b'{"stream": false}', b'{"prompt": "\\"stream\\": true"}', b"", b"[" * 5000, b'["stream"]']
)
def test_no_comments_for_who_asked_for_no_stream(body):
    """Its answer keeps its own status: 503 after the time-out."""
    with activator(f"http://127.0.0.1:{free_port()}", keep_alive_s=0.05, hold_s=0.3) as found:
        assert Asker(found.port, body=body).answered().status == 503


def test_no_comments_unless_told():
    """By default nothing is sent before a replica has answered."""
    with activator(f"http://127.0.0.1:{free_port()}", hold_s=0.3) as found:
        assert Asker(found.port, body=STREAM).answered().status == 503


def test_a_stream_that_was_kept_alive_in_vain():
    """Once the stream has begun, the time-out is told inside it, and the stream ends as one."""
    with activator(f"http://127.0.0.1:{free_port()}", keep_alive_s=0.05, hold_s=0.3) as found:
        asker = Asker(found.port, body=STREAM).answered()
    assert asker.status == 200
    event, done = [line for line in asker.body.split(b"\n") if line.startswith(b"data: ")]
    error = json.loads(event.removeprefix(b"data: "))["error"]
    assert error == {"message": "no replica was ready within 0.3 s", "type": "service_unavailable_error", "code": 503}
    assert done == b"data: [DONE]"


def test_an_error_of_the_replica_within_a_stream():
    """What the replica says instead of a stream is told as an event, with its status."""
    port = free_port()
    refused = b'{"error": {"message": "no such model", "code": 404}}'
    with activator(f"http://127.0.0.1:{port}", keep_alive_s=0.05) as found, Client(found.port) as client:
        client.post(STREAM)
        client.read_until(COMMENT)
        with Replica(lambda answer: answer.whole(refused, status=404), port=port):
            event = client.read_until(b"[DONE]").split(b"data: ")[1]
            error = json.loads(event)["error"]
    assert (error["code"], error["message"]) == (404, "the replica answered HTTP 404: no such model")


def test_a_replica_that_dies_after_comments():
    """The stream is broken, not ended."""
    port = free_port()

    def die(answer: Answer) -> None:
        answer.begin_stream()
        answer.chunk()
        answer.die()

    with activator(f"http://127.0.0.1:{port}", keep_alive_s=0.05) as found, Client(found.port) as client:
        client.post(STREAM)
        client.read_until(COMMENT)
        with Replica(die, port=port):
            client.read_until(EVENT)
            assert b"0\r\n\r\n" not in client.read_all()


def test_a_client_that_leaves_between_comments():
    """It leaves the queue like any other."""
    with activator(f"http://127.0.0.1:{free_port()}", keep_alive_s=0.05) as found:
        with Client(found.port) as client:
            client.post(STREAM)
            client.read_until(COMMENT)
        until(lambda: outcomes(found) == {"left": 1})
        until(lambda: found.under_way == 0)


def stopping(found) -> threading.Thread:
    """Tell an activator to stop, on a thread."""
    thread = threading.Thread(target=lambda: found.stop(0.0))
    thread.start()
    return thread


def test_stop_serves_what_is_held_and_under_way():
    """New connections are refused, a stream comes to its end, and a held request still gets its replica."""
    port = free_port()
    with activator(f"http://127.0.0.1:{port}", drain_s=30.0) as found:
        held = Asker(found.port, "/held")
        holds(found, 1)
        thread = stopping(found)
        until(lambda: refused(found.port))
        assert thread.is_alive()
        with Replica(lambda answer: answer.stream(), port=port):
            assert held.answered().status == 200
            assert held.headers["connection"] == "close"
            thread.join(30)
        assert not thread.is_alive()
        assert found.stop(0.0)


def test_stop_has_a_bound():
    """What is held at the end gets 503, a stream that does not end is broken off, and the activator says so."""

    def endless(answer: Answer) -> None:
        answer.begin_stream()
        answer.chunk()
        answer.server.let_go.wait(30)
        answer.close_connection = True

    port = free_port()
    with activator(f"http://127.0.0.1:{port}", drain_s=0.3) as found, Client(found.port) as client:
        with Replica(endless, port=port) as replica:
            ready(found)
            client.post()
            client.read_until(EVENT)
            replica.ready = False
            ready(found, 0)
            held = Asker(found.port)
            holds(found, 1)
            assert not found.stop(0.0)
            assert b"0\r\n\r\n" not in client.read_all()
        assert held.answered().status == 503
        assert "the activator is stopping" in held.error
        assert outcomes(found) == {"stopped": 1}


def test_an_idle_connection_does_not_hold_the_stop_up():
    """Clients that keep a connection without a request lose it at once."""
    with activator(f"http://127.0.0.1:{free_port()}", drain_s=30.0, hold_s=0.1) as found, Client(found.port) as client:
        client.post()
        assert client.answer()[0] == 503
        began_s = time.monotonic()
        assert found.stop(0.0)
        assert time.monotonic() - began_s < 20
        assert client.read_all() == b""
