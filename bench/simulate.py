"""Requests a second of CPU that the simulator handles on one core, and its memory on a long trace.

    python bench/simulate.py [--days 14]

Three cases: a fixed fleet of five replicas (at least 100,000), the default scenario's policies that scale (at least
50,000), and a trace of two million requests over 14 days with a daily wave (under a minute, and under 500 MB in all).
The least of a few runs counts, except for the trace, which is run once.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.simulate import run
from infscale_sim.traffic import Process, Rate, Requests

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size

RUNS = 3
FIXED_LIMIT, SCALING_LIMIT = 100_000, 50_000
TRACE_LIMIT_S, MEMORY_LIMIT_MB = 60, 500
DAY_S = 86_400.0
DAYS = 14.0
POLICIES = {"static:5": FIXED_LIMIT, "queue:24": SCALING_LIMIT, "hpa:cpu:25": SCALING_LIMIT}


def cpu_s(scenario: Scenario, policy: str, requests: Requests, runs: int = RUNS) -> float:
    """CPU time of one run, the least of several."""
    times = []
    for _ in range(runs):
        before = time.process_time()
        run(scenario, policy, requests)
        times.append(time.process_time() - before)
    return min(times)


def wave(days: float, requests: float) -> Scenario:
    """Poisson arrivals of so many requests over some days, four times as many at noon as at midnight."""
    hours = [3600.0 * hour for hour in range(round(24 * days) + 1)]
    mean = requests / (days * DAY_S)
    points = [(t, mean * (1 - 0.6 * math.cos(2 * math.pi * t / DAY_S))) for t in hours]
    return replace(load_scenario("default"), rate=Rate(points), process=Process("poisson"), horizon_s=hours[-1], seed=1)


def rates() -> Iterator[tuple[str, int, float]]:
    """Each policy on the default scenario, its limit, and requests a second of CPU."""
    default = load_scenario("default")
    requests = default.requests()
    for policy, limit in POLICIES.items():
        yield policy, limit, len(requests) / cpu_s(default, policy, requests)


@dataclass(frozen=True)
class Long:
    """The long trace: its requests, CPU seconds to make and to simulate them, and the process' most memory (2^20 B)."""

    requests: int
    made_s: float
    took_s: float
    limit_s: float
    memory_mb: float


def long_trace(days: float) -> Long:
    """Make and simulate a trace; requests and limit in proportion to its days."""
    before = time.process_time()
    trace = wave(days, 2e6 * days / DAYS)
    requests = trace.requests()
    made_s = time.process_time() - before
    took_s = cpu_s(trace, "queue:24", requests, runs=1)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Long(len(requests), made_s, took_s, TRACE_LIMIT_S * days / DAYS, memory_mb)


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each policy, and two for a long trace: of 7 days in a full run, else of one."""
    found = [
        Row(f"requests a second of CPU, {policy}", "/s", rate, more_is_better=True, at_least=limit)
        for policy, limit, rate in rates()
    ]
    days = DAYS / 2 if size is Size.FULL else 1.0
    long = long_trace(days)
    what = f"a trace of {long.requests:,} requests ({days:g} d)"
    return [
        *found,
        Row(f"CPU of {what}", "s", long.took_s, at_most=long.limit_s),
        Row(f"memory of {what}", "MiB", long.memory_mb, at_most=MEMORY_LIMIT_MB),
    ]


def main() -> int:
    """Print a line per case; exit status 1 when one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=DAYS, help="length of the trace; requests in proportion")
    days = parser.parse_args().days
    slow = False
    for policy, limit, rate in rates():
        slow |= rate < limit
        print(f"{policy:12} {rate:10,.0f} requests/s of CPU (at least {limit:,})")
    long = long_trace(days)
    took = f"made in {long.made_s:.1f} s, queue:24 in {long.took_s:.1f} s of CPU (at most {long.limit_s:.0f})"
    print(f"{days:g} days, {long.requests:,} requests: {took}, {long.memory_mb:.0f} MB (at most {MEMORY_LIMIT_MB})")
    return 1 if slow or long.took_s > long.limit_s or long.memory_mb > MEMORY_LIMIT_MB else 0


if __name__ == "__main__":
    sys.exit(main())
