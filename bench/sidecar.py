"""Scrapes per second, CPU per scrape and resident memory of a real sidecar, beside an engine with a 97 kB page.

    python bench/sidecar.py [--scrapes 10000] [--check]

One keep-alive client asks as Prometheus does, with a fresh read shared by its scrapes. The peer, in the same run, is
prometheus_client's own server with the same families. With `--check` the exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = (Path(__file__).parent.parent / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom").read_bytes()
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
    """A server process and what it costs."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.port = 0
        while not self.port:
            found = re.search(r"port=(\d+)", self.process.stderr.readline())
            self.port = int(found[1]) if found else 0
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def cpu_s(self) -> float:
        """CPU seconds used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Resident memory now, in MB (10^6 bytes)."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def scrape(self, times: int) -> tuple[float, float]:
        """Scrapes per second and CPU seconds per scrape, over `times` scrapes of one keep-alive client."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
        before, start = self.cpu_s(), time.monotonic()
        for _ in range(times):
            connection.request("GET", "/metrics", headers=headers)
            connection.getresponse().read()
        elapsed = time.monotonic() - start
        connection.close()
        return times / elapsed, (self.cpu_s() - before) / times


def main() -> int:
    """Measure, print, and with --check judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scrapes", type=int, default=10_000, help="scrapes before memory is looked at")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    engine = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{engine.server_port}/metrics"
    sidecar = Measured(
        [
            *(sys.executable, "-m", "infscale", "sidecar", "--engine-url", url),
            *("--web.listen-address", "127.0.0.1:0", "--kubelet.listen-address", "127.0.0.1:0"),
        ]
    )
    peer = Measured(
        [sys.executable, "-c", PEER, str(Path(__file__).parent.parent / "tests/data/pages/vllm-0.33.0-dp2.prom")]
    )
    try:
        rate, cpu_s = sidecar.scrape(options.scrapes)
        resident = sidecar.resident_mb()
        peer_rate, peer_cpu_s = peer.scrape(max(200, options.scrapes // 20))
        sidecar.scrape(options.scrapes)
        growth = sidecar.resident_mb() - resident
    finally:
        for measured in (sidecar, peer):
            measured.process.kill()
            measured.process.wait()
        engine.shutdown()
        engine.server_close()
    print(f"scrapes/s: {rate:.0f} (target {SCRAPES_PER_S}), prometheus_client's server {peer_rate:.0f}")
    print(
        f"CPU per scrape: {cpu_s * 1e6:.0f} us, prometheus_client's server {peer_cpu_s * 1e6:.0f} us: "
        f"{peer_cpu_s / cpu_s:.0f} times less"
    )
    print(
        f"resident after {options.scrapes} scrapes: {resident:.1f} MB (target {RESIDENT_MB:.0f}), "
        f"after as many again {growth:+.1f} MB"
    )
    missed = rate < SCRAPES_PER_S or resident > RESIDENT_MB or growth > GROWTH_MB
    return int(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())
