"""CPU time of short commands, in milliseconds, the least of a few runs: `infscale --help` must stay under 150.

    python bench/cli_startup.py [PAGE]

PAGE is the metrics page that `infscale parse` reads; by default the first of the tests' own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size

RUNS = 5
LIMIT_MS = 150


def cpu_ms(command: list[str], runs: int = RUNS) -> float:
    """CPU time (user and system) of a command, the least of some runs."""
    times = []
    for _ in range(runs):
        before = os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        times.append(after.children_user - before.children_user + after.children_system - before.children_system)
    return 1000 * min(times)


def measure(page: list[str], runs: int = RUNS) -> tuple[float, float, float | None]:
    """CPU milliseconds of a bare Python, of `infscale --help`, and of `infscale parse` where there is a page."""
    infscale = [sys.executable, "-m", "infscale"]
    bare_ms = cpu_ms([sys.executable, "-c", "pass"], runs)
    return bare_ms, cpu_ms([*infscale, "--help"], runs), cpu_ms([*infscale, "parse", *page], runs) if page else None


def default_page() -> list[str]:
    """The first of the tests' pages, if there is one."""
    pages = sorted((Path(__file__).parent.parent / "tests" / "data").rglob("vllm*.prom"))
    return [str(path) for path in pages[:1]]


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each command."""
    bare_ms, help_ms, parse_ms = measure(default_page(), size.pick(2, RUNS))
    peer = "python -c pass"
    return [
        Row("CPU of `infscale --help`", "ms", help_ms, peer, bare_ms, at_most=LIMIT_MS),
        Row("CPU of `infscale parse PAGE`", "ms", parse_ms, peer, bare_ms),
    ]


def main() -> int:
    """Print a line per command; exit status 1 when `--help` is over its limit."""
    bare_ms, help_ms, parse_ms = measure(sys.argv[1:] or default_page())
    print(f"python -c pass        {bare_ms:6.0f} ms CPU")
    times = help_ms / bare_ms
    print(f"infscale --help       {help_ms:6.0f} ms CPU, {times:.1f} times a bare python (limit {LIMIT_MS} ms)")
    if parse_ms is not None:
        print(f"infscale parse PAGE   {parse_ms:6.0f} ms CPU")
    return 0 if help_ms < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
