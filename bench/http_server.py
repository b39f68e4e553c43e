"""Requests a second of infscale's HTTP server, and of prometheus_client's, measured in one run.

    python bench/http_server.py [--seconds 2] [--page-bytes 20000]

Each server runs in a process of its own and serves a page that is rendered already, so that the servers are compared
and not the rendering. infscale's compresses such a page once, prometheus_client's for each request. The client keeps
its connection where the server allows that; prometheus_client's speaks HTTP/1.0 and ends it after each answer.
Reported: requests a second, and the server's CPU for each. prometheus_client's knows no passwords: infscale's with one
is beside infscale's without.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bcrypt

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.measure import process_cpu_s
from bench.table import Row, Size, alone, show

SOURCES = Path(__file__).parents[1] / "exporter"
REQUEST = (
    "GET /metrics HTTP/1.1\r\nHost: localhost:10047\r\nUser-Agent: Prometheus/3.5.0\r\n"
    "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1\r\n"
    "{}X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n"
)
GZIP = "Accept-Encoding: gzip\r\n"
AUTHORIZATION = "Authorization: Basic YmVuY2g6YmVuY2g=\r\n"  # bench:bench

OURS = """
import signal, sys, threading
from infscale.web.message import Response
from infscale.web.routes import Router
from infscale.web.server import Listener
from infscale.web.webconfig import WebConfig
body = b"infscale_bench_metric 12345\\n" * (int(sys.argv[1]) // 28)
router = Router()
router.add("/metrics", lambda _: Response(200, body))
config = WebConfig(sys.argv[2]) if sys.argv[2] else None
listener = Listener("127.0.0.1:0", router, web_config=config)
listener.start()
print(listener.port, flush=True)
signal.pause()
"""
THEIRS = """
import signal, sys
import prometheus_client, prometheus_client.exposition as exposition
body = b"infscale_bench_metric 12345\\n" * (int(sys.argv[1]) // 28)
class Page(prometheus_client.CollectorRegistry):
    pass
exposition.choose_encoder = lambda accept: (lambda registry: body, "text/plain")
server, _ = prometheus_client.start_http_server(0, addr="127.0.0.1", registry=Page())
print(server.server_port, flush=True)
signal.pause()
"""


@dataclass(frozen=True)
class Result:
    """What one server did.

    Attributes:
        per_s: requests a second.
        cpu_us: CPU of the server for each request, microseconds.
    """

    per_s: float
    cpu_us: float


@contextlib.contextmanager
def server(code: str, *args: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a server; its process and port."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGKILL)


class Scraper:
    """A client that keeps its connection as long as the server does."""

    def __init__(self, port: int, lines: str) -> None:
        self._place = ("127.0.0.1", port)
        self._request = REQUEST.format(lines).encode()
        self._sock: socket.socket | None = None

    def scrape(self) -> int:
        """Ask once; the length of the body."""
        if self._sock is None:
            self._sock = socket.create_connection(self._place, timeout=10)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(self._request)
        data = self._sock.recv(1 << 20)
        while b"\r\n\r\n" not in data:
            data += self._sock.recv(1 << 20)
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.split(b" ", 2)[1] == b"200", head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or -1)
        size = len(body)
        while size != length and (more := self._sock.recv(1 << 20)):
            size += len(more)
        if head.startswith(b"HTTP/1.0"):
            self.close()
        return size

    def close(self) -> None:
        """End the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def measure(code: str, seconds: float, page_bytes: int, lines: str = "", config: str = "") -> Result:
    """Scrape a server for so long."""
    with server(code, str(page_bytes), config) as (process, port):
        scraper = Scraper(port, lines)
        for _ in range(50):
            scraper.scrape()
        cpu_s, count, began = process_cpu_s(process.pid), 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            scraper.scrape()
            count += 1
        took = time.perf_counter() - began
        result = Result(count / took, (process_cpu_s(process.pid) - cpu_s) / count * 1e6)
        scraper.close()
        return result


SECONDS, PAGE_BYTES = 2.0, 20_000


def measure_all(seconds: float, page_bytes: int) -> Iterator[tuple[str, Result]]:
    """Both servers, plain and compressed, and infscale's with a password; each with its name."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "web.yml"
        config.write_text(f"basic_auth_users: {{bench: {bcrypt.hashpw(b'bench', bcrypt.gensalt(10)).decode()}}}\n")
        runs = {
            "infscale, keep-alive": (OURS, "", ""),
            "infscale, keep-alive, gzip": (OURS, GZIP, ""),
            "infscale, keep-alive, basic auth": (OURS, AUTHORIZATION, str(config)),
            "prometheus_client": (THEIRS, "", ""),
            "prometheus_client, gzip": (THEIRS, GZIP, ""),
        }
        for name, (code, lines, web_config) in runs.items():
            yield name, measure(code, seconds, page_bytes, lines, web_config)


def beside(seconds: float, page_bytes: int) -> list[Row]:
    """Requests a second and CPU of each, plain, compressed and with a password."""
    results = dict(measure_all(seconds, page_bytes))
    found = []
    for kind in ("", ", gzip", ", basic auth"):
        what, ours = f"a page that is rendered{kind}", results[f"infscale, keep-alive{kind}"]
        name, theirs = "prometheus_client", results.get(f"prometheus_client{kind}")
        if theirs is None:  # it knows no passwords
            name, theirs = "infscale without a password", results["infscale, keep-alive"]
        found.append(Row(f"requests of {what}", "/s", ours.per_s, name, theirs.per_s, more_is_better=True))
        found.append(Row(f"CPU of {what}", "µs", ours.cpu_us, name, theirs.cpu_us))
    return found


def rows(size: Size = Size.FULL) -> list[Row]:
    """Requests a second and CPU of each, plain, compressed and with a password."""
    return beside(size.pick(1, 10) / 10 * SECONDS, PAGE_BYTES)


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each measurement (default 2)")
    parser.add_argument("--page-bytes", type=int, default=PAGE_BYTES, help="size of the page (default 20000)")
    options = parser.parse_args()
    return show(beside(options.seconds, options.page_bytes), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
