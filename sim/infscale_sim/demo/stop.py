"""How a demo ends before its time: Ctrl-C, SIGTERM, a terminal that goes away, or a reader that does."""

from __future__ import annotations

import signal
from types import FrameType


class Stopped(Exception):
    """The demo is to end: a signal came, or nobody reads its output any more.

    Attributes:
        status: the exit status; 0 for Ctrl-C, which is the usual way to leave a demo.
    """

    def __init__(self, number: int) -> None:
        self.status = 0 if number == signal.SIGINT else 128 + number
        super().__init__(signal.Signals(number).name)


class Signals:
    """Remembers Ctrl-C, SIGTERM and the end of the terminal; the demo asks, so that nothing is cut short halfway."""

    def __init__(self) -> None:
        self._received = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # ignored: nohup
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received = number

    def check(self) -> None:
        """Raise Stopped once one of them came."""
        if self._received:
            raise Stopped(self._received)
