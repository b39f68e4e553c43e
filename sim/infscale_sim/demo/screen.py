"""Lines on standard output, for both demos: coloured on a terminal that can, plain elsewhere."""

from __future__ import annotations

import os
import signal
import sys

from infscale_sim.demo.stop import Stopped

BAR_WIDTH = 14

GREEN, YELLOW, RED, CYAN = "32", "33", "31", "36"


class Screen:
    """Where a demo prints.

    Args:
        most: the value of a full bar.
    """

    def __init__(self, most: float) -> None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
        self._coloured = sys.stdout.isatty() and not plain
        self._most = max(1.0, most)

    def say(self, text: str) -> None:
        """Print a line.

        Raises:
            Stopped: nobody reads it.
        """
        try:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python itself flushes at its end
            raise Stopped(signal.SIGPIPE) from None

    def bar(self, value: float | None) -> str:
        """A number and a bar, of one width."""
        length = 0 if value is None else min(BAR_WIDTH, round(value * BAR_WIDTH / self._most))
        return f"{count(value):>4} {'#' * length:<{BAR_WIDTH}}"

    def paint(self, colour: str, text: str) -> str:
        """Text in one of the colours above."""
        return f"\033[{colour}m{text}\033[0m" if self._coloured else text


def count(value: float | None) -> str:
    """A number; a dash for one that is not known."""
    return "-" if value is None else f"{value:g}"


def clock(elapsed_s: float) -> str:
    """Minutes and seconds."""
    return f"{int(elapsed_s) // 60:>2}:{int(elapsed_s) % 60:02}"
