"""How the CPU for a hostile page grows with it: twice the text, about twice the time, whatever stands in it.

    python bench/exposition_growth.py [--check]

Each pattern is a line (or lines) of 500 kB and of 1 MB that a slip in the reader would make slow: quotes, backslashes,
braces, names in names. Reported is the CPU time of the larger over the smaller. With `--check` the exit code is 1 when
a ratio is above 3.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from infscale.errors import ExpositionError
from infscale.exposition import Selector, mentions, parse

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size

LIMIT = 3.0
LENGTH = 500_000
HOSTILE: dict[str, Callable[[int], str]] = {
    "quotes": lambda n: '"' * n,
    "backslashes": lambda n: "\\" * n,
    "braces": lambda n: "{" * n,
    "closing braces": lambda n: "vllm:running{" + "}" * n,
    "brace and quote": lambda n: '{"' * (n // 2),
    "escaped quotes": lambda n: 'vllm:running{a="' + '\\"' * (n // 2),
    "escaped backslashes": lambda n: 'vllm:running{a="' + "\\\\" * (n // 2),
    "unclosed quote": lambda n: 'vllm:running{a="' + "a" * n,
    "unclosed name": lambda n: '{"' + "running" * (n // 7),
    "many labels": lambda n: "vllm:running{" + ",".join(f'a{i}="{i}"' for i in range(n // 14)),
    "many labels that are closed": lambda n: "vllm:running{" + ",".join(f'a{i}="{i}"' for i in range(n // 14)) + "} 1",
    "one label name": lambda n: "vllm:running{" + "a" * n,
    "names in a name": lambda n: "vllm:" * (n // 5) + "running 1",
    "digits": lambda n: "vllm:running " + "9" * n,
    "zeros": lambda n: "vllm:running 0." + "0" * n + "1",
    "numbers": lambda n: "vllm:running" + " 1" * (n // 2),
    "blanks": lambda n: "vllm:running" + " " * n + "x",
    "TYPE": lambda n: "# TYPE " + '\\"' * (n // 2),
    "names": lambda n: "running " * (n // 8),
    "names on lines": lambda n: "vllm:running\n" * (n // 50),
    "spellings": lambda n: "".join(f"a{i}_vllm_running x\n" for i in range(n // 100)),
    "comments": lambda n: "#running\n" * (n // 20),
    "other scripts": lambda n: "é" * n + "running",
}


def cost_s(text: str) -> float:
    """CPU seconds to read a text in every way, the least of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        with contextlib.suppress(ExpositionError):
            parse(text)
        Selector(["running"], prefix="vllm").select(text)
        mentions(text, "vllm")
        best = min(best, time.process_time() - start)
    return best


def growths(length: int) -> Iterator[tuple[str, float, float, float]]:
    """For each pattern its name, the CPU seconds of a text of this length and of twice that, and their ratio."""
    for name, make in HOSTILE.items():
        small_s, large_s = cost_s(make(length)), cost_s(make(2 * length))
        # Below 5 ms the clock's grain is what would be measured.
        yield name, small_s, large_s, large_s / small_s if large_s > 0.005 else 0.0


def rows(size: Size = Size.FULL) -> list[Row]:
    """The worst pattern."""
    length = size.pick(20_000, LENGTH)
    name, _, _, ratio = max(growths(length), key=lambda growth: growth[3])
    what = f"CPU for a hostile page twice as long, the worst of {len(HOSTILE)}"
    return [Row(what, "times", ratio, at_most=LIMIT, note=name)]


def main() -> int:
    """Measure, print, and with --check judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help=f"exit 1 when a ratio is above {LIMIT:g}")
    check = parser.parse_args().check
    worst = 0.0
    for name, small_s, large_s, ratio in growths(LENGTH):
        worst = max(worst, ratio)
        print(f"{name:28} {small_s * 1e3:7.1f} ms  {large_s * 1e3:7.1f} ms  {f'{ratio:.1f} times' if ratio else ''}")
    print(f"the worst: {worst:.1f} times for twice the text (limit {LIMIT:g})")
    return int(check and worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
