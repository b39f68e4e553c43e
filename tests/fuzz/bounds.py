"""What one input may cost: CPU time and memory. `measured` runs a target once and says what it took.

CPU time and not the clock's, so that a busy machine fails nothing.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

CPU_S = 0.1
"""The bound of one input."""

BUSY = 10
"""So many times the bound fails a test: caches are shared with whoever else runs, and the machine may be slow."""

MEMORY_BYTES = 24 << 20
"""At the peak, for an input of at most 64 KiB: three times the largest page that is read (8 MiB, a gzip bomb's)."""


@dataclass(frozen=True)
class Cost:
    """What one input took; `peak_bytes` is 0 where memory was not traced."""

    cpu_s: float
    peak_bytes: int = 0


def cpu_of(run: Callable[[bytes], object], data: bytes) -> Cost:
    """The CPU time of the process for one input; a second time if it was long, since the first may load modules."""
    cost = _cpu_s(run, data)
    return Cost(min(cost, _cpu_s(run, data)) if cost > CPU_S else cost)


def memory_of(run: Callable[[bytes], object], data: bytes) -> Cost:
    """The memory at the peak over what there was before, on a second run: the first fills caches."""
    run(data)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        run(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return Cost(0.0, peak - before)


def _cpu_s(run: Callable[[bytes], object], data: bytes) -> float:
    began_s = time.process_time()
    run(data)
    return time.process_time() - began_s
