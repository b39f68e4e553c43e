"""CPU of a scrape of the sidecar's /metrics, against what the client library needs for the same families.

    python bench/render.py

What a scrape costs while a reading is shared, what a new reading costs once, and what the client library needs to write
the same families at each scrape, all in one run on a real vLLM page with two engines and its histograms.
"""

from __future__ import annotations

import gzip
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "exporter"), str(ROOT)]


def resident_mb() -> float:
    """Resident memory of this process in MB (10^6 bytes); nan without /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
    except OSError:
        return float("nan")


BARE_MB = resident_mb()

from infscale.metrics.collectors import ReplicaCollector, own_registry  # noqa: E402
from infscale.metrics.negotiate import OPENMETRICS, TEXT, Format  # noqa: E402
from infscale.metrics.render import Renderer  # noqa: E402

IMPORTED_MB = resident_mb()

from bench.table import Row, Size  # noqa: E402
from infscale.normalise import read_page  # noqa: E402
from infscale.reading import Reading  # noqa: E402
from infscale.watch import View  # noqa: E402

PAGE = ROOT / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom"
ACCEPT = {TEXT: "", OPENMETRICS: "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3"}

ROUNDS = 7


def cpu_us(work: Callable[[], object], repeats: int) -> float:
    """CPU microseconds of one call: the median of ROUNDS rounds."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(repeats):
            work()
        rounds.append((time.process_time() - began) / repeats * 1e6)
    return statistics.median(rounds)


@dataclass(frozen=True)
class Cost:
    """CPU microseconds of a scrape in one format, and the bytes of the page.

    Attributes:
        shared: of a page whose reading was rendered before.
        own_anew: with the sidecar's own metrics rendered anew.
        new_read: of a reading that was not rendered before.
        library: of the client library for the same families.
    """

    name: str
    size: int
    shared: float
    own_anew: float
    new_read: float
    library: float


def measure(form: Format, encoding: str, reading: Reading) -> Cost:
    """Render in one format."""
    fresh = View(reading.state, reading, 1.76e9, known=reading, scrape_duration_s=0.004)
    views = [fresh]
    accept = ACCEPT[form]
    replica = ReplicaCollector(lambda: views, dict)
    shared = Renderer(replica, own_registry("0"))
    own_anew = Renderer(replica, own_registry("0"), own_max_age_s=0)

    def new_reading() -> None:
        views[0] = replace(fresh)
        shared.page(accept, encoding)

    whole = own_registry("0")
    whole.register(replica)

    def library() -> bytes:
        page = form.write(whole)
        return gzip.compress(page, 6) if encoding else page

    return Cost(
        f"{'OpenMetrics' if form is OPENMETRICS else 'text'}{' gzip' if encoding else ''}",
        len(shared.page(accept, encoding).body),
        cpu_us(lambda: shared.page(accept, encoding), 500),
        cpu_us(lambda: own_anew.page(accept, encoding), 100),
        cpu_us(new_reading, 20),
        cpu_us(library, 20),
    )


def costs() -> Iterator[Cost]:
    """Every format."""
    reading = read_page(PAGE.read_text(encoding="utf-8"), histograms=True)
    assert isinstance(reading, Reading)
    for form in (TEXT, OPENMETRICS):
        for encoding in ("", "gzip"):
            yield measure(form, encoding, reading)


def rows(size: Size = Size.FULL) -> list[Row]:
    """A shared and a new reading in each format; it is quick in any size."""
    return [
        Row(f"CPU of /metrics, {what}, {cost.name}", "µs", ours, "prometheus_client", cost.library)
        for cost in costs()
        for what, ours in (("reading shared", cost.shared), ("new reading", cost.new_read))
    ]


def main() -> None:
    """Print the table and the memory that the page's modules take."""
    print(f"CPU microseconds per scrape, {PAGE.name}")
    print(f"{'format':17} {'page':>8} {'shared':>9} {'own anew':>9} {'new read':>9} {'library':>9} {'lib/shared':>11}")
    for one in costs():
        times = f"{one.shared:9.1f} {one.own_anew:9.1f} {one.new_read:9.1f} {one.library:9.1f}"
        print(f"{one.name:17} {one.size:6} B {times} {one.library / one.shared:9.0f} x")
    print(f"resident: {BARE_MB:.1f} MB of Python alone, {IMPORTED_MB:.1f} MB with infscale.metrics.render imported")


if __name__ == "__main__":
    main()
