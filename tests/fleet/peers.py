"""Many peers in one process: one port on every loopback address, an answer for each address. Also a program:

    python tests/fleet/peers.py [--hang 50]     prints its port; the first addresses of 127.1.0.0/16 then never answer

The standard library alone, so that the benchmark can run it too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

BOUNDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0]


def address(number: int) -> str:
    """The address of a peer."""
    return f"127.1.{number // 200}.{number % 200 + 1}"


def reading(**told: object) -> dict[str, object]:
    """A sidecar's reading of usual size."""
    model = {"model": "m", "running": 5.0, "waiting": 2.0, "inflight": 7.0, "kv": 0.4, "finished": [["stop", 9.0]]}
    return {
        "state": "ok",
        "message": "",
        "up": True,
        "inflight": 7.0,
        "running": 5.0,
        "waiting": 2.0,
        "kv": 0.4,
        "capacity": None,
        "cpu_ratio": None,
        "prompt_tokens": 123456.0,
        "generation_tokens": 65432.0,
        "ttft": [{"le": [*BOUNDS, "+Inf"], "counts": [float(n) for n in range(len(BOUNDS) + 1)]}],
        "draining": False,
        "read_at": 1800000000.0,
        "models": [model],
        "engines": [{"url": "http://127.0.0.1:8000/metrics", "engine": "vllm", "state": "ok", "message": ""}],
        "warnings": [],
        **told,
    }


def answer(body: object, status: str = "200 OK") -> bytes:
    """An HTTP answer with JSON in it."""
    data = (json.dumps(body, indent=1) + "\n").encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


class Peers:
    """Answers each connection by the address that it came to.

    Args:
        answers: the bytes for an address; None: never.
    """

    def __init__(self, answers: Callable[[str], bytes | None]) -> None:
        self._answers = answers
        self._listener = socket.create_server(("0.0.0.0", 0), backlog=2048)
        self.port: int = self._listener.getsockname()[1]
        self._wake, self._woken = socket.socketpair()

    def serve(self) -> None:
        """Answers until `stop`; connections stay open until the client leaves."""
        with selectors.DefaultSelector() as selector:
            for waited in (self._listener, self._woken):
                waited.setblocking(False)
                selector.register(waited, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    connection = key.fileobj
                    assert isinstance(connection, socket.socket)
                    if connection is self._woken:
                        self._end(selector)
                        return
                    if connection is self._listener:
                        self._accept(selector)
                    elif not self._talk(connection):
                        selector.unregister(connection)
                        connection.close()

    def stop(self) -> None:
        """Ends `serve`, from another thread."""
        self._wake.send(b"!")

    def _accept(self, selector: selectors.BaseSelector) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)

    def _talk(self, connection: socket.socket) -> bool:
        try:
            data = connection.recv(65536)
            if not data:
                return False
            told = self._answers(connection.getsockname()[0])
            if told is not None:
                connection.sendall(told)
        except OSError:
            return False
        return True

    def _end(self, selector: selectors.BaseSelector) -> None:
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._wake.close()


@contextlib.contextmanager
def peers(answers: Callable[[str], bytes | None]) -> Iterator[int]:
    """Peers in a thread of this process; gives their port."""
    server = Peers(answers)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server.port
    finally:
        server.stop()
        thread.join()


@contextlib.contextmanager
def peers_apart(hang: int = 0) -> Iterator[int]:
    """Peers in a process of their own; gives their port."""
    command = [sys.executable, str(Path(__file__)), "--hang", str(hang)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def main() -> None:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hang", type=int, default=0)
    hanging = {address(number) for number in range(parser.parse_args().hang)}
    told = answer(reading())
    server = Peers(lambda came_to: None if came_to in hanging else told)
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
