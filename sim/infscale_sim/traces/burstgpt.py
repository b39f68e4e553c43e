"""BurstGPT's traces: one request a row as published, or tokens per second for each minute as cut from them.

Source: github.com/HPMLL/BurstGPT (Wang et al., KDD 2025), `BurstGPT_*.csv`. Rows without response tokens are requests
that failed, as its README has it, and are passed over. `Timestamp` counts in seconds, from the first row here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infscale_sim.traces.files import checked, csv_rows, number
from infscale_sim.traces.rates import Level
from infscale_sim.traffic import Request

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
MINUTE_COLUMNS = ("minute", "total_tokens_per_s")

PROMPT_TOKENS, OUTPUT_TOKENS = 490.0, 244.0
"""Of a mean request, for minutes that tell tokens only. 734 together is the mean of the first 61 days (1,429,737
requests, 1.049e9 tokens); two thirds of them prompt as in the first rows of BurstGPT_1.csv is an assumption."""

_MOST_TOKENS_PER_S = 1e9


def read(path: Path) -> Iterator[Request]:
    """The requests of a published file.

    Raises:
        TraceError: a row cannot be used.
    """
    return checked(path, COLUMNS, _rows(path))


def read_minutes(path: Path) -> Iterator[Level]:
    """The levels of a file `minute,total_tokens_per_s`.

    Raises:
        TraceError: a row cannot be used.
    """
    for line, (minute, total) in csv_rows(path, MINUTE_COLUMNS):
        per_s = number(path, line, "total_tokens_per_s", total, _MOST_TOKENS_PER_S)
        start_s = 60 * number(path, line, "minute", minute)
        yield Level(start_s, 60.0, per_s / (PROMPT_TOKENS + OUTPUT_TOKENS), PROMPT_TOKENS, OUTPUT_TOKENS)


def _rows(path: Path) -> Iterator[tuple[int, float, object, object]]:
    first_s: float | None = None
    for line, (stamp, prompt, output) in csv_rows(path, COLUMNS):
        time_s = number(path, line, "Timestamp", stamp, most=1e11)
        first_s = time_s if first_s is None else first_s
        if output.strip() not in ("0", "0.0"):
            yield line, time_s - first_s, prompt, output
