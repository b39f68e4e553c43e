"""The traces that Azure published in 2023 and 2024: `TIMESTAMP,ContextTokens,GeneratedTokens`.

Source: github.com/Azure/AzurePublicDataset, `data/AzureLLMInferenceTrace_*.csv` (Patel et al., Splitwise, ISCA 2024).
Time stamps are dates with seven digits of a second; the first request arrives at 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from infscale_sim.traces.files import TraceError, checked, csv_rows, shown
from infscale_sim.traffic import Request

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read(path: Path) -> Iterator[Request]:
    """The requests.

    Raises:
        TraceError: a row cannot be used.
    """
    return checked(path, COLUMNS, _rows(path))


def _rows(path: Path) -> Iterator[tuple[int, float, object, object]]:
    first: datetime | None = None
    for line, (stamp, prompt, output) in csv_rows(path, COLUMNS):
        try:
            time = datetime.fromisoformat(stamp.strip())
            first = first or time
            yield line, (time - first).total_seconds(), prompt, output
        except (ValueError, TypeError):  # a TypeError: one of two dates has a time zone
            expected = "expected a date like the first, as 2023-11-16 18:15:46.6805900"
            raise TraceError(path, line, f"TIMESTAMP is {shown(stamp)}: {expected}") from None
