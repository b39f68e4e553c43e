"""CPU of a scrape of the sidecar's /metrics, against what the client library needs for the same families.

    python bench/render.py

What a scrape costs while a reading is shared, what a new reading costs once, and what the client library needs to write
the same families at each scrape, all in one run on a real vLLM page with two engines and its histograms.
"""

from __future__ import annotations

import gzip
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from infscale.metrics.collectors import ReplicaCollector, own_registry
from infscale.metrics.negotiate import OPENMETRICS, TEXT, Format
from infscale.metrics.render import Renderer
from infscale.normalise import read_page
from infscale.reading import Reading
from infscale.watch import View

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.measure import cpu_s
from bench.table import Row, Size, alone, show

PAGE = Path(__file__).parents[1] / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom"
ACCEPT = {TEXT: "", OPENMETRICS: "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3"}

ROUNDS = 7


def cpu_us(work: Callable[[], object], repeats: int) -> float:
    """CPU microseconds of one call: the median of ROUNDS rounds."""
    return statistics.median(cpu_s(work, repeats) for _ in range(ROUNDS)) * 1e6


def measure(form: Format, compress: bool, reading: Reading) -> list[Row]:
    """Render in one format: a page that was rendered before, and one of a reading that was not."""
    fresh = View(reading.state, reading, 1.76e9, known=reading, scrape_duration_s=0.004)
    views = [fresh]
    accept = ACCEPT[form]
    replica = ReplicaCollector(lambda: views, dict)
    renderer = Renderer(replica, own_registry("0"))

    def new_reading() -> None:
        views[0] = replace(fresh)
        renderer.page(accept, compress)

    whole = own_registry("0")
    whole.register(replica)

    def library() -> bytes:
        page = form.write(whole)
        return gzip.compress(page) if compress else page  # as its server does

    shared_us, new_us = cpu_us(lambda: renderer.page(accept, compress), 500), cpu_us(new_reading, 20)
    name = f"{'OpenMetrics' if form is OPENMETRICS else 'text'}{' gzip' if compress else ''}"
    peer = ("prometheus_client", cpu_us(library, 20))
    return [
        Row(f"CPU of /metrics, reading shared, {name}", "µs", shared_us, *peer),
        Row(f"CPU of /metrics, new reading, {name}", "µs", new_us, *peer),
    ]


def rows(size: Size = Size.FULL) -> list[Row]:
    """A shared and a new reading in each format; it is quick in any size."""
    reading = read_page(PAGE.read_text(encoding="utf-8"), histograms=True)
    assert isinstance(reading, Reading)
    return [
        row for form in (TEXT, OPENMETRICS) for compress in (False, True) for row in measure(form, compress, reading)
    ]


def main() -> int:
    """Run alone."""
    options = alone(__doc__).parse_args()
    return show(rows(), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
