"""The process from its first signal to its exit code; the sidecar and the recommender run inside it.

SIGTERM: not ready at once (`/-/ready` answers 503), serve on for a delay (until every load balancer and Prometheus
knows), stop accepting, let what is under way finish within a bound, exit 0. SIGINT: the same without the delay, for a
person at a terminal. A second signal of either kind exits at once, with 128 + its number.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Protocol

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_DRAINED = 0
"""What the stopping thread says when it is done, where signals say their number."""


class Stoppable(Protocol):
    """A listener, or anything else that is stopped with a bound."""

    def stop(self, drain_s: float) -> bool:
        """Stop; True when all that was under way finished within `drain_s` seconds."""


class Lifecycle:
    """Waits for the end of the process and orders it. Used once, on the main thread, as signals demand.

    Signals count from `install` on: a SIGTERM that comes while the rest of the process is being set up is not lost.
    """

    def __init__(self) -> None:
        # The kernel may give a signal to any thread. Python's handlers run on the main one, which a lock (as in
        # threading.Event.wait) would keep asleep then; a byte on a socket wakes it.
        self._events, self._teller = socket.socketpair()
        self._teller.setblocking(False)
        self._former_fd = -1
        self._former: dict[signal.Signals, object] = {}
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether the process was told to end; `/-/ready` then answers 503."""
        return self._stopping

    def install(self) -> None:
        """Take over SIGTERM and SIGINT."""
        if not self._former:
            self._former_fd = signal.set_wakeup_fd(self._teller.fileno(), warn_on_full_buffer=False)
            self._former = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}

    def stop(self) -> None:
        """Ask for the end from within the process, as SIGINT does. Any thread."""
        self._stopping = True
        self._tell(signal.SIGINT)

    def run(self, listeners: Sequence[Stoppable], *, delay_s: float, drain_s: float) -> int:
        """Wait for a signal, stop the listeners, return the exit code; former signal handlers come back.

        Args:
            listeners: started by the caller; stopped all at once.
            delay_s: how long to serve on after SIGTERM.
            drain_s: how long what is under way may take from then.
        """
        self.install()
        try:
            return self._run(listeners, delay_s, drain_s)
        finally:
            for number, handler in self._former.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
            signal.set_wakeup_fd(self._former_fd)
            self._events.close()
            self._teller.close()

    def _run(self, listeners: Sequence[Stoppable], delay_s: float, drain_s: float) -> int:
        first = self._next_event(None)
        delay_s = delay_s if first == signal.SIGTERM else 0.0
        log.info("stopping", extra={"signal": signal.Signals(first).name, "delay_s": delay_s, "drain_s": drain_s})
        with contextlib.suppress(TimeoutError):
            return _at_once(self._next_event(delay_s))
        threading.Thread(target=self._stop_all, args=(listeners, drain_s), name="stop", daemon=True).start()
        event = self._next_event(None)
        return 0 if event == _DRAINED else _at_once(event)

    def _next_event(self, within_s: float | None) -> int:
        """Return the number of the next signal, or _DRAINED; TimeoutError when none comes in time."""
        end_s = None if within_s is None else time.monotonic() + within_s
        while True:
            # A timeout of exactly 0 would make the socket non-blocking.
            self._events.settimeout(None if end_s is None else max(end_s - time.monotonic(), 0.001))
            if (number := self._events.recv(1)[0]) in (*_SIGNALS, _DRAINED):
                return number  # else another handler's signal (SIGHUP), which gives no further time

    def _stop_all(self, listeners: Sequence[Stoppable], drain_s: float) -> None:
        """Stop the listeners side by side, so that the bound holds for all of them together."""
        unfinished: list[Stoppable] = []

        def stop(listener: Stoppable) -> None:
            """Stop one, and remember it if requests were still under way."""
            if not listener.stop(drain_s):
                unfinished.append(listener)

        threads = [threading.Thread(target=stop, args=(listener,), daemon=True) for listener in listeners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if unfinished:
            log.warning("requests were still under way at the end", extra={"listeners": len(unfinished)})
        self._tell(_DRAINED)

    def _tell(self, number: int) -> None:
        with contextlib.suppress(OSError):  # full: there is news enough; closed: the end has come already
            self._teller.send(bytes([number]))

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # The signal's number stands in the socket already (signal.set_wakeup_fd).
        self._stopping = True


def _at_once(number: int) -> int:
    log.warning("stopping at once", extra={"signal": signal.Signals(number).name})
    return 128 + number
