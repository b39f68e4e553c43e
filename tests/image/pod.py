"""Runs a Pod's containers from the image's own root file system, as a container runtime would: no kubelet, no registry.

One network namespace to a Pod; to a container its own mounts and processes, a read-only root, the user 65532, no
capabilities and no new privileges. The containers come from a Pod's spec, so that what a manifest says is what runs:
command, arguments, environment, emptyDir volumes and exec hooks. Left out are limits, seccomp and probes, which are the
runtime's and kubelet's. Needs root, `unshare`, `nsenter`, `setpriv` and `chroot`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

LONG_S = 40.0
"""A wait that a busy machine does not exceed."""

_USER = 65532
_CONTAINER = Path(__file__).with_name("container.sh")

# Holds the Pod's network namespace, with its loopback device up, until its standard input ends.
_PAUSE = """
import fcntl, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 0x41))
print("up", flush=True)
sys.stdin.read()
"""
_ASK = """
import sys, urllib.error, urllib.request
url, method, body, seconds = sys.argv[1:]
request = urllib.request.Request(url, data=body.encode() or None, method=method)
request.add_header("Content-Type", "application/json")
try:
    answer = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=float(seconds))
except urllib.error.HTTPError as error:
    answer = error
sys.stdout.write(f"{answer.status}\\n{answer.read().decode()}")
"""


@dataclass(frozen=True)
class Image:
    """An image whose root file system is there.

    Attributes:
        root: the folder; volumes' mount points are made in it.
        base_root: its base's.
        config: what the image says of itself (`Env`, `Entrypoint`, `User`, ...).
    """

    root: Path
    base_root: Path
    config: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that every container of the image has."""
        return dict(line.split("=", 1) for line in self.config["Env"])


class Pod:
    """A Pod whose containers a test starts and ends one by one."""

    def __init__(self, image: Image, folder: Path, spec: Mapping[str, Any]) -> None:
        self.image = image
        self.spec = spec
        self._folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._logs: dict[str, list[str]] = {}
        self._readers: list[threading.Thread] = []
        for volume in spec.get("volumes", ()):
            (folder / volume["name"]).mkdir()
            (folder / volume["name"]).chmod(0o777)  # as kubelet makes an emptyDir
        self._pause = subprocess.Popen(
            ["unshare", "--net", "--", sys.executable, "-c", _PAUSE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._pause.stdout is not None
        assert self._pause.stdout.readline() == "up\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            with contextlib.suppress(IndexError, FileNotFoundError, ProcessLookupError):  # it ended by itself
                os.kill(self._first(process), signal.SIGKILL)  # and with it all of its namespace
            process.wait()
        self._pause.communicate("")
        for reader in self._readers:
            reader.join()

    def container(self, name: str) -> dict[str, Any]:
        """The spec of a container, or of an init container."""
        both = [*self.spec.get("initContainers", ()), *self.spec["containers"]]
        return next(container for container in both if container["name"] == name)

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run a container to its end, as an init container."""
        return subprocess.run(
            self._enter(self.container(name)), capture_output=True, text=True, timeout=LONG_S, check=False
        )

    def start(self, name: str) -> None:
        """Start a container; what it writes is kept, see `log`."""
        read, write = os.pipe()
        os.fchown(write, _USER, _USER)  # as runtimes do, so that the user can open its /proc/1/fd/1
        self._running[name] = subprocess.Popen(
            self._enter(self.container(name)), stdin=subprocess.DEVNULL, stdout=write, stderr=write, text=True
        )
        os.close(write)
        self._logs[name] = []
        self._readers.append(threading.Thread(target=_read, args=(read, self._logs[name])))
        self._readers[-1].start()

    def log(self, name: str) -> str:
        """What a container wrote so far."""
        return "".join(self._logs[name])

    def execute(self, name: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in a container that runs, as kubelet runs an exec hook."""
        return subprocess.run(
            [
                *(
                    "nsenter",
                    f"--target={self._first(self._running[name])}",
                    "--mount",
                    "--pid",
                    "--net",
                    "--ipc",
                    "--root",
                    "--wd",
                ),
                *("--", "setpriv", "--no-new-privs", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"),
                *("env", "-i", *self._variables(self.container(name)), *command),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def stop(self, name: str, timeout_s: float = LONG_S) -> int:
        """SIGTERM to a container's first process; its exit status."""
        process = self._running.pop(name)
        os.kill(self._first(process), signal.SIGTERM)
        return process.wait(timeout_s)

    def ask(self, port: int, path: str, *, method: str = "GET", body: str = "", timeout_s: float = 20) -> Answer:
        """One HTTP request from inside the Pod's network."""
        done = subprocess.run(
            [
                *self._net(),
                *(sys.executable, "-c", _ASK, f"http://127.0.0.1:{port}{path}", method, body, str(timeout_s)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        status, _, text = done.stdout.partition("\n")
        return Answer(int(status or 0), text)

    def wait_for(self, port: int, path: str) -> None:
        """Until a container answers 200 there."""
        end = time.monotonic() + LONG_S
        while (answer := self.ask(port, path)).status != 200:
            assert time.monotonic() < end, f"port {port}{path}: {answer}; " + " ".join(map(self.log, self._running))
            time.sleep(0.2)

    def _net(self) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._pause.pid}/ns/net", "--"]

    @staticmethod
    def _first(process: subprocess.Popen[str]) -> int:
        """The process number, out here, of a container's first process."""
        return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])

    def _enter(self, container: Mapping[str, Any]) -> list[str]:
        """The command that starts a container."""
        mounts = []
        for mount in container.get("volumeMounts", ()):
            (self.image.root / mount["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
            mode = "ro" if mount.get("readOnly") else "rw"
            mounts.append(f"{self._folder / mount['name']}:{mount['mountPath']}:{mode}")
        command = container.get("command") or self.image.config["Entrypoint"]
        return [
            *self._net(),
            *("unshare", "--mount", "--pid", "--ipc", "--fork", "--"),
            *("sh", str(_CONTAINER), str(self.image.root), *mounts, "--"),
            *("/usr/bin/env", "-i", *self._variables(container), *command, *container.get("args", ())),
        ]

    def _variables(self, container: Mapping[str, Any]) -> list[str]:
        """The environment, as words NAME=VALUE; what the downward API would tell is made up."""
        told = {one["name"]: one.get("value", f"made-up-{one['name'].lower()}") for one in container.get("env", ())}
        return [f"{name}={value}" for name, value in {**self.image.environment, **told}.items()]


def _read(pipe: int, into: list[str]) -> None:
    """Keep what a container writes, until it and all it started have ended."""
    with open(pipe, encoding="utf-8") as stream:
        into.extend(stream)


@dataclass(frozen=True)
class Answer:
    """A status (0 without an answer) and a body."""

    status: int
    text: str

    def json(self) -> Any:
        """The body, read as JSON; None where it is none."""
        with contextlib.suppress(ValueError):
            return json.loads(self.text)
        return None
