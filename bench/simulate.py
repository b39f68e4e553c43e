"""Requests a second of CPU that the simulator handles on one core, and its memory on a long trace.

    python bench/simulate.py [--days 14]

Three cases: a fixed fleet of five replicas (at least 100,000), the default scenario's policies that scale (at least
50,000), and a trace of two million requests over 14 days with a daily wave (under a minute, and under 500 MB in all).
The least of a few runs counts, except for the trace, which is run once. What is beside these is the simulator itself,
which says what scaling and a long trace cost; bench/simpy_step.py has SimPy.
"""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.simulate import run
from infscale_sim.traffic import Process, Rate

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.measure import least_cpu_s
from bench.table import Row, Size, alone, show

RUNS = 3
FIXED_LIMIT, SCALING_LIMIT = 100_000, 50_000
TRACE_LIMIT_S, MEMORY_LIMIT_MB = 60, 500
DAY_S = 86_400.0
DAYS = 14.0
FIXED, SCALED = "static:5", "queue:24"
POLICIES = {FIXED: FIXED_LIMIT, SCALED: SCALING_LIMIT, "hpa:cpu:25": SCALING_LIMIT}


def wave(days: float, requests: float) -> Scenario:
    """Poisson arrivals of so many requests over some days, four times as many at noon as at midnight."""
    hours = [3600.0 * hour for hour in range(round(24 * days) + 1)]
    mean = requests / (days * DAY_S)
    points = [(t, mean * (1 - 0.6 * math.cos(2 * math.pi * t / DAY_S))) for t in hours]
    return replace(load_scenario("default"), rate=Rate(points), process=Process("poisson"), horizon_s=hours[-1], seed=1)


def measure(days: float) -> list[Row]:
    """A row for each policy on the default scenario, and two for a trace; its requests and limit go by its days."""
    default = load_scenario("default")
    requests = default.requests()
    per_s = {policy: len(requests) / least_cpu_s(partial(run, default, policy, requests), RUNS) for policy in POLICIES}
    trace = wave(days, 2e6 * days / DAYS)
    many = trace.requests()
    made_mb = most_mb()
    took_s = least_cpu_s(lambda: run(trace, SCALED, many), 1)
    what, short_s = f"a trace of {len(many):,} requests ({days:g} d)", len(many) / per_s[SCALED]
    limit_s = TRACE_LIMIT_S * days / DAYS
    return [
        *(rate_row(policy, limit, per_s) for policy, limit in POLICIES.items()),
        Row(f"CPU of {what}", "s", took_s, "as many at the rate above", short_s, at_most=limit_s),
        Row(f"memory of {what}", "MiB", most_mb(), "its requests alone", made_mb, at_most=MEMORY_LIMIT_MB),
    ]


def rate_row(policy: str, limit: int, per_s: Mapping[str, float]) -> Row:
    """The rate of a policy; one that scales is beside the fleet that does not, which says what the scaling costs."""
    peer, peer_per_s = ("", None) if policy == FIXED else (FIXED, per_s[FIXED])
    what = f"requests a second of CPU, {policy}"
    return Row(what, "/s", per_s[policy], peer, peer_per_s, more_is_better=True, at_least=limit)


def most_mb() -> float:
    """The most memory that this process had (2^20 bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each policy, and two for a long trace: of 7 days in a full run, else of one."""
    return measure(DAYS / 2 if size is Size.FULL else 1.0)


def main() -> int:
    """Run alone, with a longer trace."""
    parser = alone(__doc__)
    parser.add_argument("--days", type=float, default=DAYS, help="length of the trace; requests in proportion")
    options = parser.parse_args()
    return show(measure(options.days), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
