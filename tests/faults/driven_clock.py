"""infscale with a wall clock that a test sets: `python driven_clock.py FILE recommender ...`.

FILE holds one float64: so many seconds `time.time()` is ahead of the machine's. No process can be given a wall clock of
its own otherwise: time namespaces have the monotonic clocks alone (time_namespaces(7)), and setting the machine's needs
root and meets everybody. Nothing in infscale reads the time by another way, so the whole process sees the jump.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path

FORMAT = "d"


class Offset:
    """The file, as the test writes it and the process reads it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), struct.calcsize(FORMAT))

    @classmethod
    def new(cls, path: Path) -> Offset:
        """A file that says 0."""
        path.write_bytes(struct.pack(FORMAT, 0.0))
        return cls(path)

    @property
    def seconds(self) -> float:
        """How far ahead the clock is."""
        found: float = struct.unpack(FORMAT, self._memory[:])[0]
        return found

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._memory[:] = struct.pack(FORMAT, value)

    def close(self) -> None:
        """Let go of the file."""
        self._memory.close()


def main() -> None:
    """Replace the clock before infscale is imported, and run it."""
    offset, real, real_ns = Offset(Path(sys.argv.pop(1))), time.time, time.time_ns
    time.time = lambda: real() + offset.seconds
    time.time_ns = lambda: real_ns() + round(offset.seconds * 1e9)
    from infscale.cli import main as infscale

    infscale()


if __name__ == "__main__":
    main()
