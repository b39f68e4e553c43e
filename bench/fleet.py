"""Time of one look at a fleet of sidecars, and the CPU that it costs, with stand-ins for the peers in another process.

    python bench/fleet.py [--replicas 1000] [--hang 0]

The target is under 2 s for 1,000 replicas on two cores. With `--hang` the first so many never answer, and a look takes
its whole time-out, but no more. `fetch` is the same with the sidecar's own way to read a page, on 64 threads.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infscale.core.replicas import Phase
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings
from infscale.scrape import Page, Target, fetch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet.peers import address, peers_apart

LOOKS = 5
LIMIT_S = 2.0
TIMEOUT_S = 4.0


def timed(run: Callable[[], int]) -> tuple[float, float, int]:
    """The least wall and CPU seconds of some runs, and what the last gave."""
    walls, cpus, count = [], [], 0
    for _ in range(LOOKS):
        wall, cpu = time.monotonic(), time.process_time()
        count = run()
        walls.append(time.monotonic() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus), count


def main() -> int:
    """Print a line per way; exit status 1 when a look without hanging replicas is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--hang", type=int, default=0)
    options = parser.parse_args()
    with peers_apart(options.hang) as port:
        urls = [f"http://{address(number)}:{port}" for number in range(options.replicas)]
        source = parse_source("static:" + ",".join(urls), FleetSettings(timeout_s=TIMEOUT_S))
        clock = iter(range(LOOKS))

        def look() -> int:
            fleet = source.observe(1000.0 + 15 * next(clock))
            return sum(replica.phase is Phase.SERVING for replica in fleet.replicas)

        wall_s, cpu_s, count = timed(look)
        source.close()
        print(
            f"fleet source   {wall_s:6.2f} s, {cpu_s:6.2f} s CPU, {count} of {options.replicas} (limit {LIMIT_S:g} s)"
        )
        if not options.hang:
            targets = [Target(f"{url}/api/v1/reading") for url in urls]
            with ThreadPoolExecutor(64) as pool:

                def pages() -> int:
                    found = [answer for answer in pool.map(fetch, targets) if isinstance(answer, Page)]
                    return sum("inflight" in json.loads(page.body) for page in found)

                fetch_s, fetch_cpu_s, count = timed(pages)
            print(f"fetch, threads {fetch_s:6.2f} s, {fetch_cpu_s:6.2f} s CPU, {count} of {options.replicas}")
    print(f"peak resident  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:6.1f} MB")
    return 0 if options.hang or wall_s < LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
