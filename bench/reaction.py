"""From a burst at the engine to a changed recommendation, over each path, with the intervals as they are shipped.

    python bench/reaction.py [--workloads 10] [--bursts 2] [--interval 15] [--no-prometheus]

Several workloads side by side, each an engine's page, a sidecar that evaluates it (`single`), a recommender that reads
that sidecar (`static`), and one that asks a Prometheus server that scrapes it (`prometheus`). All evaluate every 15 s,
and Prometheus scrapes every 15 s. The bursts fall on instants spread over the interval; after each, all are asked for
their recommendation until it has changed. A minute and a half.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table and tests

from bench.table import Row, Size, alone, show
from tests.fleet.crew import Engine
from tests.prometheus_server import Prometheus
from tests.sidecar_process import Process

WORKLOADS, BURSTS, INTERVAL_S = 10, 2, 15.0
POLICY = "queue:4,max=1000,uppods=1000"
CALM, MORE = 2, 8
"""Requests running at first, and how many more with each burst: two replicas' worth."""
GOLDEN = 0.618
"""Multiples of it fall evenly on a circle, whatever their number."""
GIVE_UP = 5
"""Intervals; what has not changed by then counts as that long. The longest way takes two, and some reads."""

SIDECAR, PEERS, PROMETHEUS = "sidecar", "recommender by peers", "recommender by Prometheus"
SCRAPED = "over Prometheus, {:g} s scrape"
ABSENT = "prometheus is absent: apt-get install it"
Found = Mapping[str, Sequence[float]]
"""Seconds of each burst, by path."""


class RecommenderProcess(Process):
    """A running `infscale recommender`."""

    program = ("-m", "infscale", "recommender")


class Asker:
    """Asks one process for its recommendation, on one connection."""

    def __init__(self, process: Process) -> None:
        self._connection = http.client.HTTPConnection(process.address, timeout=30)

    def desired(self) -> int | None:
        """The replicas recommended now; None while there is no decision."""
        self._connection.request("GET", "/api/v1/recommendation")
        desired: int | None = json.loads(self._connection.getresponse().read())["desired"]
        return desired

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class Workload:
    """An engine, and who recommends replicas for it."""

    def __init__(self, number: int, interval_s: float) -> None:
        self.name = f"w{number}"
        self.engine = Engine()
        self.engine.running, self.engine.waiting = CALM, 0
        self.processes: dict[str, Process] = {}
        self._own = (f"--workload=bench/{self.name}", f"--policy={POLICY}", f"--interval={interval_s:g}")
        url = self.engine.server.url()
        # The engine's counters stand still, which is not what is measured here.
        flags = (f"--engine-url={url}", "--stale-after=3600", "--fleet.source=single")
        self.processes[SIDECAR] = self.sidecar = Process(*flags, *self._own)

    def recommend(self, path: str, source: str) -> None:
        """Start a recommender with this fleet source."""
        self.processes[path] = RecommenderProcess(f"--fleet.source={source}", "--spec-replicas=1", *self._own)

    def burst(self, offset_s: float, interval_s: float) -> dict[str, float]:
        """Wait until all agree, and so long; then more requests run. Seconds until each path has noticed."""
        askers = {path: Asker(process) for path, process in self.processes.items()}
        pause_s, longest_s = interval_s / 100, GIVE_UP * interval_s
        began_s = time.monotonic()
        while len(before := {asker.desired() for asker in askers.values()}) > 1 or None in before:
            if time.monotonic() - began_s > longest_s:
                break
            time.sleep(pause_s)
        time.sleep(offset_s)
        calm = {path: asker.desired() for path, asker in askers.items()}
        self.engine.running += MORE
        began_s = time.monotonic()
        took_s: dict[str, float] = {}
        while len(took_s) < len(askers) and time.monotonic() - began_s < longest_s:
            for path in askers.keys() - took_s.keys():
                if askers[path].desired() not in (calm[path], None):
                    took_s[path] = time.monotonic() - began_s
            time.sleep(pause_s)
        for asker in askers.values():
            asker.close()
        return {path: took_s.get(path, longest_s) for path in askers}

    def close(self) -> None:
        """End them all."""
        for process in self.processes.values():
            process.close()
        self.engine.close()


