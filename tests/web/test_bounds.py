"""Clients that say nothing, drip, or are too many: nobody else waits for them, and they end."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

import pytest

from infscale.web.connection import Timeouts
from infscale.web.parking import MAX_HELD_BYTES
from infscale.web.server import Listener
from tests.web.rig import PAGE, Client, Gate, eventually, listening

QUICK = Timeouts(idle_s=0.5, head_s=0.5)


def threads_of(server: Listener) -> int:
    """How many threads a listener has: one that watches, and at most two more than max_requests."""
    return sum(thread.name.startswith(f"http-{server.port}") for thread in threading.enumerate())


def test_silent_clients_cost_no_thread():
    """200 clients that say nothing, and 100 with half a request, cost no thread, and a scrape is answered."""
    with listening(max_requests=5) as server, contextlib.ExitStack() as stack:
        for n in range(300):
            client = stack.enter_context(Client(server.port))
            if n % 3 == 0:
                client.send(b"GET /metrics HTTP/1.1\r\nHo")
        with Client(server.port) as scraper:
            assert scraper.get().body == PAGE
        assert threads_of(server) <= 8


def test_silent_tls_clients(tls_config):
    """200 clients of a TLS port that say nothing, or stop in the handshake, do not hold up a scrape."""
    config, trust = tls_config
    with listening(web_config=config, max_requests=5) as server, contextlib.ExitStack() as stack:
        for n in range(200):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            if n % 2:
                client.sendall(b"\x16\x03\x01\x02\x00\x01")
        with Client(server.port, tls=trust) as scraper:
            assert scraper.get().body == PAGE
        assert threads_of(server) <= 8


def test_silent_client_is_closed():
    """A client that says nothing for the idle time is closed without a word, before and after a request."""
    with listening(timeouts=QUICK) as server, Client(server.port) as silent, Client(server.port) as idle:
        assert idle.get().status == 200
        assert silent.at_end()
        assert idle.at_end()


def test_dripping_client_is_closed():
    """The head of a request has one deadline: a byte now and then does not extend it. The client is told why."""
    with listening(timeouts=Timeouts(idle_s=30, head_s=0.5)) as server, Client(server.port) as dripping:
        dripping.send(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - began < 10:
                dripping.send(b"X-Drip: 1\r\n")
                dripping.sock.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    if answer := dripping.sock.recv(65536):
                        assert answer.startswith(b"HTTP/1.1 408 ")
                        break
        assert 0.4 < time.monotonic() - began < 9


def test_body_that_does_not_come():
    """A body that is announced and not sent ends in 408."""
    with listening(timeouts=QUICK) as server, Client(server.port) as client:
        client.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
        assert client.answer().status == 408
        assert client.at_end()


def test_answer_that_is_not_taken():
    """A client that does not take its answer is closed after the idle time."""
    with listening(timeouts=QUICK) as server, socket.socket() as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.connect(("127.0.0.1", server.port))
        greedy.settimeout(10)
        greedy.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 1000)
        time.sleep(1.5)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := greedy.recv(1 << 20):
                received += len(chunk)
    assert received < 1000 * len(PAGE)


def test_tls_handshake_has_a_deadline(tls_config):
    """A client that stops in the middle of the handshake is closed."""
    config, _ = tls_config
    timeouts = Timeouts(idle_s=30, head_s=0.5)
    with listening(web_config=config, timeouts=timeouts) as server, Client(server.port) as stuck:
        stuck.send(b"\x16\x03\x01\x02\x00\x01")
        assert stuck.at_end()


def test_endless_pipelines_do_not_starve_others():
    """Clients that keep every worker busy with pipelined requests get their turn, and so does everybody else."""
    asked, rounds = b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n", 4000
    received = [0, 0, 0]
    with listening(max_requests=1) as server, contextlib.ExitStack() as stack:
        busy = [stack.enter_context(Client(server.port)) for _ in received]
        other = stack.enter_context(Client(server.port))

        def read(index: int) -> None:
            for _ in range(rounds):
                busy[index].answer()
                received[index] += 1

        threads = [threading.Thread(target=read, args=(index,)) for index in range(3)]
        threads += [threading.Thread(target=client.send, args=(asked * rounds,)) for client in busy]
        for thread in threads:
            thread.start()
        assert eventually(lambda: sum(received) > 0)
        other.get()
        assert sum(received) < 3 * rounds / 2
        for thread in threads:
            thread.join(30)
    assert received == [rounds] * 3


def test_too_many_requests():
    """One request more than may be in work is answered 503 at once, and the next one after that is answered again."""
    gate = Gate()
    with listening(gate, max_requests=2) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Client(server.port)) for _ in range(2)]
        for client in slow:
            client.send(b"GET /gate HTTP/1.1\r\nHost: h\r\n\r\n")
            gate.wait_inside()
        with Client(server.port) as extra:
            answer = extra.get()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            gate.open.set()
            assert [client.answer().status for client in slow] == [200, 200]
            assert extra.get().status == 200


def test_too_many_connections():
    """Over the cap the connection that waited longest goes; a new client is served."""
    with listening(max_connections=20) as server, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(Client(server.port)) for _ in range(20)]
        with Client(server.port) as client:
            assert client.get().status == 200
        assert silent[0].at_end()


def test_memory_for_waiting_clients_is_bounded():
    """Half-sent requests of all clients together are bounded: who holds most is closed, others are served."""
    with listening() as server, contextlib.ExitStack() as stack:
        hoarders = [stack.enter_context(Client(server.port)) for _ in range(30)]
        small = stack.enter_context(Client(server.port))
        small.send(b"GET /metrics HTTP/1.1\r\nHo")
        for hoarder in hoarders:
            with contextlib.suppress(ConnectionError):
                hoarder.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n" + b"x" * 1_000_000)

        def closed() -> int:
            readable, _, _ = select.select([hoarder.sock for hoarder in hoarders], [], [], 0)
            return len(readable)

        assert eventually(lambda: closed() >= 30 - MAX_HELD_BYTES / 1_000_000)
        assert closed() < 30
        small.send(b"st: h\r\n\r\n")
        assert small.answer().body == PAGE


def test_too_many_connections_all_at_work():
    """Where every connection is at work, the new one is refused and the others finish."""
    gate = Gate()
    with listening(gate, max_connections=2) as server, contextlib.ExitStack() as stack:
        busy = [stack.enter_context(Client(server.port)) for _ in range(2)]
        for client in busy:
            client.send(b"GET /gate HTTP/1.1\r\nHost: h\r\n\r\n")
            gate.wait_inside()
        with Client(server.port) as refused:
            assert refused.at_end()
        gate.open.set()
        assert [client.answer().status for client in busy] == [200, 200]


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTT"])
def test_stop_closes_idle_clients(sent):
    """A stop does not wait for clients that asked nothing; half a request has until the bound."""
    with listening() as server, Client(server.port) as client:
        client.send(sent)
        with Client(server.port) as other:
            assert other.get().status == 200
        began = time.monotonic()
        server.stop(0.5)
        assert client.at_end()
        assert time.monotonic() - began < 8
