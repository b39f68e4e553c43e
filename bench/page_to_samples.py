"""CPU from a page to the samples asked for, against what prometheus_client needs to parse the page.

    python bench/page_to_samples.py [PAGE] [--check]

PAGE is a vLLM page, by default a real one with two engines. Everything is measured in this run, in turns, on CPU time;
the figures are those of the round with the
median ratio. A first page is one of which the Selector knows nothing. With `--check` the exit code is 1 when
a ratio is below its target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from infscale.exposition import Selector, parse

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size

PAGE = Path(__file__).parent.parent / "tests" / "data" / "pages" / "vllm-0.33.0-dp2.prom"
ROUNDS, REPEATS = 25, 10

NAMES = (
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_swapped",
    "kv_cache_usage_perc",
    "gpu_cache_usage_perc",
    "prompt_tokens_total",
    "generation_tokens_total",
    "request_success_total",
    "engine_sleep_state",
)
PLAIN = ("process_start_time_seconds", "process_cpu_seconds_total")
HISTOGRAMS = ("time_to_first_token_seconds", "inter_token_latency_seconds", "request_queue_time_seconds")


def decision() -> Selector:
    """A Selector for what a decision or a drain needs."""
    return Selector(NAMES, prefix="vllm", plain=PLAIN)


def everything() -> Selector:
    """A Selector for that and three histograms."""
    parts = [name + part for name in HISTOGRAMS for part in ("_bucket", "_sum", "_count")]
    return Selector((*NAMES, *parts), prefix="vllm", plain=PLAIN)


def cpu_s(run: Callable[[], object], repeats: int = 1) -> float:
    """CPU seconds of one run, over `repeats` runs."""
    start = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats


@dataclass(frozen=True)
class Case:
    """One way to read the page, and what it must at least be ahead of prometheus_client.

    Attributes:
        cpu_us, peer_us: CPU of one read, and of prometheus_client's parser, in the round with the median ratio.
    """

    what: str
    target: int
    cpu_us: float
    peer_us: float

    @property
    def ratio(self) -> float:
        """How many times less CPU."""
        return self.peer_us / self.cpu_us


def measure(text: str, rounds: int = ROUNDS) -> list[Case]:
    """Every way to read the page."""
    known, known_everything = decision(), everything()
    known_everything.select(text)
    ways: list[tuple[str, Callable[[], object], int]] = [
        ("decision, first page (with making the Selector)", lambda: decision().select(text), 15),
        ("decision, later pages", lambda: known.select(text), 70),
        ("with three histograms, later pages", lambda: known_everything.select(text), 40),
        ("every line, strictly", lambda: parse(text), 1),
    ]
    cases: list[list[Case]] = [[] for _ in ways]
    for _ in range(rounds):
        peer_us = 1e6 * cpu_s(lambda: list(text_string_to_metric_families(text)))
        for found, (what, run, target) in zip(cases, ways, strict=True):
            found.append(Case(what, target, 1e6 * cpu_s(run, REPEATS), peer_us))
    return [sorted(found, key=lambda case: case.ratio)[rounds // 2] for found in cases]


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each way to read the page."""
    name = "prometheus_client's parser"
    return [
        Row(f"CPU for a page: {one.what}", "µs", one.cpu_us, name, one.peer_us, ratio_at_least=one.target)
        for one in measure(PAGE.read_text(), size.pick(3, ROUNDS))
    ]


def main() -> int:
    """Measure, print a line each, and say whether the targets are met."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("page", nargs="?", type=Path, default=PAGE)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    text = given.page.read_text()
    cases = measure(text)
    peer_us = statistics.median(one.peer_us for one in cases)
    print(f"{given.page.name}, {len(text) / 1000:.0f} kB; prometheus_client: {peer_us:.0f} us of CPU")
    for one in cases:
        print(f"{one.what:48} {one.cpu_us:7.0f} us   {one.ratio:5.1f} times less (target {one.target})")
    return int(given.check and any(one.ratio < one.target for one in cases))


if __name__ == "__main__":
    sys.exit(main())
