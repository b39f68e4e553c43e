"""Scrapes per second, CPU per scrape and resident memory of a real sidecar, beside an engine with a 97 kB page.

    python bench/sidecar.py [--scrapes 10000] [--check]

One keep-alive client asks as Prometheus does, with a fresh read shared by its scrapes. The peer, in the same run, is
prometheus_client's own server with the same families. Another sidecar, which reads the engine anew at each scrape, is
beside Debian's prometheus-blackbox-exporter, which probes the same page at each scrape and only says how that went;
where it is missing, and root asks, it is installed.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.measure import process_cpu_s, resident_mb
from bench.table import Row, Size, alone, show

ROOT = Path(__file__).parents[1]
PAGE_PATH = ROOT / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom"
PAGE = PAGE_PATH.read_bytes()
SCRAPES = 10_000
BLACKBOX = "prometheus-blackbox-exporter"
BLACKBOX_CONFIG = "modules: {page: {prober: http, http: {preferred_ip_protocol: ip4}}}\n"
SCRAPES_PER_S, RESIDENT_MB, GROWTH_MB = 1000, 45.0, 1.0
PEER = """
import sys, time
from prometheus_client import CollectorRegistry, start_http_server
from infscale.metrics.collectors import ReplicaCollector
from infscale.normalise import read_page
from infscale.watch import Watch
view = Watch().step(read_page(open(sys.argv[1]).read(), histograms=True), time.time())
registry = CollectorRegistry()
registry.register(ReplicaCollector(lambda: [view], lambda: {}))
server, thread = start_http_server(0, "127.0.0.1", registry)
print("port=%d" % server.server_port, file=sys.stderr, flush=True)
thread.join()
"""


class Engine(BaseHTTPRequestHandler):
    """Serves the page as an engine does."""

    def do_GET(self) -> None:
        """Answer with the page."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Measured:
    """A server process and what it costs.

    Args:
        path: what is scraped.
        port: how it tells where it listens.
    """

    def __init__(self, command: list[str], path: str = "/metrics", port: str = r"port=(\d+)") -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self._path = path
        self.port = 0
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(port, line):
                self.port = int(found[1])
                break
        assert self.port, f"{command[0]} ended before it listened"
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def scrape(self, times: int) -> Cost:
        """Scrape so many times with one keep-alive client."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
        before, start = process_cpu_s(self.process.pid), time.monotonic()
        for _ in range(times):
            connection.request("GET", self._path, headers=headers)
            connection.getresponse().read()
        elapsed, cpu_s = time.monotonic() - start, process_cpu_s(self.process.pid) - before
        connection.close()
        return Cost(times / elapsed, cpu_s / times * 1e6, resident_mb(self.process.pid))


@dataclass(frozen=True)
class Cost:
    """Scrapes a second, CPU of the server for each in microseconds, its resident memory after them in MB."""

    per_s: float
    cpu_us: float
    resident_mb: float


@dataclass(frozen=True)
class Result:
    """What all of them cost.

    Attributes:
        shared: the sidecar, a read shared by scrapes.
        client: prometheus_client's server.
        growth_mb: of the sidecar over as many scrapes again.
        anew: a sidecar that reads the engine at each scrape.
        blackbox: the blackbox exporter; None where it is not installed.
    """

    shared: Cost
    client: Cost
    growth_mb: float
    anew: Cost
    blackbox: Cost | None


@contextlib.contextmanager
def running(measured: Measured) -> Iterator[Measured]:
    """End the process at the end."""
    try:
        yield measured
    finally:
        measured.process.kill()
        measured.process.wait()


@contextlib.contextmanager
def engine() -> Iterator[str]:
    """The page on a server of this process; its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


def sidecar(url: str, *more: str) -> Measured:
    """A sidecar of the engine there."""
    listen = ("--web.listen-address", "127.0.0.1:0", "--kubelet.listen-address", "127.0.0.1:0")
    return Measured([sys.executable, "-m", "infscale", "sidecar", "--engine-url", url, *listen, *more])


def blackbox_program() -> str | None:
    """The exporter's program; installed first where it is missing and this is root on Debian."""
    if not shutil.which(BLACKBOX) and os.geteuid() == 0 and shutil.which("apt-get"):
        with contextlib.suppress(subprocess.SubprocessError):
            subprocess.run([ROOT / "tools" / "apt.sh", BLACKBOX], stdout=subprocess.DEVNULL, timeout=120, check=False)
    return shutil.which(BLACKBOX)


def blackbox_cost(url: str, scrapes: int) -> Cost | None:
    """The blackbox exporter on the same page; None where it is not installed."""
    program = blackbox_program()
    if program is None:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as config:
        config.write(BLACKBOX_CONFIG)
        config.flush()
        command = [program, f"--config.file={config.name}", "--web.listen-address=127.0.0.1:0"]
        path = f"/probe?module=page&target={quote(url, safe='')}"
        with running(Measured(command, path, r"address=\S*:(\d+)")) as exporter:
            return exporter.scrape(scrapes)


def measure(scrapes: int) -> Result:
    """All of them, one after the other; the peers and who reads anew with fewer scrapes, since these take longer."""
    few = max(50, scrapes // 20)
    with engine() as url:
        with running(sidecar(url)) as own:
            shared = own.scrape(scrapes)
            own.scrape(scrapes)
            growth_mb = resident_mb(own.process.pid) - shared.resident_mb
        with running(Measured([sys.executable, "-c", PEER, str(PAGE_PATH)])) as peer:
            client = peer.scrape(few)
        with running(sidecar(url, "--engine.min-interval=0.001")) as own:
            anew = own.scrape(few)
        return Result(shared, client, growth_mb, anew, blackbox_cost(url, few))


def beside(found: Result, scrapes: int) -> list[Row]:
    """Scrapes a second, CPU and memory beside both peers."""
    ours, client, name = found.shared, found.client, "prometheus_client's start_http_server"
    return [
        Row("scrapes, read shared", "/s", ours.per_s, name, client.per_s, more_is_better=True, at_least=SCRAPES_PER_S),
        Row("CPU per scrape, read shared", "µs", ours.cpu_us, name, client.cpu_us),
        Row("resident memory, read shared", "MB", ours.resident_mb, name, client.resident_mb, at_most=RESIDENT_MB),
        Row(f"growth over {scrapes:,} scrapes more", "MB", found.growth_mb, at_most=GROWTH_MB),
        *blackbox_rows(found.anew, found.blackbox),
    ]


def blackbox_rows(ours: Cost, theirs: Cost | None) -> list[Row]:
    """The rows beside the blackbox exporter; without it they say so."""
    if theirs is None:
        name, per_s, cpu_us, resident_mb = f"{BLACKBOX} is absent: apt-get install it as root", None, None, None
    else:
        name, per_s, cpu_us, resident_mb = BLACKBOX, theirs.per_s, theirs.cpu_us, theirs.resident_mb
    how = "page read anew each time"
    return [
        Row(f"scrapes, {how}", "/s", ours.per_s, name, per_s, more_is_better=True),
        Row(f"CPU per scrape, {how}", "µs", ours.cpu_us, name, cpu_us),
        Row(f"resident memory, {how}", "MB", ours.resident_mb, name, resident_mb),
    ]


def rows(size: Size = Size.FULL) -> list[Row]:
    """Scrapes a second, CPU and memory beside both peers."""
    scrapes = size.pick(500, SCRAPES)
    return beside(measure(scrapes), scrapes)


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("--scrapes", type=int, default=SCRAPES, help=f"of the sidecar (default {SCRAPES})")
    options = parser.parse_args()
    return show(beside(measure(options.scrapes), options.scrapes), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
