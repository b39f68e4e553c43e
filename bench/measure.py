"""CPU time and memory, of this process and of others. Used by the benchmarks; Linux, since it reads `/proc`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def cpu_s(work: Callable[[], object], repeats: int = 1) -> float:
    """CPU seconds of one call, over so many."""
    before = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - before) / repeats


def least_cpu_s(work: Callable[[], object], runs: int, repeats: int = 1) -> float:
    """The least of some runs of `cpu_s`: what disturbs a run only ever adds to it."""
    return min(cpu_s(work, repeats) for _ in range(runs))


def process_cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Resident memory of a process now, in MB (10^6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
