"""What the exec form of the drain costs before it does its work, and how much memory it takes for that.

    python bench/drain_start.py [--check] [PYTHON ...]

A bare interpreter (`-I -S -B`) imports the drain from sources that nobody compiled, as from a read-only volume, and
reads an idle vLLM page of 96 kB twice, over http and over https. Limits: 150 ms of CPU to the first line of work, 20 MB
resident, 25 MB with TLS. With `--check` the exit status is 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom").read_bytes()
CPU_MS, PLAIN_MB, TLS_MB = 150.0, 20.0, 25.0
RUNS = 5
SOURCE = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from infscale.drain.options import DrainOptions
from infscale.drain.run import drain

def used():
    with open("/proc/self/status") as file:  # getrusage tells the memory of the parent, where that had more
        mb = next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
    return time.process_time() * 1000, mb

class Clock:
    now = 0.0
    def __call__(self):
        return self.now
    def sleep(self, seconds):
        self.now += seconds

clock, first = Clock(), used()
report = drain(DrainOptions(sys.argv[2]), clock=clock, sleep=clock.sleep)
print(json.dumps({"first_ms": first[0], "all_ms": used()[0], "mb": used()[1], "outcome": report.outcome}))
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


def measured(python: str, sources: Path, url: str) -> dict[str, float]:
    """What one drain took: the least CPU and the most memory of a few runs."""
    runs = []
    for _ in range(RUNS):
        command = [python, "-I", "-S", "-B", "-c", SOURCE, str(sources), url]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
        assert runs[-1]["outcome"] == "idle", runs[-1]
    return {
        "first_ms": min(run["first_ms"] for run in runs),
        "all_ms": min(run["all_ms"] for run in runs),
        "mb": max(run["mb"] for run in runs),
    }


def main() -> int:
    """Print a line per interpreter and scheme."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("pythons", nargs="*", default=[sys.executable])
    arguments.add_argument("--check", action="store_true")
    asked = arguments.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "exporter", folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        schemes = ["http", "https"] if shutil.which("openssl") else ["http"]
        for scheme in schemes:
            server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
            if scheme == "https":
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate(Path(folder)))
                server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for python in asked.pythons:
                found = measured(python, Path(folder), f"{scheme}://127.0.0.1:{server.server_port}/metrics")
                limit_mb = TLS_MB if scheme == "https" else PLAIN_MB
                print(
                    f"{scheme:5}  first line of work {found['first_ms']:4.0f} ms CPU (limit {CPU_MS:.0f})"
                    f"  two reads {found['all_ms'] - found['first_ms']:4.0f} ms"
                    f"  {found['mb']:5.1f} MB (limit {limit_mb:.0f})  {python}"
                )
                missed += found["first_ms"] > CPU_MS or found["mb"] > limit_mb
            server.shutdown()
            server.server_close()
    return 1 if asked.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
