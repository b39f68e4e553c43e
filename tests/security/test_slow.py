"""A thousand clients that take their time: whoever asks as one should is answered, and memory stays as it was."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
from collections.abc import Iterator

import pytest

from tests.activator.process import ActivatorProcess
from tests.activator.rig import until
from tests.activator.test_bounds import resident_mb
from tests.certs import make_certs
from tests.security.roles import AUTHORIZATION, QUICK, kubelet_address, main_address, role, web_config
from tests.security.wire import request, say
from tests.sidecar_process import Process

CLIENTS = 1000
MORE_MB = 24.0
"""For a listener's 512 connections with up to 16 kB each that have come, its buffers and its threads."""

BEGINNINGS = (
    b"",
    b"G",
    b"GET /metrics HTTP/1.1\r\nHo",
    b"GET /metrics HTTP/1.1\r\n" + b"X-Slow: " + b"x" * 16_000,
    b"POST /withdraw HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 10_000,
    b"POST /drain/report HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n" * 20,
)


@pytest.fixture(autouse=True)
def _files() -> Iterator[None]:
    """As many open files as the system allows, for the time of a test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def crowd(address: tuple[str, int]) -> Iterator[list[socket.socket]]:
    """A thousand connections, each with the beginning of something; the server may close them at any time."""
    with contextlib.ExitStack() as stack:
        clients = []
        for number in range(CLIENTS):
            client = stack.enter_context(socket.create_connection(address, timeout=30))
            clients.append(client)
            drip(client, BEGINNINGS[number % len(BEGINNINGS)])
        yield clients


def drip(client: socket.socket, data: bytes) -> None:
    """Send something to a server that may have had enough."""
    with contextlib.suppress(ConnectionError):
        client.sendall(data)


def threads(process: Process) -> int:
    """Of a process."""
    with open(f"/proc/{process.popen.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


@pytest.mark.parametrize(
    ("secured", "address"),
    [(False, main_address), (True, main_address), (True, kubelet_address)],
    ids=["plain", "secured", "kubelet"],
)
def test_listeners_for_pages(secured, address, tmp_path):
    """Each of five scrapes, and of five probes, is answered while they drip on; threads and memory are bounded."""
    arguments: tuple[str, ...] = ()
    tls = None
    if secured:
        certs = make_certs(tmp_path)
        lines = ["tls_server_config:", f"  cert_file: {certs.server.cert}", f"  key_file: {certs.server.key}"]
        arguments = ("--web.config.file", web_config(tmp_path, *lines))
        tls = ssl.create_default_context(cafile=certs.ca)
    with role("sidecar", tmp_path, *QUICK, *arguments) as process:

        def scraped() -> bool:
            said = say(main_address(process), request("GET", "/metrics", AUTHORIZATION), tls=tls)
            return said.status == 200 and b"infscale_inflight_requests" in said.body

        assert scraped()
        before_mb = resident_mb(process.popen.pid)
        with crowd(address(process)) as clients:
            for _ in range(5):
                assert scraped()
                assert say(kubelet_address(process), request("GET", "/-/ready")).status == 200
                for client in clients[::7]:
                    drip(client, b"x")
            assert resident_mb(process.popen.pid) - before_mb < MORE_MB
            assert threads(process) < 100


def test_activator(tmp_path):
    """Requests go through, and its page is there, while a thousand clients drip; they cost no thread."""
    with role("activator", tmp_path) as process:
        assert isinstance(process, ActivatorProcess)
        until(lambda: process.get("/").text.find("passing on") >= 0)
        asked = request("POST", "/v1/completions", body=b"{}")
        assert say(("127.0.0.1", process.port), asked, half_close=False).status == 200
        before_mb = resident_mb(process.popen.pid)
        with crowd(("127.0.0.1", process.port)) as clients:
            for _ in range(5):
                assert say(("127.0.0.1", process.port), asked, half_close=False).status == 200
                assert process.get("/metrics").status_code == 200
                for client in clients[::7]:
                    drip(client, b"x")
            assert resident_mb(process.popen.pid) - before_mb < 3 * MORE_MB
            assert threads(process) < 100
