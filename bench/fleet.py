"""Time of one look at a fleet of sidecars, and the CPU that it costs, with stand-ins for the peers in another process.

    python bench/fleet.py [--replicas 1000] [--hang 0]

The target is under 2 s for 1,000 replicas on two cores. With `--hang` the first so many never answer, and a look takes
its whole time-out, but no more. The peer is the sidecar's own way to read a page, on 64 threads; not where some hang.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from infscale.core.replicas import Phase
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings
from infscale.scrape import Page, Target, fetch

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.table import Row, Size, alone, show
from tests.fleet.peers import address, peers_apart

REPLICAS, LOOKS = 1000, 5
LIMIT_S = 2.0
TIMEOUT_S = 4.0


@dataclass(frozen=True)
class Look:
    """The least wall and CPU seconds of some looks, and how many replicas the last found."""

    wall_s: float
    cpu_s: float
    count: int


def timed(run: Callable[[], int]) -> Look:
    """Look LOOKS times."""
    walls, cpus, count = [], [], 0
    for _ in range(LOOKS):
        wall, cpu = time.monotonic(), time.process_time()
        count = run()
        walls.append(time.monotonic() - wall)
        cpus.append(time.process_time() - cpu)
    return Look(min(walls), min(cpus), count)


def measure(replicas: int, hang: int = 0) -> tuple[Look, Look | None]:
    """The fleet source, and the plain way to read as many pages; that one only where none hangs."""
    with peers_apart(hang) as port:
        urls = [f"http://{address(number)}:{port}" for number in range(replicas)]
        source = parse_source("static:" + ",".join(urls), FleetSettings(timeout_s=TIMEOUT_S))
        clock = iter(range(LOOKS))

        def look() -> int:
            fleet = source.observe(1000.0 + 15 * next(clock))
            return sum(replica.phase is Phase.SERVING for replica in fleet.replicas)

        found = timed(look)
        source.close()
        if hang:
            return found, None
        targets = [Target(f"{url}/api/v1/reading") for url in urls]
        with ThreadPoolExecutor(64) as pool:

            def pages() -> int:
                answers = [answer for answer in pool.map(fetch, targets) if isinstance(answer, Page)]
                return sum("inflight" in json.loads(page.body) for page in answers)

            return found, timed(pages)


def beside(replicas: int, hang: int = 0) -> list[Row]:
    """Time and CPU of a look."""
    ours, plain = measure(replicas, hang)
    peer = "" if plain is None else "the sidecar's own read on 64 threads"
    wall_s, cpu_s = (None, None) if plain is None else (plain.wall_s, plain.cpu_s)
    limit_s = None if hang else LIMIT_S
    what = f"one look at {replicas:,} sidecars{f', {hang:,} of which hang' if hang else ''}"
    return [
        Row(what, "s", ours.wall_s, peer, wall_s, at_most=limit_s),
        Row(f"CPU of {what}", "s", ours.cpu_s, peer, cpu_s),
    ]


def rows(size: Size = Size.FULL) -> list[Row]:
    """Time and CPU of a look."""
    return beside(size.pick(20, REPLICAS))


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--hang", type=int, default=0, help="so many of them")
    options = parser.parse_args()
    return show(beside(options.replicas, options.hang), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
