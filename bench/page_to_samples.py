"""CPU from a page to the samples asked for, against what prometheus_client needs to parse the page.

    python bench/page_to_samples.py [PAGE] [--check]

PAGE is a vLLM page, by default a real one with two engines. Everything is measured in this run, in turns, on CPU time;
the figures are those of the round with the median ratio. A first page is one of which the Selector knows nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from infscale.exposition import Selector, parse

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.measure import cpu_s
from bench.table import Row, Size, alone, show

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


def measure(text: str, rounds: int = ROUNDS) -> list[Row]:
    """Every way to read the page, each with the round that has the median ratio."""
    known, known_everything = decision(), everything()
    known_everything.select(text)
    ways: list[tuple[str, Callable[[], object], int]] = [
        ("decision, first page (with making the Selector)", lambda: decision().select(text), 15),
        ("decision, later pages", lambda: known.select(text), 70),
        ("with three histograms, later pages", lambda: known_everything.select(text), 40),
        ("every line, strictly", lambda: parse(text), 1),
    ]
    pairs: list[list[tuple[float, float]]] = [[] for _ in ways]
    for _ in range(rounds):
        peer_s = cpu_s(lambda: list(text_string_to_metric_families(text)))
        for found, (_, run, _) in zip(pairs, ways, strict=True):
            found.append((cpu_s(run, REPEATS), peer_s))
    table = []
    for found, (what, _, target) in zip(pairs, ways, strict=True):
        own_s, peer_s = sorted(found, key=lambda pair: pair[1] / pair[0])[rounds // 2]
        peer = ("prometheus_client's parser", peer_s * 1e6)
        table.append(Row(f"CPU for a page: {what}", "µs", own_s * 1e6, *peer, ratio_at_least=target))
    return table


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each way to read the page."""
    return measure(PAGE.read_text(), size.pick(3, ROUNDS))


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    options = parser.parse_args()
    return show(measure(options.page.read_text()), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
