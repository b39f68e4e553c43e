"""Rates from counters that were read twice: tokens per second, and CPU over its request.

`infscale decide` is a process of its own each time, so the counters of its last run stand in the state file
(`ScaleState.reads`). Pure: the instant is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infscale.core.memory import MOST_READS, Read
from infscale.reading import ReadFailure, Reading


@dataclass(frozen=True, slots=True)
class Rates:
    """What moved between two reads of one source; None where that is not known.

    Attributes:
        tokens_per_second: prompt and generated tokens.
        cpu_ratio: CPU over the request.
    """

    tokens_per_second: float | None = None
    cpu_ratio: float | None = None


def read_of(reading: Reading, now_s: float) -> Read:
    """A reading's counters, read at `now_s` (Unix seconds)."""
    return Read(now_s, reading.cpu_s, reading.prompt_tokens, reading.generation_tokens)


def rates(before: Read | None, now: Read, cpu_request: float | None) -> Rates:
    """What moved since the read before. A counter that fell is a restart of the engine: then nothing is known.

    Args:
        before: None: there is none.
        now: the present read.
        cpu_request: CPU cores that the engine's Pod requests; None: not told, and no ratio is known.
    """
    if before is None or _restarted(before, now):
        return Rates()
    elapsed_s = now.time_s - before.time_s
    tokens = [
        rate(before.prompt_tokens, now.prompt_tokens, elapsed_s),
        rate(before.generation_tokens, now.generation_tokens, elapsed_s),
    ]
    known = [one for one in tokens if one is not None]
    cores = rate(before.cpu_s, now.cpu_s, elapsed_s)
    return Rates(sum(known) if known else None, cores / cpu_request if cores is not None and cpu_request else None)


def rate(before: float | None, after: float | None, elapsed_s: float) -> float | None:
    """A counter's growth per second; None where a value is not there, it fell, or no time went by."""
    if before is None or after is None or after < before or elapsed_s <= 0:
        return None
    return (after - before) / elapsed_s


def kept(
    before: Mapping[str, Read], outcomes: Iterable[tuple[str, Reading | ReadFailure]], now_s: float
) -> dict[str, Read]:
    """What to keep for the next run: the present reads, and of sources that gave none now those of before.

    Only of the sources of this run, and of at most MOST_READS of them.
    """
    reads: dict[str, Read] = {}
    for name, outcome in outcomes:
        read = before.get(name) if isinstance(outcome, ReadFailure) else read_of(outcome, now_s)
        if read is not None and len(reads) < MOST_READS:
            reads[name] = read
    return reads


def _restarted(before: Read, now: Read) -> bool:
    pairs = (
        (before.cpu_s, now.cpu_s),
        (before.prompt_tokens, now.prompt_tokens),
        (before.generation_tokens, now.generation_tokens),
    )
    return any(old is not None and new is not None and new < old for old, new in pairs)
