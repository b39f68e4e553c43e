"""Does anything grow? `python -m tests.soak [--scrapes N] [--decisions N] [--signals N]`, for minutes: `make soak`.

A real sidecar is scraped a million times while its engine comes and goes; a real recommender decides as often as in a
day, and is scraped as often; a real activator passes on, holds and refuses 100,000 requests; a recommender that keeps
its state is hit by signals 1,000 times. Prints a table; exit code 1 if memory, threads or descriptors grew after the
first tenth. What stays shows from 30 bytes for each request on (of a day of decisions: from 400 bytes for each), and
a descriptor from one for each thousand.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.activator.process import ActivatorProcess
from tests.faults.rig import COUNTED, Engine, Pair, Sidecar
from tests.faults.signals import recommenders, strike
from tests.raw_server import Call, RawServer
from tests.recommender_process import Recommender
from tests.sidecar_process import Process

DAY = 24 * 60 * 60 // 15
"""Decisions of a day, one each 15 s."""

GROWTH_MB, GROWTH_COUNT = 2.0, 4
"""Of resident memory, and of threads and descriptors: keep-alive connections and idle workers come and go."""

STEPS = 10
PERIOD_S = 0.02

CONNECTION = 200
"""Requests on one connection, before the next one."""

TEXT = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0"}
ASKED: tuple[tuple[str, str, dict[str, str]], ...] = (
    *[("GET", "/metrics", TEXT)] * 17,
    *(("GET", "/metrics", OPENMETRICS), ("GET", "/metrics", {}), ("HEAD", "/nowhere", {})),
)
"""What a sidecar is asked, in turn. Not `/` and `/api/v1/reading`: they read the table of all the machine's sockets."""


@dataclass(frozen=True)
class Held:
    """What a process holds: resident MB (10^6 bytes), threads, descriptors."""

    resident_mb: float
    threads: int
    descriptors: int


def held_by(process: Process) -> Held:
    """What it holds now."""
    folder = Path(f"/proc/{process.popen.pid}")
    pages = int((folder / "statm").read_text().split()[1])
    threads = len(os.listdir(folder / "task"))
    return Held(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, threads, len(os.listdir(folder / "fd")))


