"""How the CPU for a hostile page grows with it: twice the text, about twice the time, whatever stands in it.

    python bench/exposition_growth.py [--check]

Each pattern is a line (or lines) of 500 kB and of 1 MB that a slip in the reader would make slow: quotes, backslashes,
braces, names in names. Reported is the CPU time of the larger over the smaller, of each pattern when run alone.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from infscale.errors import ExpositionError
from infscale.exposition import Selector, mentions, parse

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.measure import least_cpu_s
from bench.table import Row, Size, alone, show

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


def read(text: str) -> None:
    """Read a text in every way."""
    with contextlib.suppress(ExpositionError):
        parse(text)
    Selector(["running"], prefix="vllm").select(text)
    mentions(text, "vllm")


def cost_s(text: str) -> float:
    """CPU seconds of that, the least of three."""
    return least_cpu_s(lambda: read(text), 3)


def growths(length: int) -> Iterator[Row]:
    """For each pattern the CPU seconds of a text of twice this length over those of one of this length."""
    for name, make in HOSTILE.items():
        small_s, large_s = cost_s(make(length)), cost_s(make(2 * length))
        # Below 5 ms the clock's grain is what would be measured.
        ratio = large_s / small_s if large_s > 0.005 else 0.0
        yield Row("CPU for a hostile page twice as long", "times", ratio, at_most=LIMIT, note=name)


def rows(size: Size = Size.FULL) -> list[Row]:
    """The worst pattern."""
    worst = max(growths(size.pick(20_000, LENGTH)), key=lambda row: row.ours or 0.0)
    return [replace(worst, what=f"{worst.what}, the worst of {len(HOSTILE)}")]


def main() -> int:
    """Run alone."""
    options = alone(__doc__).parse_args()
    return show(list(growths(LENGTH)), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
