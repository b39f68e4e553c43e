"""Where connections wait for their clients: one thread that accepts, watches sockets and keeps deadlines.

`server.Listener` has one. A connection is either parked here or in the hands of one worker. Nothing here waits for a
client, and only this thread touches the selector; workers hand connections back through a queue and a wake-up byte.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from infscale.web.connection import Connection, Timeouts

log = logging.getLogger(__name__)

_ACCEPTS_AT_ONCE = 64
_COMPLAINT_EVERY_S = 10.0
MAX_HELD_BYTES = 8 << 20
"""Half-sent requests and half-read answers of all waiting clients together; over it, who holds most is closed."""


class Parking:
    """The waiting connections of one listening socket.

    Args:
        sock: listens, non-blocking; closed by `stop`.
        submit: called with each connection whose client made it ready; it is not parked any more then.
        timeouts: how long clients may take.
        max_connections: over it, the connection that has waited longest is closed, an idle one first.
        name: of the thread.
    """

    def __init__(
        self,
        sock: socket.socket,
        submit: Callable[[Connection], None],
        timeouts: Timeouts,
        max_connections: int,
        name: str,
    ) -> None:
        self._listening: socket.socket | None = sock
        self._submit = submit
        self._timeouts = timeouts
        self._max_connections = max_connections
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._open: set[Connection] = set()
        self._parked: dict[Connection, int] = {}  # with the bytes that each holds, the longest waiting first
        self._held_bytes = 0
        self._handed_back: deque[tuple[Connection, int]] = deque()
        self._next_deadline = math.inf
        self._complained_at = -math.inf
        self._drain_until: float | None = None
        self._done = threading.Event()
        for waker in (self._wake_reader, self._wake_writer):
            waker.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def stopping(self) -> bool:
        """Whether `stop` has been called: every answer from here ends its connection."""
        return self._drain_until is not None

    def start(self) -> None:
        """Begin to accept."""
        self._thread.start()

    def park(self, connection: Connection, event: int) -> None:
        """Take back a connection until its socket is ready for `event`. Any thread."""
        self._handed_back.append((connection, event))
        self._wake()
        if self._done.is_set():
            self._close_handed_back()

    def forget(self, connection: Connection) -> None:
        """Close a connection that a worker has. Any thread."""
        connection.close()
        self._open.discard(connection)
        if self.stopping:
            self._wake()

    def stop(self, drain_s: float) -> bool:
        """Accept no more, close what is idle, let what is under way finish; True if all of it did within `drain_s`."""
        if self._drain_until is None:
            self._drain_until = time.monotonic() + drain_s
        if self._thread.ident is None:
            self._thread.start()  # never started: it only closes what there is
        self._wake()
        self._done.wait()
        return not self._open

    def _run(self) -> None:
        while True:
            self._dispatch(self._selector.select(self._pause_s()))
            self._take_back()
            self._expire()
            if self._drain_until is not None and self._drained(self._drain_until):
                break
        for connection in list(self._parked):
            self._drop(connection)
        self._done.set()
        self._close_handed_back()
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _pause_s(self) -> float | None:
        """Return how long nothing has to be done here, seconds; None for as long as nothing happens."""
        until = min(self._next_deadline, math.inf if self._drain_until is None else self._drain_until)
        return None if until == math.inf else max(0.0, until - time.monotonic())

    def _dispatch(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, _ in events:
            if key.fileobj is self._listening:
                self._accept(_ACCEPTS_AT_ONCE)
            elif key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_reader.recv(4096)
            elif key.data in self._parked:  # accepting may have dropped it meanwhile
                self._unpark(key.data)
                self._submit(key.data)

    def _accept(self, at_most: int) -> None:
        for _ in range(at_most):
            if self._listening is None:
                return
            try:
                sock, address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._cannot_accept(error)
                return
            if len(self._open) >= self._max_connections and not self._make_room():
                sock.close()
                continue
            sock.setblocking(False)
            with contextlib.suppress(OSError):  # the client may be gone already
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, address[0].removeprefix("::ffff:"), self._timeouts)
            self._open.add(connection)
            self._add(connection, selectors.EVENT_READ)

    def _cannot_accept(self, error: OSError) -> None:
        """Out of descriptors or memory: close the longest waiting, else leave the queue to the kernel for a moment."""
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            return  # this one client is gone
        if time.monotonic() - self._complained_at > _COMPLAINT_EVERY_S:
            self._complained_at = time.monotonic()
            log.warning("cannot accept a connection", extra={"reason": error.strerror, "open": len(self._open)})
        if not self._make_room():
            time.sleep(0.05)

    def _make_room(self) -> bool:
        """Close the parked connection that has waited longest, an idle one if there is any."""
        oldest = next((c for c in self._parked if c.idle), next(iter(self._parked), None))
        if oldest is not None:
            self._drop(oldest)
        return oldest is not None

    def _add(self, connection: Connection, event: int) -> None:
        self._parked[connection] = held = connection.held_bytes
        self._held_bytes += held
        self._selector.register(connection.fd, event, connection)
        self._next_deadline = min(self._next_deadline, connection.deadline)
        while self._held_bytes > MAX_HELD_BYTES:
            self._drop(max(self._parked, key=lambda parked: self._parked[parked]))

    def _unpark(self, connection: Connection) -> None:
        self._held_bytes -= self._parked.pop(connection)
        self._selector.unregister(connection.fd)

    def _drop(self, connection: Connection) -> None:
        self._unpark(connection)
        self.forget(connection)

    def _take_back(self) -> None:
        while self._handed_back:
            self._add(*self._handed_back.popleft())

    def _expire(self) -> None:
        now = time.monotonic()
        if now < self._next_deadline:
            return
        for connection in [c for c in self._parked if c.deadline <= now]:
            self._unpark(connection)
            connection.expire()
            self.forget(connection)
        self._next_deadline = min((c.deadline for c in self._parked), default=math.inf)

    def _drained(self, until: float) -> bool:
        """Take the next step of a stop; True when there is nothing left, or no time."""
        if self._listening is not None:
            self._accept(self._max_connections)  # those that the kernel has accepted are connected, for their clients
            self._selector.unregister(self._listening)
            self._listening.close()
            self._listening = None
        self._dispatch(self._selector.select(0))  # a request that has come is under way
        for connection in [c for c in self._parked if c.idle]:
            self._drop(connection)
        return not self._open or time.monotonic() >= until

    def _close_handed_back(self) -> None:
        """After the end: close what workers still bring."""
        with contextlib.suppress(IndexError):
            while True:
                self.forget(self._handed_back.popleft()[0])

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake; closed: it has ended
            self._wake_writer.send(b"\0")
