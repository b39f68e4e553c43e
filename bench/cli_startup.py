"""CPU time of short commands, in milliseconds, the least of a few runs: `infscale --help` must stay under 150.

    python bench/cli_startup.py [PAGE]

PAGE is the metrics page that `infscale parse` reads, by default a real vLLM's with two engines.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size, alone, show

PAGE = Path(__file__).parents[1] / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom"
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


def measure(page: Path, runs: int = RUNS) -> list[Row]:
    """A row for each command, beside a bare Python."""
    infscale = [sys.executable, "-m", "infscale"]
    bare = ("python -c pass", cpu_ms([sys.executable, "-c", "pass"], runs))
    help_ms, parse_ms = cpu_ms([*infscale, "--help"], runs), cpu_ms([*infscale, "parse", str(page)], runs)
    return [
        Row("CPU of `infscale --help`", "ms", help_ms, *bare, at_most=LIMIT_MS),
        Row("CPU of `infscale parse PAGE`", "ms", parse_ms, *bare),
    ]


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each command."""
    return measure(PAGE, size.pick(2, RUNS))


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    options = parser.parse_args()
    return show(measure(options.page), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
