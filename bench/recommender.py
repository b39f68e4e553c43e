"""One cycle of the recommender (look, decide, remember, publish) at 10, 100 and 1,000 replicas: how it grows.

    python bench/recommender.py [--replicas 10,100,1000]

The evaluator of `infscale recommender` with a state file and its metrics page, and stand-ins for the sidecars in
another process. The target is under 2 s for 1,000 replicas. The peer, in the same run, only reads the same pages, with
`requests` on 64 threads. The least of a few cycles counts.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import requests

from infscale.core.grammar import parse_policy
from infscale.evaluator import Evaluator
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings
from infscale.recommender import recommender_routes
from infscale.web.message import Request

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table and tests.fleet

from bench.measure import resident_mb
from bench.table import Row, Size, alone, show
from tests.fleet.peers import address, peers_apart

REPLICAS = (10, 100, 1000)
CYCLES, THREADS = 5, 64
LIMIT_S, TIMEOUT_S = 2.0, 30.0
PEER = f"requests on {THREADS} threads, reading alone"


@dataclass(frozen=True)
class Cost:
    """A cycle with so many replicas: the least wall and CPU seconds, and resident memory after it in MB (10^6 bytes).

    Attributes:
        peer_s, peer_cpu_s: of the peer.
    """

    replicas: int
    wall_s: float
    cpu_s: float
    resident_mb: float
    peer_s: float
    peer_cpu_s: float


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """The least wall and CPU seconds of CYCLES runs."""
    walls, cpus = [], []
    for _ in range(CYCLES):
        wall_s, cpu_s = time.monotonic(), time.process_time()
        run()
        walls.append(time.monotonic() - wall_s)
        cpus.append(time.process_time() - cpu_s)
    return min(walls), min(cpus)


def measure(replicas: int) -> Cost:
    """Cycles of a recommender, and of the peer."""
    with peers_apart() as port, tempfile.TemporaryDirectory() as folder:
        urls = [f"http://{address(number)}:{port}" for number in range(replicas)]
        source = parse_source("static:" + ",".join(urls), FleetSettings(timeout_s=TIMEOUT_S, spec_replicas=replicas))
        evaluator = Evaluator(source, parse_policy("queue:24,max=2000"), state_path=Path(folder) / "state.json")
        routes = recommender_routes(evaluator)

        def cycle() -> None:
            view = evaluator.evaluate()
            assert view.replicas.serving == replicas, view
            assert routes.dispatch(Request("GET", "/metrics")).status == 200

        wall_s, cpu_s = timed(cycle)
        resident = resident_mb(os.getpid())
        source.close()
        with requests.Session() as session, ThreadPoolExecutor(THREADS) as pool:
            session.trust_env = False

            def read() -> None:
                pages = pool.map(lambda url: session.get(f"{url}/api/v1/reading", timeout=TIMEOUT_S).json(), urls)
                assert all(page["up"] for page in pages)

            return Cost(replicas, wall_s, cpu_s, resident, *timed(read))


def beside(counts: Sequence[int]) -> list[Row]:
    """Time and CPU at each number of replicas, how both grow from one to the next, and memory at the last."""
    found = [measure(replicas) for replicas in counts]
    table = []
    for one in found:
        what = f"of a cycle, {one.replicas:,} replicas"
        limit_s = LIMIT_S if one.replicas == REPLICAS[-1] else None
        table.append(Row(f"time {what}", "s", one.wall_s, PEER, one.peer_s, at_most=limit_s))
        table.append(Row(f"CPU {what}", "s", one.cpu_s, PEER, one.peer_cpu_s))
    for few, many in pairwise(found):
        what = f"of a cycle, {many.replicas:,} replicas to {few.replicas:,}"
        table.append(Row(f"time {what}", "times", many.wall_s / few.wall_s, PEER, many.peer_s / few.peer_s))
        table.append(Row(f"CPU {what}", "times", many.cpu_s / few.cpu_s, PEER, many.peer_cpu_s / few.peer_cpu_s))
    return [*table, Row(f"resident memory, {found[-1].replicas:,} replicas", "MB", found[-1].resident_mb)]


def rows(size: Size = Size.FULL) -> list[Row]:
    """Time, CPU and memory at each number of replicas, and how they grow."""
    return beside((5, 10) if size is Size.TINY else REPLICAS)


def counts(text: str) -> list[int]:
    """Numbers of replicas, apart by commas."""
    return [int(part) for part in text.split(",")]


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("--replicas", type=counts, default=REPLICAS, help="apart by commas (default 10,100,1000)")
    options = parser.parse_args()
    return show(beside(options.replicas), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
