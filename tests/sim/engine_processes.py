"""The stand-in engine and the load generator as their users run them: processes of their own, over real sockets."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import requests

LONG_S = 40.0
"""A wait that a busy machine does not exceed."""

_LISTENING = re.compile(r"msg=listening address=\S+ port=(\d+)")


def command_line(name: str, *arguments: str) -> list[str]:
    """What starts a command."""
    return [sys.executable, "-m", "infscale", name, *arguments]


def environment(**more: str) -> dict[str, str]:
    """The environment of a process, with our path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


class EngineProcess:
    """A running `infscale sim-engine`."""

    def __init__(self, *arguments: str, most_files: int | None = None) -> None:
        limited = [] if most_files is None else ["bash", "-c", f'ulimit -n {most_files}; exec "$@"', "bash"]
        self.popen = subprocess.Popen(
            [*limited, *command_line("sim-engine", "--port", "0", *arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.log: list[str] = []
        self.port = 0
        self.session = requests.Session()
        self.session.trust_env = False
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._up.wait(LONG_S)
        if not self.port:
            self.close()
            raise AssertionError("the engine did not start:\n" + "".join(self.log))

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.log.append(line)
            if found := _LISTENING.search(line):
                self.port = int(found[1])
                self._up.set()
        self._up.set()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **options: object) -> requests.Response:
        """GET a path."""
        options.setdefault("timeout", LONG_S)
        return self.session.get(self.url + path, **options)  # type: ignore[arg-type]

    def post(self, path: str, value: object, **options: object) -> requests.Response:
        """POST JSON to a path."""
        options.setdefault("timeout", LONG_S)
        return self.session.post(self.url + path, json=value, **options)  # type: ignore[arg-type]

    def faults(self, *names: str) -> None:
        """Set the faults."""
        assert self.post("/fault", {"faults": names}).status_code == 200

    def value(self, name: str) -> float:
        """The first sample of a name on the metrics page."""
        found = re.search(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", self.get("/metrics").text, re.MULTILINE)
        assert found, name
        return float(found[1])

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.popen.send_signal(number)

    def ended(self) -> int:
        """Wait for the exit code."""
        return self.popen.wait(LONG_S)

    def close(self) -> None:
        """Kill it if it still runs, and give everything back."""
        self.popen.kill()
        self.popen.wait()
        self._reader.join(LONG_S)
        assert self.popen.stderr is not None
        self.popen.stderr.close()
        self.session.close()


@contextlib.contextmanager
def engine(*arguments: str, most_files: int | None = None) -> Iterator[EngineProcess]:
    """An engine for the time of a test."""
    process = EngineProcess(*arguments, most_files=most_files)
    try:
        yield process
    finally:
        process.close()


def eventually(check: Callable[[], bool]) -> bool:
    """Whether it becomes true within a time that a busy machine does not exceed."""
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return False