def measured(what: str, process: Process, total: int, step: Callable[[int], object]) -> bool:
    """Take so many steps, print a line for each tenth; whether nothing grew after the first."""
    first = last = held_by(process)
    began_s = time.monotonic()
    for tenth in range(1, STEPS + 1):
        step(total * tenth // STEPS - total * (tenth - 1) // STEPS)
        last = held_by(process)
        first = last if tenth == 1 else first
        done, took_s = total * tenth // STEPS, time.monotonic() - began_s
        print(
            f"{what:12} {done:>9,} {took_s:7.0f} s {last.resident_mb:7.1f} MB {last.threads:4} {last.descriptors:4}",
            flush=True,
        )
    return (
        last.resident_mb - first.resident_mb <= GROWTH_MB
        and last.threads - first.threads <= GROWTH_COUNT
        and last.descriptors - first.descriptors <= GROWTH_COUNT
    )


def scrapes(count: int) -> bool:
    """A sidecar, scraped on connections that are kept as Prometheus does; its engine is away for each fifth read."""
    engine = Engine()
    place = ("127.0.0.1", free_port())
    with Sidecar(*place, "--engine-url", engine.url, "--engine.min-interval=0.05", "--engine.timeout=1") as process:

        def scrape(times: int) -> None:
            connection = http.client.HTTPConnection(*place, timeout=30)
            for number in range(times):
                if number % 500 == 0:
                    engine.answer = (lambda call: call.reset()) if number % 2500 == 0 else None
                method, path, headers = ASKED[number % len(ASKED)]
                connection.request(method, path, headers=headers)
                connection.getresponse().read()
                if number % CONNECTION == CONNECTION - 1:
                    connection.close()  # the next request opens another
                    leave_half_way(place)
            connection.close()
            engine.forget()

        flat = measured("scrapes", process, count, scrape)
    engine.refuse()
    return flat


def leave_half_way(place: tuple[str, int]) -> None:
    """A client that goes in the middle of its request."""
    with socket.create_connection(place, timeout=30) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{")


def passes(count: int) -> bool:
    """An activator before a replica that is away for a twentieth of the requests, which are held and then refused."""
    away, numbers = False, itertools.count()

    def answer(call: Call) -> None:
        call.page(b"{}", "Connection: close", status="503 Loading" if away else "200 OK")

    flags = ("--hold-timeout=0.02", "--upstream.probe-interval=0.02")
    with RawServer(answer) as replica, ActivatorProcess(f"http://127.0.0.1:{replica.port}", *flags) as process:
        place = ("127.0.0.1", process.port)

        def ask(times: int) -> None:
            nonlocal away
            connection = http.client.HTTPConnection(*place, timeout=30)
            for number in itertools.islice(numbers, times):
                away = number % 1000 >= 950
                connection.request("POST", "/v1/completions", body=b'{"prompt": "x"}')
                connection.getresponse().read()
                if number % CONNECTION == CONNECTION - 1:
                    connection.close()  # the next request opens another
                    leave_half_way(place)
                    process.get("/metrics")
                    replica.forget()
            connection.close()

        return measured("requests", process, count, ask)


def decisions(count: int) -> bool:
    """A recommender over two sidecars whose load changes, as often as in a day; and its pages."""
    pair = Pair()
    with tempfile.TemporaryDirectory() as folder:
        flags = (pair.static, *COUNTED, "--policy=queue:4,max=20,lookahead=60", f"--state={folder}/state.json")
        with Recommender(*flags, f"--interval={PERIOD_S}") as process:

            def decide(times: int) -> None:
                before = decided(process)
                while decided(process) - before < times:
                    for engine in pair.engines:
                        engine.running = (engine.running + 7) % 40
                        engine.forget()
                    for path in ("/", "/api/v1/recommendation", "/api/v1/load", "/nowhere"):
                        process.get(path)
                    time.sleep(0.05)

            flat = measured("decisions", process, count, decide)
    pair.close()
    return flat


def decided(process: Process) -> float:
    """Decisions so far."""
    return sum(value for name, value in process.values().items() if name.startswith("infscale_decisions_total"))


def signals(count: int) -> bool:
    """A recommender that keeps its state, hit by signals; what has to hold is asserted there."""
    pair = Pair()
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        with recommenders(Path(folder), pair.static) as found:
            counted = strike(found, count, seed=count)
        left = len(list(Path(folder).glob(".state.json.*.tmp")))
    pair.close()
    told = ", ".join(f"SIG{name} {times}" for name, times in sorted(counted.items()))
    print(f"{'signals':12} {count:>9,} {time.monotonic() - began_s:7.0f} s  {told}; the state was readable after each")
    return left <= 1


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def main() -> int:
    """Run all four, print, and judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--scrapes", type=int, default=1_000_000, help="of the sidecar; 0: none")
    parser.add_argument("--decisions", type=int, default=DAY, help="of the recommender; 0: none")
    parser.add_argument("--passes", type=int, default=100_000, help="of the activator; 0: none")
    parser.add_argument("--signals", type=int, default=1000, help="to the recommender; 0: none")
    options = parser.parse_args()
    print(f"{'':12} {'done':>9} {'after':>9} {'resident':>10} thr. desc.")
    runs = (
        *((scrapes, options.scrapes), (decisions, options.decisions)),
        *((passes, options.passes), (signals, options.signals)),
    )
    grew = [run.__name__ for run, count in runs if count and not run(count)]
    print(f"grew: {', '.join(grew)}" if grew else "nothing grew")
    return int(bool(grew))


if __name__ == "__main__":
    sys.exit(main())
