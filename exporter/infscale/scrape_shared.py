"""One read at a time, its answer shared: what keeps many scrapers from becoming many reads of one engine.

The sidecar shares what it read of an engine: two Prometheus servers, the landing page and JSON may ask at once.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from infscale.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class _Flight(Generic[T]):
    """A read under way; `done` is set once `value` or `error` is there."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: T | None = None
        self.error: BaseException | None = None


class SharedRead(Generic[T]):
    """At most one call of `read` at a time; callers that come meanwhile share its answer, later ones too.

    Thread-safe. The caller that starts a read makes it in its own thread, so `read` has to bound its time itself.

    Args:
        read: makes one read; expected failures are values, which are shared like any other.
        clock: monotonic seconds.
    """

    def __init__(self, read: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._flight: _Flight[T] | None = None
        self._last: tuple[float, T] | None = None

    def get(self, max_age_s: float, timeout_s: float) -> T:
        """The shared answer: a young one, or the one of the read under way, or a new one.

        Args:
            max_age_s: an answer younger than this, in seconds since its read ended, is given again; 0 asks for a read
                that ends after the call.
            timeout_s: how long to wait for a read that another caller makes; then the last answer is given, whatever
                its age.

        Raises:
            SourceError: the other caller's read raised, or did not end in time while no answer is known. An exception
                of the caller's own read passes through.
        """
        with self._lock:
            flight = self._flight
            if flight is None:
                if self._last is not None and self._clock() - self._last[0] < max_age_s:
                    return self._last[1]
                mine: _Flight[T] = _Flight()
                self._flight = mine
        if flight is None:
            return self._fly(mine)
        if flight.done.wait(timeout_s):
            if flight.error is not None:
                raise SourceError(f"the read that was shared failed: {flight.error}") from flight.error
            return cast(T, flight.value)
        with self._lock:
            if self._last is not None:
                return self._last[1]
        raise SourceError(f"no answer within {timeout_s:g} s: the read that was shared is still under way")

    def _fly(self, flight: _Flight[T]) -> T:
        try:
            value = self._read()
        except BaseException as error:
            flight.error = error
            with self._lock:
                self._flight = None
            raise
        else:
            flight.value = value
            with self._lock:
                self._last = (self._clock(), value)
                self._flight = None
            return value
        finally:
            flight.done.set()
