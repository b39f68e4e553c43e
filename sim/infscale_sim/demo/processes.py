"""The processes of a demo: `infscale` commands of which nothing is left when the demo has ended, however it ended.

They share a process group whose leader, a shell, waits for the end of a pipe that only the demo holds. When the demo
is gone, even by SIGKILL, the shell kills the group. Ctrl-C at the terminal reaches the demo alone, which ends them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import Self

from infscale.errors import SourceError

START_LIMIT_S = 20.0
"""For a process to listen: it needs half a second on an idle machine."""
STOP_LIMIT_S = 2.0
"""From SIGTERM to SIGKILL, at the end of the demo."""

_LISTENING = re.compile(rb"msg=listening address=\S+ port=(\d+)")
_LOG_BYTES = 64 * 1024
_GUARD = "read -r _; kill -KILL 0"


class Process:
    """One `infscale` command.

    Args:
        what: its name for people, as `the sidecar of replica 2`.
        arguments: of `infscale`.
        group: the process group to join.
    """

    def __init__(self, what: str, arguments: tuple[str, ...], group: int) -> None:
        self.what = what
        self._began_s = time.monotonic()
        # What is set for the user's own sidecar is not for this one.
        ours = {name: value for name, value in os.environ.items() if not name.startswith("INFSCALE_")}
        with contextlib.ExitStack() as undo:
            self._log = undo.enter_context(tempfile.TemporaryFile())
            self._popen = subprocess.Popen(  # noqa: S603 (our own command)
                (sys.executable, "-m", "infscale", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=ours,
                process_group=group,
            )
            undo.pop_all()

    @property
    def ended(self) -> bool:
        """Whether it has."""
        return self._popen.poll() is not None

    def port(self) -> int | None:
        """The port that it took first; None while it does not listen yet.

        Raises:
            SourceError: it ended, or does not listen in time.
        """
        self.check_alive()
        if found := _LISTENING.search(self._said(0)):
            return int(found[1])
        if time.monotonic() - self._began_s > START_LIMIT_S:
            raise SourceError(f"{self.what} does not listen after {START_LIMIT_S:.0f} s: {self._last_words()}")
        return None

    def check_alive(self) -> None:
        """Raise SourceError if it ended."""
        status = self._popen.poll()
        if status is not None:
            raise SourceError(f"{self.what} ended with status {status}: {self._last_words()}")

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """End it, by force if it takes longer than STOP_LIMIT_S, and give its log back."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(STOP_LIMIT_S)
                break
        self._log.close()

    def _said(self, start: int) -> bytes:
        return os.pread(self._log.fileno(), _LOG_BYTES, start)

    def _last_words(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        lines = self._said(max(0, size - _LOG_BYTES)).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class Processes:
    """The processes of one demo, as a context: at its end all are gone."""

    def __init__(self) -> None:
        self._running: list[Process] = []
        # Not a session of its own: a process can only join a group of its own session.
        self._guard = subprocess.Popen(  # noqa: S603
            ("/bin/sh", "-c", _GUARD),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._running:
            process.signal(signal.SIGTERM)  # all at once, so that the limit is waited for once
        for process in self._running:
            process.kill()
        assert self._guard.stdin is not None  # noqa: S101 (it was asked for)
        self._guard.stdin.close()
        self._guard.wait()

    def start(self, what: str, *arguments: str) -> Process:
        """Start a command.

        Args:
            what: its name for people.
            arguments: of `infscale`.
        """
        process = Process(what, arguments, self._guard.pid)
        self._running.append(process)
        return process

    def let_go(self, process: Process) -> None:
        """Leave the end of a process to the caller: it is no fault any more."""
        self._running.remove(process)

    def check_alive(self) -> None:
        """Raise SourceError if one ended that should not."""
        for process in self._running:
            process.check_alive()
