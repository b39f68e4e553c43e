"""What the exec form of the drain costs before it does its work, and how much memory it takes for that.

    python bench/drain_start.py [--check] [PYTHON ...]

A bare interpreter (`-I -S -B`) imports the drain from sources that nobody compiled, as from a read-only volume, and
reads an idle vLLM page of 97 kB twice, over http and over https. Limits: 150 ms of CPU to the first line of work,
20 MiB resident, 25 MiB with TLS. The drain reads /proc/net/tcp: a Pod has some dozens of sockets there, a machine that
was just benchmarked has thousands that wait for their end, which take 0.4 MiB a thousand. The row says so.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size, alone, show

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom").read_bytes()
CPU_MS, PLAIN_MB, TLS_MB = 150.0, 20.0, 25.0
RUNS = 5
MANY_SOCKETS = 500
SOURCE = """
import json, sys, time

def used():
    with open("/proc/self/status") as file:  # getrusage tells the memory of the parent, where that had more
        mb = next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
    return time.process_time() * 1000, mb

bare = used()
sys.path.insert(0, sys.argv[1])
from infscale.drain.options import DrainOptions
from infscale.drain.run import drain

class Clock:
    now = 0.0
    def __call__(self):
        return self.now
    def sleep(self, seconds):
        self.now += seconds

clock, first = Clock(), used()
report = drain(DrainOptions(sys.argv[2]), clock=clock, sleep=clock.sleep)
print(json.dumps({"first_ms": first[0], "mb": used()[1], "bare_ms": bare[0], "bare_mb": bare[1],
    "outcome": report.outcome}))
"""


class Engine(BaseHTTPRequestHandler):
    """Serves the page as an engine does, idle."""

    def do_GET(self) -> None:
        """Answer any path."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(IDLE)))
        self.end_headers()
        self.wfile.write(IDLE)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


def _idle(page: bytes) -> bytes:
    """The page with its request gauges at 0."""
    lines = page.split(b"\n")
    gauges = (b"vllm:num_requests_running{", b"vllm:num_requests_waiting{")
    return b"\n".join(line.rpartition(b" ")[0] + b" 0" if line.startswith(gauges) else line for line in lines)


IDLE = _idle(PAGE)


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate and its key, made with the openssl command."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=localhost", "-days", "1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@dataclass(frozen=True)
class Cost:
    """What one drain took: the least CPU milliseconds and the most memory (2^20 bytes) of a few runs.

    Attributes:
        bare_ms, bare_mb: of the same interpreter before it imports anything but json.
        limit_mb: what it may take.
    """

    scheme: str
    python: str
    bare_ms: float
    first_ms: float
    bare_mb: float
    mb: float
    limit_mb: float


def measured(scheme: str, python: str, sources: Path, url: str) -> Cost:
    """Drain a few times."""
    runs: list[dict[str, Any]] = []
    for _ in range(RUNS):
        command = [python, "-I", "-S", "-B", "-c", SOURCE, str(sources), url]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
        assert runs[-1]["outcome"] == "idle", runs[-1]
    least = {name: min(run[name] for run in runs) for name in ("bare_ms", "first_ms")}
    most = {name: max(run[name] for run in runs) for name in ("bare_mb", "mb")}
    return Cost(scheme, python, **least, **most, limit_mb=TLS_MB if scheme == "https" else PLAIN_MB)


def costs(pythons: Sequence[str]) -> Iterator[Cost]:
    """Every interpreter over http and, where there is openssl, over https."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "exporter", folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        for scheme in ["http", "https"] if shutil.which("openssl") else ["http"]:
            server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
            if scheme == "https":
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate(Path(folder)))
                server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for python in pythons:
                yield measured(scheme, python, Path(folder), f"{scheme}://127.0.0.1:{server.server_port}/metrics")
            server.shutdown()
            server.server_close()


def many_sockets() -> str:
    """How many sockets there are, where they are so many that they count."""
    with contextlib.suppress(OSError):
        count = len(Path("/proc/net/tcp").read_text().splitlines()) - 1
        return f"{count:,} sockets here" if count > MANY_SOCKETS else ""
    return ""


def beside(pythons: Sequence[str]) -> list[Row]:
    """CPU and memory of each interpreter over each scheme."""
    found = []
    for cost in costs(pythons):
        by = "" if len(pythons) == 1 else f" by {cost.python}"
        over, peer = f"of the drain helper over {cost.scheme}{by}", "the interpreter alone"
        found.append(Row(f"CPU {over} to its first line", "ms", cost.first_ms, peer, cost.bare_ms, at_most=CPU_MS))
        bare, note = (peer, cost.bare_mb), many_sockets()
        found.append(Row(f"memory {over}", "MiB", cost.mb, *bare, at_most=cost.limit_mb, note=note))
    if shutil.which("openssl") is None:
        found.append(Row("CPU of the drain helper over https", "ms", note="openssl is absent: apt-get install it"))
    return found


def rows(size: Size = Size.FULL) -> list[Row]:
    """CPU and memory over each scheme; few runs in any size."""
    return beside([sys.executable])


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", default=[sys.executable], help="interpreters")
    options = parser.parse_args()
    return show(beside(options.pythons), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
