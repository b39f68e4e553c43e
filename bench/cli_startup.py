"""CPU time of short commands, in milliseconds, the least of a few runs: `infscale --help` must stay under 150.

    python bench/cli_startup.py [PAGE]

PAGE is the metrics page that `infscale parse` reads; by default the first of the tests' own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RUNS = 5
LIMIT_MS = 150


def cpu_ms(command: list[str]) -> float:
    """CPU time (user and system) of a command, the least of RUNS runs."""
    times = []
    for _ in range(RUNS):
        before = os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        times.append(after.children_user - before.children_user + after.children_system - before.children_system)
    return 1000 * min(times)


def main() -> int:
    """Print a line per command; exit status 1 when `--help` is over its limit."""
    pages = sorted((Path(__file__).parent.parent / "tests" / "data").rglob("vllm*.txt"))
    page = sys.argv[1:] or [str(path) for path in pages[:1]]
    infscale = [sys.executable, "-m", "infscale"]
    bare = cpu_ms([sys.executable, "-c", "pass"])
    help_ms = cpu_ms([*infscale, "--help"])
    print(f"python -c pass        {bare:6.0f} ms CPU")
    print(
        f"infscale --help       {help_ms:6.0f} ms CPU, {help_ms / bare:.1f} times a bare python (limit {LIMIT_MS} ms)"
    )
    if page:
        print(f"infscale parse PAGE   {cpu_ms([*infscale, 'parse', *page]):6.0f} ms CPU")
    return 0 if help_ms < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
