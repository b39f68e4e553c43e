"""Threads that work through a queue: started when needed, up to a limit, daemons. Used by `server.Listener`.

`concurrent.futures` would do, but its threads are joined when the interpreter ends, so a handler that hangs would keep
a process alive that was told to stop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Workers(Generic[Item]):
    """A pool that calls `work(item)` for each item submitted; `work` must not raise."""

    def __init__(self, work: Callable[[Item], None], limit: int, name: str) -> None:
        self._work = work
        self._limit = limit
        self._name = name
        self._changed = threading.Condition()
        self._queue: deque[Item] = deque()
        self._idle = 0
        self._started = 0
        self._closed = False

    @property
    def backlog(self) -> bool:
        """Whether items wait for a worker."""
        return bool(self._queue)

    def submit(self, item: Item) -> None:
        """Queue an item; a thread is started if the idle ones do not suffice and the limit allows."""
        with self._changed:
            self._queue.append(item)
            if len(self._queue) <= self._idle or self._started >= self._limit:
                self._changed.notify()
                return
            self._started += 1
            self._idle += 1  # the new thread counts as idle until it takes its first item
            number = self._started
        threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()

    def close(self) -> None:
        """Let idle threads end, and busy ones after their item."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                self._idle -= 1
                item = self._queue.popleft()
            self._work(item)
            with self._changed:
                self._idle += 1
