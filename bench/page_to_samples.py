"""CPU from a page to the samples asked for, against what prometheus_client needs to parse the page.

    python bench/page_to_samples.py [PAGE] [--check]

PAGE is a vLLM page, by default a real one with two engines. Everything is measured in this run, in turns, on CPU time;
the figures are medians. A first page is one of which the Selector knows nothing. With `--check` the exit code is 1 when
a ratio is below its target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from infscale.exposition import Selector, parse

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


def main() -> int:
    """Measure, print a line each, and say whether the targets are met."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("page", nargs="?", type=Path, default=PAGE)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    text = given.page.read_text()
    known, known_everything = decision(), everything()
    known_everything.select(text)

    def first() -> object:
        return decision().select(text)

    cases: list[tuple[str, Callable[[], object], int]] = [
        ("decision, first page (with making the Selector)", first, 15),
        ("decision, later pages", lambda: known.select(text), 70),
        ("with three histograms, later pages", lambda: known_everything.select(text), 40),
        ("every line, strictly", lambda: parse(text), 1),
    ]
    peer: list[float] = []
    times: list[list[float]] = [[] for _ in cases]
    for _ in range(ROUNDS):
        peer.append(cpu_s(lambda: list(text_string_to_metric_families(text))))
        for found, (_, run, _) in zip(times, cases, strict=True):
            found.append(cpu_s(run, REPEATS))

    peer_us = 1e6 * statistics.median(peer)
    print(f"{given.page.name}, {len(text) / 1000:.0f} kB; prometheus_client: {peer_us:.0f} us of CPU")
    missed = False
    for found, (what, _, target) in zip(times, cases, strict=True):
        ratio = statistics.median(theirs / mine for theirs, mine in zip(peer, found, strict=True))
        missed = missed or ratio < target
        print(f"{what:48} {1e6 * statistics.median(found):7.0f} us   {ratio:5.1f} times less (target {target})")
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
