"""The Pod-termination mark: set once, by a process of the sidecar's own container, never over the network.

The sidecar's preStop runs `infscale mark-terminating` (`infscale.cli.mark_terminating`), which reaches the sidecar
through a Unix socket. Kubernetes runs that hook when a Pod is deleted, and not when a probe restarts the engine's
container: so the mark tells the two apart. A drain says nothing about it, whoever asks for one.

One command, one line: `mark` answers `marked` at once; `wait` answers the same, and on the same connection a second
line when the engine has left or the grace period leaves no more time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from infscale.errors import SourceError, UsageError

log = logging.getLogger(__name__)

DEFAULT_SOCKET = "/run/infscale/mark.sock"
"""In a Pod the folder is an emptyDir of the sidecar's container alone: it is writable whatever the root file system
is, and no other container sees it."""

MARK, WAIT = "mark", "wait"
MARKED = "marked"

_MAX_CLIENTS = 8
_MAX_LINE_BYTES = 64
_COMMAND_S = 2.0
MAX_WAIT_S = 3600.0
"""The longest grace period that a drain knows."""


class TerminationMark:
    """Whether the Pod is terminating. From any thread; once set it stays, for a deletion is never taken back.

    Attributes:
        settable: whether a socket listens through which it can be set.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._event = threading.Event()
        self._clock = clock
        self._set_at_s = 0.0
        self.settable = False

    def is_set(self) -> bool:
        """Whether the mark is set."""
        return self._event.is_set()

    def set(self) -> None:
        """Set the mark; again is no change."""
        if not self._event.is_set():
            self._set_at_s = self._clock()
            self._event.set()
            log.info("Pod is terminating: its requests count in no demand any more")

    def age_s(self) -> float:
        """Seconds since the mark was set; 0 before."""
        return self._clock() - self._set_at_s if self._event.is_set() else 0.0


class MarkSocket:
    """The Unix socket through which the mark is set; only the sidecar's own user (and root) may open it.

    Args:
        path: of the socket; its folder must be there.
        mark: what is set.
        wait: returns, in one word, why a waiting client may go; called on a thread of its own.

    Raises:
        UsageError: nothing can listen there.
    """

    def __init__(self, path: str, mark: TerminationMark, wait: Callable[[], str]) -> None:
        self.path = path
        self._mark, self._wait = mark, wait
        self._clients = threading.BoundedSemaphore(_MAX_CLIENTS)
        self._socket = _listen(path)
        self._inode = os.stat(path).st_ino
        mark.settable = True
        self._thread = threading.Thread(target=self._accept, name="mark", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self, drain_s: float) -> bool:
        """Close the socket and take its file away, unless it is another's by now. Waiting clients see its end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                os.unlink(self.path)
        if self._thread.ident is not None:
            self._thread.join(drain_s)
        return not self._thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            if not self._clients.acquire(blocking=False):
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), name="mark-client", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            # Suppressed: a client that is gone, or says nothing.
            with client, client.makefile("rb") as lines, contextlib.suppress(OSError):
                client.settimeout(_COMMAND_S)
                command = _line(lines)
                if command not in (MARK, WAIT):
                    client.sendall(f"expected {MARK} or {WAIT}\n".encode())
                    return
                self._mark.set()
                client.sendall(f"{MARKED}\n".encode())
                if command == WAIT:
                    client.sendall(f"{self._wait()}\n".encode())
        except Exception:
            log.exception("mark failed")
        finally:
            self._clients.release()


def open_socket(path: str | None, mark: TerminationMark, wait: Callable[[], str]) -> MarkSocket | None:
    """The socket of `--mark.socket`; without the flag the default one, if its folder is there and takes it.

    Raises:
        UsageError: nothing can listen on the path that was given.
    """
    if path is not None:
        return MarkSocket(path, mark, wait)
    if not os.path.isdir(os.path.dirname(DEFAULT_SOCKET)):
        return None
    try:
        return MarkSocket(DEFAULT_SOCKET, mark, wait)
    except UsageError as error:
        log.warning("no Pod-termination mark", extra={"reason": str(error)})
        return None


def tell(path: str, *, wait: bool = False, on_marked: Callable[[], None] = lambda: None) -> str:
    """Set the mark of the sidecar that listens on `path`.

    Args:
        path: of its socket.
        wait: come back only when the engine has left or the grace period leaves no more time.
        on_marked: called once the mark is set.

    Returns:
        `marked`, or with `wait` the word with which the sidecar let go.

    Raises:
        SourceError: no sidecar listens there, or it did not take the mark.
    """
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as lines:
        client.settimeout(_COMMAND_S)
        try:
            client.connect(path)
            client.sendall(f"{WAIT if wait else MARK}\n".encode())
            answer = _line(lines)
        except (OSError, ValueError) as error:
            raise SourceError(f"{path}: {_why(error)}: expected the socket of a running sidecar") from None
        if answer != MARKED:
            raise SourceError(f"{path}: answered {answer[:40]!r}: expected {MARKED!r}, from a sidecar of infscale")
        on_marked()
        if not wait:
            return answer
        client.settimeout(MAX_WAIT_S)
        try:
            return _line(lines) or "sidecar ended"
        except OSError as error:
            raise SourceError(f"{path}: {_why(error)} while it waited for the engine") from None


def _line(lines: BinaryIO) -> str:
    """The next line, which is short; what came before the connection's end if there is none."""
    return lines.readline(_MAX_LINE_BYTES).decode("ascii", "replace").strip()


def _listen(path: str) -> socket.socket:
    """Bind and listen; a socket that a dead process left is taken away, a living one's is not."""
    with contextlib.ExitStack() as undo:
        sock = undo.enter_context(socket.socket(socket.AF_UNIX))
        try:
            _clear(path)
            os.fchmod(sock.fileno(), 0o600)  # before there is a file: bind gives it this mode, less the umask
            sock.bind(path)
            sock.listen(_MAX_CLIENTS)
        except (OSError, ValueError) as error:
            raise UsageError(f"--mark.socket: cannot listen on {path}: {_why(error)}") from None
        undo.pop_all()
        return sock


def _clear(path: str) -> None:
    """Take away the socket of a process that is gone.

    Raises:
        OSError: somebody listens there, or it is no socket.
    """
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise OSError("a file that is no socket is there")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_COMMAND_S)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError("another sidecar listens there; give each its own path")


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return str(error)
