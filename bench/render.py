"""CPU of the sidecar's /metrics: `python bench/render.py`.

What a scrape costs while a reading is shared, what a new reading costs once, and what the client library needs to write
the same families at each scrape, all in one run on a real vLLM page with two engines and its histograms.
"""

from __future__ import annotations

import gzip
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "exporter"))


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

from infscale.normalise import read_page  # noqa: E402
from infscale.reading import Reading  # noqa: E402
from infscale.watch import View  # noqa: E402

PAGE = ROOT / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom"
ACCEPT = {TEXT: "", OPENMETRICS: "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3"}


def cpu_us(work: Callable[[], object], repeats: int) -> float:
    """CPU microseconds of one call: the median of seven rounds."""
    rounds = []
    for _ in range(7):
        began = time.process_time()
        for _ in range(repeats):
            work()
        rounds.append((time.process_time() - began) / repeats * 1e6)
    return statistics.median(rounds)


def measure(form: Format, encoding: str, reading: Reading) -> None:
    """Print one row: shared, own metrics anew, new reading, the client library, and the ratio."""
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

    once = cpu_us(lambda: shared.page(accept, encoding), 500)
    own = cpu_us(lambda: own_anew.page(accept, encoding), 100)
    anew = cpu_us(new_reading, 20)
    peer = cpu_us(library, 20)
    name = f"{'OpenMetrics' if form is OPENMETRICS else 'text'}{' gzip' if encoding else ''}"
    size = len(shared.page(accept, encoding).body)
    print(f"{name:17} {size:6} B {once:9.1f} {own:9.1f} {anew:9.1f} {peer:9.1f} {peer / once:9.0f} x")


def main() -> None:
    """Print the table and the memory that the page's modules take."""
    reading = read_page(PAGE.read_text(encoding="utf-8"), histograms=True)
    assert isinstance(reading, Reading)
    print(f"CPU microseconds per scrape, {PAGE.name}")
    print(f"{'format':17} {'page':>8} {'shared':>9} {'own anew':>9} {'new read':>9} {'library':>9} {'lib/shared':>11}")
    for form in (TEXT, OPENMETRICS):
        for encoding in ("", "gzip"):
            measure(form, encoding, reading)
    print(f"resident: {BARE_MB:.1f} MB of Python alone, {IMPORTED_MB:.1f} MB with infscale.metrics.render imported")


if __name__ == "__main__":
    main()
