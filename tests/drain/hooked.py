"""The installed hook for tests: written by the command itself, and run as a container would run it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from infscale.cli import run
from tests.drain.kubelet import Hooked, run_hook

LONG_S = 50.0
"""Longer than any hook with a grace period of 15 s takes on a busy machine."""

NOWHERE = "http://127.0.0.1:9"
"""An address at which nobody listens (discard)."""


def install(folder: Path, *options: str) -> Path:
    """Run `infscale install-hook`; the launcher."""
    assert run(["install-hook", str(folder), *options]) == 0
    return folder / "infscale-drain"


def tools(folder: Path, *names: str, **scripts: str) -> dict[str, str]:
    """An environment whose PATH has these programs of the machine, and scripts of this text, and nothing else."""
    folder.mkdir(parents=True)
    for name in names:
        found = sys.executable if name.startswith("python") else shutil.which(name)
        assert found, f"this machine has no {name}"
        (folder / name).symlink_to(found)
    for name, text in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return {"PATH": str(folder)}


def shells() -> dict[str, list[str]]:
    """The POSIX shells of this machine; `sh` is there in any case."""
    known = {"sh": ["sh"], "dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
    found = {name: [shutil.which(words[0]) or "", *words[1:]] for name, words in known.items()}
    return {name: words for name, words in found.items() if words[0]}


SHELLS = shells()


class SideBySide:
    """Hooks that run at the same time: each waits for seconds, and all together take no longer than the longest."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(64)
        self._runs: dict[str, Future[Hooked]] = {}

    def start(self, name: str, command: Sequence[str | Path], env: dict[str, str] | None = None) -> None:
        """Begin one."""
        words = [str(word) for word in command]
        self._runs[name] = self._pool.submit(run_hook, words, env or dict(os.environ), LONG_S)

    def __getitem__(self, name: str) -> Hooked:
        """What came of it."""
        return self._runs[name].result(LONG_S + 10)

    def close(self) -> None:
        """Wait for all."""
        self._pool.shutdown()
