"""The demo as its users run it: a process of its own, on a free port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

LONG_S = 40.0
"""A wait that a busy machine does not exceed."""


@contextlib.contextmanager
def demo(*arguments: str, stdout: int = subprocess.PIPE, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The demo as a process, on a free port unless the arguments name one."""
    if "--port" not in arguments:
        with socket.create_server(("127.0.0.1", 0)) as free:
            arguments = (*arguments, "--port", str(free.getsockname()[1]))
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests run under nohup, and inherited
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "infscale", "demo", *arguments],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        )
    finally:
        signal.signal(signal.SIGHUP, former)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], *, within_s: float = LONG_S) -> tuple[int, str, str]:
    """Wait for the end: status, output, errors."""
    out, err = process.communicate(timeout=within_s)
    return process.returncode, out or "", err


def port_of(process: subprocess.Popen[str]) -> int:
    """The port that the demo was given."""
    assert isinstance(process.args, list)
    return int(str(process.args[process.args.index("--port") + 1]))


def is_gone(port: int) -> bool:
    """Whether nobody listens on a port any more."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def children_of(pid: int) -> list[int]:
    """The child processes of a process."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [int(child) for child, parent in (line.split() for line in listed.splitlines()) if int(parent) == pid]


def lives(pid: int) -> bool:
    """Whether there is such a process; one that nobody has waited for yet does not count."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(shown.strip()) and not shown.startswith("Z")


def told_of_taken_port(port: int) -> str:
    """The line that tells of a port that somebody else has."""
    return (
        f"infscale: --port: cannot listen on 127.0.0.1:{port}: the port is taken; "
        "stop what listens there or choose another port\n"
    )
