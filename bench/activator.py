"""What the activator adds to a stream, and how many streams one core passes; beside a direct connection, in one run.

    python bench/activator.py [--engine stand-in|sim-engine] [--streams 2000]

The engine is a minimal asyncio server in a process of its own (`stand-in`: 16 events 2 ms apart), or the package's
stand-in engine (`sim-engine`: the same length, at fixed latencies). Latency: one stream at a time, directly and through
the activator in turn, medians of the first byte and of the way of each event, whose text tells when it was sent (only
the stand-in's does). Throughput: 200 clients at once; what one core passes is counted by the CPU time of the process of
the activator, the median of five runs, since other load on the machine changes it less than the streams a second. The
same is done with a bare relay of bytes on asyncio, which says how much of that is the price of sockets here.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.measure import process_cpu_s
from bench.table import Row, Size, alone, show

ROOT = Path(__file__).parents[1]
ADDED_MS, STREAMS_PER_S = 2.0, 1000
EVENTS, GAP_S, CLIENTS, RUNS = 16, 0.002, 200, 5
BODY = b'{"prompt": "%s", "max_tokens": %d, "stream": true}' % (b"word " * 60, EVENTS)
REQUEST = (
    b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
    b"Accept-Encoding: gzip, deflate\r\nUser-Agent: bench\r\nAuthorization: Bearer none\r\nContent-Length: %d\r\n\r\n%s"
) % (len(BODY), BODY)

STAND_IN = f"""
import asyncio, time
EVENT = b'data: {{"id":"cmpl-1","object":"text_completion","sent":%.6f,"choices":[{{"index":0,"text":"token"}}]}}\\n\\n'
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
class Engine(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data = transport, b""
    def data_received(self, data):
        self.data += data
        head, end, body = self.data.partition(b"\\r\\n\\r\\n")
        length = int((head.lower() + b"\\r\\n").partition(b"content-length: ")[2].partition(b"\\r\\n")[0] or 0)
        if not end or len(body) < length:
            return
        self.data = body[length:]
        if head.startswith(b"GET"):
            self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
        else:
            self.transport.write(HEAD)
            self.step({EVENTS})
    def step(self, left):
        if left:
            event = EVENT % time.monotonic()
            self.transport.write(b"%x\\r\\n%s\\r\\n" % (len(event), event))
            asyncio.get_running_loop().call_later({GAP_S}, self.step, left - 1)
        else:
            self.transport.write(b"0\\r\\n\\r\\n")
async def main():
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0, backlog=1024)
    print("port=%d" % server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
RELAY = """
import asyncio, sys
class Upward(asyncio.Protocol):
    def __init__(self, down):
        self.down = down
    def data_received(self, data):
        self.down.write(data)
class Down(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.up, self.data = transport, None, b""
        self.task = asyncio.ensure_future(self.connect())
    async def connect(self):
        loop = asyncio.get_running_loop()
        self.up, _ = await loop.create_connection(lambda: Upward(self.transport), "127.0.0.1", int(sys.argv[1]))
        self.up.write(self.data)
    def data_received(self, data):
        if self.up is None:
            self.data += data
        else:
            self.up.write(data)
    def connection_lost(self, error):
        if self.up is not None:
            self.up.close()
async def main():
    server = await asyncio.get_running_loop().create_server(Down, "127.0.0.1", 0, backlog=1024)
    print("port=%d" % server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""

SENT = re.compile(rb'"sent":([0-9.]+)')


@contextlib.contextmanager
def running(command: list[str], port: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that says its port in its output; the process and the port."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "exporter"), str(ROOT / "sim")])}
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(port, line):
                    yield process, int(found[1])
                    return
            raise SystemExit(f"{' '.join(command)[:200]}: ended without a port")
        finally:
            process.kill()


class Client:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def stream(self) -> tuple[float, list[float]]:
        """One stream: seconds to its first byte, and the seconds that each event was on its way, where it tells."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        began = time.monotonic()
        writer.write(REQUEST)
        data = await reader.read(65536)
        first_s = time.monotonic() - began
        assert data.startswith(b"HTTP/1.1 200"), data
        ways_s: list[float] = []
        while True:
            now = time.monotonic()
            ways_s += [now - float(sent) for sent in SENT.findall(data)]
            if data.endswith(b"0\r\n\r\n"):
                return first_s, ways_s
            data = await reader.read(65536)
            assert data, "the stream broke"

    def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()


async def in_turn(ports: tuple[int, int], times: int) -> list[tuple[float, float]]:
    """Medians at each port, one stream at a time, in turn: seconds to the first byte, seconds on an event's way."""
    clients = [Client(port) for port in ports]
    firsts: list[list[float]] = [[], []]
    ways: list[list[float]] = [[], []]
    for _ in range(times):
        for number, client in enumerate(clients):
            first_s, ways_s = await client.stream()
            firsts[number].append(first_s)
            ways[number] += ways_s
    for client in clients:
        client.close()
    return [
        (statistics.median(first), statistics.median(way or [float("nan")]))
        for first, way in zip(firsts, ways, strict=True)
    ]


async def at_once(port: int, streams: int) -> float:
    """Streams a second of CLIENTS clients."""
    left = streams

    async def client() -> None:
        nonlocal left
        connection = Client(port)
        while left > 0:
            left -= 1
            await connection.stream()
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return streams / (time.perf_counter() - began)


def engine_command(engine: str) -> tuple[list[str], str]:
    """How to start the engine, and how it says its port."""
    if engine == "stand-in":
        return ["-c", STAND_IN], r"port=(\d+)"
    latencies = [f"--inter-token-latency={GAP_S}", f"--time-to-first-token={GAP_S}", "--max-num-seqs=256"]
    return ["-m", "infscale", "sim-engine", "--port=0", *latencies], r"port=(\d+)"


def each_us(process: subprocess.Popen[str], port: int, streams: int, runs: int) -> tuple[float, float]:
    """CPU of a process for one stream in microseconds, and streams a second: medians of some runs."""
    asyncio.run(at_once(port, 2 * CLIENTS))  # connections of its own are there then, and code is warm
    costs, rates = [], []
    for _ in range(runs):
        before_s = process_cpu_s(process.pid)
        rates.append(asyncio.run(at_once(port, streams)))
        costs.append((process_cpu_s(process.pid) - before_s) / streams * 1e6)
    return statistics.median(costs), statistics.median(rates)


@dataclass(frozen=True)
class Result:
    """What one run found.

    Attributes:
        straight, through: medians of seconds to the first byte and on an event's way, directly and by the activator.
        direct_per_s, per_s, relay_per_s: streams a second of CLIENTS clients.
        cost_us, relay_us: CPU of the activator's and of the relay's process for a stream.
    """

    straight: tuple[float, float]
    through: tuple[float, float]
    direct_per_s: float
    per_s: float
    relay_per_s: float
    cost_us: float
    relay_us: float

    def added(self) -> list[tuple[str, float, float]]:
        """What is waited for, directly and through the activator, in seconds; only what the engine tells."""
        pairs = zip(("the first byte", "an event's way"), self.straight, self.through, strict=True)
        return [(what, without_s, via_s) for what, without_s, via_s in pairs if not math.isnan(via_s)]


def measure(engine_name: str, streams: int, runs: int = RUNS) -> Result:
    """Start all of them and measure."""
    own = ["--web.listen-address=127.0.0.1:0", "--kubelet.listen-address=127.0.0.1:0", "--listen-address=127.0.0.1:0"]
    with contextlib.ExitStack() as stack:
        engine, direct = stack.enter_context(running(*engine_command(engine_name)))
        relay, relayed = stack.enter_context(running(["-c", RELAY, str(direct)], r"port=(\d+)"))
        flags = [f"--upstream=http://127.0.0.1:{direct}", "--workload=bench/bench", *own]
        command = ["-m", "infscale", "activator", *flags]
        process, port = stack.enter_context(running(command, r"requests_port=(\d+)"))
        asyncio.run(in_turn((direct, port), 20))
        straight, through = asyncio.run(in_turn((direct, port), streams // 5))
        _, direct_per_s = each_us(engine, direct, streams, runs)
        cost_us, per_s = each_us(process, port, streams, runs)
        relay_us, relay_per_s = each_us(relay, relayed, streams, runs)
    return Result(straight, through, direct_per_s, per_s, relay_per_s, cost_us, relay_us)


def beside(found: Result) -> list[Row]:
    """What is added to a stream, and what one core passes."""
    waits = [
        row
        for what, without_s, via_s in found.added()
        for row in (
            Row(f"{what}, through the activator", "ms", via_s * 1e3, "directly", without_s * 1e3),
            Row(f"{what}, added by the activator", "ms", (via_s - without_s) * 1e3, at_most=ADDED_MS),
        )
    ]
    core, relay = (1e6 / us if us else None for us in (found.cost_us, found.relay_us))
    many, peer = f"streams of {CLIENTS} clients at once", "a bare relay of bytes"
    return [
        *waits,
        Row("streams one core passes", "/s", core, peer, relay, more_is_better=True, at_least=STREAMS_PER_S),
        Row(f"{many}, through the activator", "/s", found.per_s, "directly", found.direct_per_s, more_is_better=True),
        Row(f"{many}, through the activator", "/s", found.per_s, peer, found.relay_per_s, more_is_better=True),
    ]


def rows(size: Size = Size.FULL) -> list[Row]:
    """What is added to a stream, and what one core passes."""
    return beside(measure("stand-in", size.pick(200, 600), size.pick(1, 3)))


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("--engine", choices=["stand-in", "sim-engine"], default="stand-in")
    parser.add_argument("--streams", type=int, default=1000, help="of each throughput run (default 1000)")
    options = parser.parse_args()
    return show(beside(measure(options.engine, options.streams)), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
