"""CPU from a page to a Reading, against what prometheus_client needs to parse the page alone.

    python bench/page_to_reading.py [--check]

The page is a real vLLM's with two engines. Both are measured in this run, in turns, on CPU time; the figures are of
the round with the median ratio.
"""

from __future__ import annotations

import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from infscale.normalise import read_page

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.measure import cpu_s
from bench.table import Row, Size, alone, show

PAGE = Path(__file__).parent.parent / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom"
TARGETS = (("what a decision or a drain needs", False, 60), ("with the histograms", True, 25))


def measure(text: str, *, histograms: bool, rounds: int = 15) -> tuple[float, float]:
    """CPU seconds of infscale and of prometheus_client's parser: the round with the median ratio."""
    read_page(text, histograms=histograms)  # the first page of an engine teaches the memo
    pairs = [
        (
            cpu_s(lambda: read_page(text, histograms=histograms), 50),
            cpu_s(lambda: list(text_string_to_metric_families(text)), 2),
        )
        for _ in range(rounds)
    ]
    return sorted(pairs, key=lambda pair: pair[1] / pair[0])[len(pairs) // 2]


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each target."""
    text, found = PAGE.read_text(), []
    for title, histograms, target in TARGETS:
        own_s, client_s = measure(text, histograms=histograms, rounds=size.pick(3, 15))
        what = f"CPU for a page of {len(text) / 1000:.0f} kB, {title}"
        found.append(Row(what, "µs", own_s * 1e6, "prometheus_client's parser", client_s * 1e6, ratio_at_least=target))
    return found


def main() -> int:
    """Run alone."""
    options = alone(__doc__).parse_args()
    return show(rows(), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