def prometheus_config(workloads: Sequence[Workload], interval_s: float) -> dict[str, Any]:
    """Scrape each sidecar, with the labels that the fleet source asks for."""
    targets = [
        {
            "targets": [workload.sidecar.address],
            "labels": {"namespace": "bench", "workload": workload.name, "pod": f"{workload.name}-0"},
        }
        for workload in workloads
    ]
    every = f"{interval_s * 1000:.0f}ms"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "scrape_configs": [{"job_name": "infscale", "static_configs": targets}],
    }


@contextlib.contextmanager
def started(count: int, interval_s: float, *, prometheus: bool) -> Iterator[list[Workload]]:
    """Everything that runs."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as pool:

        def start(number: int) -> Workload:
            workload = Workload(number, interval_s)
            stack.callback(workload.close)
            workload.recommend(PEERS, f"static:http://{workload.sidecar.address}")
            return workload

        workloads = list(pool.map(start, range(count)))
        if prometheus:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = Prometheus(folder, prometheus_config(workloads, interval_s))
            stack.callback(server.close)
            server.wait_ready()
            list(pool.map(lambda one: one.recommend(PROMETHEUS, f"prometheus:{server.url}"), workloads))
        yield workloads


def measure(workloads: int, bursts: int, interval_s: float, *, prometheus: bool) -> Found:
    """Seconds from each burst to a changed recommendation."""
    found: dict[str, list[float]] = defaultdict(list)
    with started(workloads, interval_s, prometheus=prometheus) as running, ThreadPoolExecutor(workloads) as pool:

        def all_bursts(number: int) -> list[dict[str, float]]:
            offsets = [(number / workloads + GOLDEN * burst) % 1 * interval_s for burst in range(bursts)]
            return [running[number].burst(offset_s, interval_s) for offset_s in offsets]

        for several in pool.map(all_bursts, range(workloads)):
            for one in several:
                for path, took_s in one.items():
                    found[path].append(took_s)
    return found


def percentiles(times_s: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th; of few times the latter is close to the longest."""
    if len(times_s) == 1:
        return times_s[0], times_s[0]
    cuts = statistics.quantiles(times_s, n=100, method="inclusive")
    return cuts[49], cuts[98]


def beside(found: Found, interval_s: float) -> list[Row]:
    """The 50th and 99th percentile over each path; the way over Prometheus is the peer of the others."""
    scraped = found.get(PROMETHEUS)
    peer, peers = ("", (None, None)) if scraped is None else (SCRAPED.format(interval_s), percentiles(scraped))
    table = []
    for path, times_s in found.items():
        for name, ours_s, peer_s in zip(("p50", "p99"), percentiles(times_s), peers, strict=True):
            what = f"burst to changed recommendation, {path}, {name} of {len(times_s)}"
            table.append(Row(what, "s", ours_s, *(("", None) if path == PROMETHEUS else (peer, peer_s))))
    return table


def rows(size: Size = Size.FULL) -> list[Row]:
    """The 50th and 99th percentile over each path; over Prometheus in a full run only."""
    prometheus = size is Size.FULL and shutil.which("prometheus") is not None
    interval_s = 0.5 if size is Size.TINY else INTERVAL_S
    found = measure(size.pick(2, WORKLOADS), BURSTS if prometheus else 1, interval_s, prometheus=prometheus)
    table = beside(found, interval_s)
    if not prometheus:
        why = ABSENT if size is Size.FULL else f"left out by --{size.value}"
        table.append(Row(f"burst to changed recommendation, {PROMETHEUS}", "s", note=why))
    return table


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("--workloads", type=int, default=WORKLOADS, help="side by side")
    parser.add_argument("--bursts", type=int, default=BURSTS, help="at each")
    parser.add_argument("--interval", type=float, default=INTERVAL_S, help="seconds between evaluations, and scrapes")
    parser.add_argument("--no-prometheus", action="store_true")
    options = parser.parse_args()
    prometheus = not options.no_prometheus
    if prometheus and shutil.which("prometheus") is None:
        parser.error(f"{ABSENT}, or leave it out by --no-prometheus")
    found = measure(options.workloads, options.bursts, options.interval, prometheus=prometheus)
    return show(beside(found, options.interval), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
