"""Ten thousand clients with 200 MB at an activator that holds half of that: a clean 503 for the rest, and no growth."""

from __future__ import annotations

import os
import resource
import select
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.activator.process import ActivatorProcess
from tests.activator.rig import free_port, until
from tests.sidecar_process import LONG_S

CLIENTS, BODY_BYTES = 10_000, 20_000
MORE = 500
HELD_BYTES = 100_000_000
PER_CLIENT_MB = 0.05
"""What a held connection may cost beside its body, twice of what it does."""

REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES + b"x" * BODY_BYTES


def resident_mb(pid: int) -> float:
    """Resident memory of a process, in MB (10^6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Crowd:
    """Clients that each send one request and wait for its answer.

    Attributes:
        refused: those that got 503 and the end of their connection.
    """

    def __init__(self, process: ActivatorProcess) -> None:
        self.refused = 0
        self._process, self._poll = process, select.poll()
        self._open: dict[int, socket.socket] = {}

    def ask(self, count: int) -> dict[str, Any]:
        """So many more clients; the activator's account once each of them is held or refused."""
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", self._process.port), timeout=LONG_S)
            self._open[client.fileno()] = client
            self._poll.register(client, select.POLLIN)
            client.sendall(REQUEST)
        end_s = time.monotonic() + 4 * LONG_S
        while True:
            self._read()
            status = self._process.held()
            if status["held"] == len(self._open):
                return status
            assert time.monotonic() < end_s, status
            time.sleep(0.05)

    def _read(self) -> None:
        for number, _ in self._poll.poll(0):
            client = self._open.pop(number)
            self._poll.unregister(number)
            answer = b""
            while piece := client.recv(65536):
                answer += piece
            client.close()
            assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"Retry-After: 5\r\n" in answer
            assert answer.endswith(b"}\n") or b"too many connections" in answer
            self.refused += 1

    def leave(self) -> None:
        """All connections end."""
        for client in self._open.values():
            client.close()


@pytest.mark.timeout(300)
def test_ten_thousand_requests_and_a_bound():
    """What fits is held, all else gets 503 at once; a second wave costs no memory; whoever leaves makes room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(CLIENTS, hard // 2 - 256)  # where a process may open fewer files, fewer clients
    held_bytes = HELD_BYTES * count // CLIENTS
    bounds = f"--max-held={CLIENTS}", f"--max-held-bytes={held_bytes}", f"--max-connections={CLIENTS}"
    try:
        with ActivatorProcess(f"http://127.0.0.1:{free_port()}", *bounds) as process:
            empty_mb = resident_mb(process.popen.pid)
            crowd = Crowd(process)
            status = crowd.ask(count - MORE)
            assert status["held_bytes"] == status["held"] * BODY_BYTES
            assert held_bytes - BODY_BYTES < status["held_bytes"] <= held_bytes
            assert crowd.refused == count - MORE - status["held"]
            full_mb = resident_mb(process.popen.pid)
            assert full_mb - empty_mb < held_bytes / 1e6 + status["held"] * PER_CLIENT_MB
            assert crowd.ask(MORE)["held"] == status["held"]
            assert crowd.refused == count - status["held"]
            assert resident_mb(process.popen.pid) - full_mb < MORE * BODY_BYTES / 1e6 / 2
            crowd.leave()
            until(lambda: process.held()["held_bytes"] == 0)
            assert process.held()["held"] == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
