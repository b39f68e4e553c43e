"""Does anything grow? `python -m tests.soak [--scrapes N] [--decisions N] [--signals N]`, for minutes: `make soak`.

A real sidecar is scraped a million times while its engine comes and goes; a real recommender decides as often as in a
day; a recommender that keeps its state is hit by signals 1,000 times. Prints a table; exit code 1 if memory, threads or
descriptors grew after the first tenth.
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.rig import ADDRESSES, COUNTED, Engine, Sidecar
from tests.faults.signals import recommenders, strike
from tests.recommender_process import Recommender
from tests.sidecar_process import Process

DAY = 24 * 60 * 60 // 15
"""Decisions of a day, one each 15 s."""

GROWTH_MB, GROWTH_COUNT = 2.0, 4
"""Of resident memory, and of threads and descriptors: keep-alive connections and idle workers come and go."""

STEPS = 10
PERIOD_S = 0.02


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
    """A sidecar, scraped by one keep-alive client as Prometheus does; its engine is away for each fifth read."""
    engine = Engine()
    place = ("127.0.0.1", free_port())
    with Sidecar(*place, "--engine-url", engine.url, "--engine.min-interval=0.05", "--engine.timeout=1") as process:

        def scrape(times: int) -> None:
            connection = http.client.HTTPConnection(*place, timeout=30)
            headers = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
            for number in range(times):
                if number % 500 == 0:
                    engine.answer = (lambda call: call.reset()) if number % 2500 == 0 else None
                connection.request("GET", "/metrics", headers=headers)
                connection.getresponse().read()
            connection.close()
            engine.forget()

        flat = measured("scrapes", process, count, scrape)
    engine.refuse()
    return flat


def decisions(count: int) -> bool:
    """A recommender over two sidecars whose load changes, as often as in a day."""
    engines = [Engine(), Engine()]
    port = free_port()
    sidecars = [
        Sidecar(address, port, "--engine-url", engine.url, "--engine.min-interval=0.001")
        for address, engine in zip(ADDRESSES, engines, strict=True)
    ]
    source = "--fleet.source=static:" + ",".join(f"http://{address}:{port}" for address in ADDRESSES)
    with tempfile.TemporaryDirectory() as folder:
        flags = (source, *COUNTED, "--policy=queue:4,max=20,lookahead=60", f"--state={folder}/state.json")
        with Recommender(*flags, f"--interval={PERIOD_S}") as process:

            def decide(times: int) -> None:
                before = decided(process)
                while decided(process) - before < times:
                    for engine in engines:
                        engine.running = (engine.running + 7) % 40
                        engine.forget()
                    time.sleep(0.1)

            flat = measured("decisions", process, count, decide)
    for sidecar in sidecars:
        sidecar.close()
    for engine in engines:
        engine.refuse()
    return flat


def decided(process: Process) -> float:
    """Decisions so far."""
    return sum(value for name, value in process.values().items() if name.startswith("infscale_decisions_total"))


def signals(count: int) -> bool:
    """A recommender that keeps its state, hit by signals; what has to hold is asserted there."""
    engine = Engine()
    with Sidecar("127.0.0.1", port := free_port(), "--engine-url", engine.url), tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        with recommenders(Path(folder), f"--fleet.source=static:http://127.0.0.1:{port}") as found:
            counted = strike(found, count, seed=count)
        left = len(list(Path(folder).glob(".state.json.*.tmp")))
    engine.refuse()
    told = ", ".join(f"SIG{name} {times}" for name, times in sorted(counted.items()))
    print(f"{'signals':12} {count:>9,} {time.monotonic() - began_s:7.0f} s  {told}; the state was readable after each")
    return left <= 1


def free_port() -> int:
    """A port that nothing listens on."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def main() -> int:
    """Run all three, print, and judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--scrapes", type=int, default=1_000_000, help="of the sidecar; 0: none")
    parser.add_argument("--decisions", type=int, default=DAY, help="of the recommender; 0: none")
    parser.add_argument("--signals", type=int, default=1000, help="to the recommender; 0: none")
    options = parser.parse_args()
    print(f"{'':12} {'done':>9} {'after':>9} {'resident':>10} thr. desc.")
    runs = ((scrapes, options.scrapes), (decisions, options.decisions), (signals, options.signals))
    grew = [run.__name__ for run, count in runs if count and not run(count)]
    print(f"grew: {', '.join(grew)}" if grew else "nothing grew")
    return int(bool(grew))


if __name__ == "__main__":
    sys.exit(main())
