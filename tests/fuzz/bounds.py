"""What one input may cost: CPU time, time on the clock, and memory.

A machine that is busy with something else makes one run slow, not each of several: the quickest of TRIES counts.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

MOST_S = 0.1
"""Of CPU time, and of time on the clock: what waits for something costs no CPU and is a hang all the same."""

TRIES = 6

INSTRUMENTED = 10
"""A fuzzer that counts every branch makes its target so many times slower."""

MEMORY_BYTES = 24 << 20
"""At the peak, for an input of at most 64 KiB: three times the largest page that is read (8 MiB, a gzip bomb's)."""


@dataclass(frozen=True)
class Cost:
    """What one input took: of the CPU (all threads), and on the clock."""

    cpu_s: float
    clock_s: float


def cost_of(run: Callable[[bytes], object], data: bytes, most_s: float = MOST_S) -> Cost:
    """What one input takes; again if it was long, since the first run may load modules and the machine be busy."""
    best = _cost(run, data)
    for _ in range(TRIES - 1):
        if best.cpu_s < most_s and best.clock_s < most_s:
            break
        again = _cost(run, data)
        best = Cost(min(best.cpu_s, again.cpu_s), min(best.clock_s, again.clock_s))
    return best


def peak_of(run: Callable[[bytes], object], data: bytes) -> int:
    """The bytes at the peak over what there was before. On a second run: the first fills caches."""
    run(data)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        run(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


def _cost(run: Callable[[bytes], object], data: bytes) -> Cost:
    began_s, began_clock_s = time.process_time(), time.perf_counter()
    run(data)
    return Cost(time.process_time() - began_s, time.perf_counter() - began_clock_s)
