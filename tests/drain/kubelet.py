"""What the kubelet does to a container whose Pod is deleted: preStop, SIGTERM, and SIGKILL when the grace is over.

As in Kubernetes (`killContainer` of pkg/kubelet/kuberuntime): the hook's time comes out of the grace period, a hook
that fails or takes too long changes nothing, and SIGTERM leaves at least 2 s.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_S = 2.0  # minimumGracePeriodInSeconds


@dataclass(frozen=True)
class Hooked:
    """What a preStop command did.

    Attributes:
        status: its exit status; negative where a signal ended it.
        seconds: how long it took.
        out: its standard output.
        err: its standard error.
    """

    status: int
    seconds: float
    out: str
    err: str


@dataclass(frozen=True)
class Removal:
    """How a container ended.

    Attributes:
        hook: what the preStop command did; None without one.
        seconds: from the delete to the container's end.
        killed: it needed SIGKILL.
    """

    hook: Hooked | None
    seconds: float
    killed: bool


def run_hook(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Hooked:
    """Run a command as a preStop hook: no standard input, and its whole group is killed when its time is over."""
    began = time.monotonic()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env=dict(env),
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        seconds = time.monotonic() - began
    return Hooked(process.returncode, seconds, out, err)


def remove(
    engine: subprocess.Popen[str], command: Sequence[str] | None, grace_s: float, env: Mapping[str, str]
) -> Removal:
    """Delete the Pod of an engine."""
    began = time.monotonic()
    hook = run_hook(command, env, grace_s) if command else None
    engine.terminate()
    left_s = max(LEAST_S, grace_s - (time.monotonic() - began))
    with contextlib.suppress(subprocess.TimeoutExpired):
        engine.wait(left_s)
    killed = engine.poll() is None
    if killed:
        engine.kill()
        engine.wait()
    return Removal(hook, time.monotonic() - began, killed)
