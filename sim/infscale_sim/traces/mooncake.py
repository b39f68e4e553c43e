"""Mooncake's traces: JSON lines with `timestamp` (milliseconds), `input_length` and `output_length`.

Source: github.com/kvcache-ai/Mooncake, `FAST25-release/traces/` (Qin et al., FAST 2025). `hash_ids`, the prompt's
blocks of 512 tokens, are passed over: the simulator has no prefix cache. The first request arrives at 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from infscale_sim.traces.files import TraceError, checked, lines, number, shown
from infscale_sim.traffic import Request

KEYS = ("timestamp", "input_length", "output_length")

_MOST_MS = 1e15
"""Unix milliseconds pass too: only the difference to the first counts."""


def read(path: Path) -> Iterator[Request]:
    """The requests.

    Raises:
        TraceError: a line cannot be used.
    """
    return checked(path, KEYS, _rows(path))


def _rows(path: Path) -> Iterator[tuple[int, float, object, object]]:
    first_ms: float | None = None
    for line, text in enumerate(lines(path), 1):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
            stamp, prompt, output = (value[key] for key in KEYS)
        except (ValueError, RecursionError):
            raise TraceError(path, line, f"not JSON: {shown(text.strip())}: expected an object a line") from None
        except (TypeError, KeyError):
            raise TraceError(path, line, f"{shown(text.strip())}: expected an object with {', '.join(KEYS)}") from None
        time_ms = number(path, line, "timestamp", stamp, _MOST_MS)
        first_ms = time_ms if first_ms is None else first_ms
        yield line, (time_ms - first_ms) / 1000, prompt, output
