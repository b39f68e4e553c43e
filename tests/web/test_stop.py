"""Stopping a listener: what is under way is answered, the rest is refused."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from infscale.web.message import text_response
from infscale.web.routes import Router
from infscale.web.server import Listener
from tests.web.rig import Client, Gate, eventually, listening


def refused(port: int) -> bool:
    """Whether nobody listens."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionError:  # reset: it stopped between the two halves of connecting
        return True
    return False


def test_requests_under_way_are_answered():
    """A request in work is answered, its connection then ends; new connections are refused meanwhile."""
    gate = Gate()
    with listening(gate) as server, Client(server.port) as client:
        client.send(b"GET /gate HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_inside()
        result: list[bool] = []
        stopping = threading.Thread(target=lambda: result.append(server.stop(10)))
        stopping.start()
        assert eventually(lambda: refused(server.port))
        gate.open.set()
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert client.at_end()
        stopping.join(10)
        assert result == [True]


def test_bound_of_the_drain():
    """A request that takes longer than the bound is left behind, and stop says so."""
    gate = Gate()
    with listening(gate) as server, Client(server.port) as client:
        client.send(b"GET /gate HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_inside()
        assert server.stop(0.2) is False
        gate.open.set()
        client.answer()


def test_queued_requests_are_answered():
    """Requests that wait for a worker when the stop begins are answered too."""
    gate = Gate()
    with listening(gate, max_requests=1) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(6)]
        for client in clients:
            client.send(b"GET /gate HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_inside()
        stopping = threading.Thread(target=server.stop, args=(10,))
        stopping.start()
        assert eventually(lambda: refused(server.port))
        gate.open.set()
        statuses = [client.answer().status for client in clients]
        stopping.join(10)
    assert 200 in statuses
    assert set(statuses) <= {200, 503}


def test_request_in_the_kernels_queue_is_answered():
    """A client that was connected and had asked before the stop is answered, even if nobody had looked at it yet."""
    router = Router()
    router.add("/metrics", lambda _: text_response(200, "page"))
    listener = Listener("127.0.0.1:0", router)
    with Client(listener.port) as client:
        client.send(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        assert listener.stop(10)
        assert client.answer().status == 200


def test_stop_twice_and_without_start():
    """A stop may be repeated, and a listener that was never started lets go of its port."""
    with listening() as server:
        assert server.stop(1)
        assert server.stop(1)
    listener = Listener("127.0.0.1:0", Router())
    assert listener.stop(1)
    assert refused(listener.port)


@pytest.mark.parametrize("round_", range(3))
def test_stop_under_load(round_):
    """Clients that ask without pause get whole answers up to the stop, never a cut one."""
    with listening() as server:
        bad: list[object] = []

        def ask() -> None:
            try:
                while True:
                    with Client(server.port) as client:
                        while (answer := client.get()).headers.get("connection") != "close":
                            if answer.status != 200 or len(answer.body) != int(answer.headers["content-length"]):
                                bad.append(answer)
            except (OSError, AssertionError):
                return  # closed between two requests, or refused: the end

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        threading.Event().wait(0.2)
        assert server.stop(10)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert bad == []
