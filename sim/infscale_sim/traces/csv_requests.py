"""Our own CSV: `arrival_s,prompt_tokens,output_tokens`, a request a row, further columns passed over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infscale_sim.traces.files import checked, csv_rows, number
from infscale_sim.traffic import Request

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")


def read(path: Path) -> Iterator[Request]:
    """The requests; `arrival_s` counts from the trace's start.

    Raises:
        TraceError: a row cannot be used.
    """
    return checked(
        path,
        COLUMNS,
        (
            (line, number(path, line, "arrival_s", arrival), prompt, output)
            for line, (arrival, prompt, output) in csv_rows(path, COLUMNS)
        ),
    )
