"""The sidecar as its users run it: a process of its own, told by flags and environment, asked over HTTP."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import requests
from prometheus_client.parser import text_string_to_metric_families

LONG_S = 40.0
"""A wait that a busy machine does not exceed."""

_LISTENING = re.compile(r"msg=listening address=\S+ port=(\d+)")


class Process:
    """A running `infscale sidecar`, its two ports and what it logged.

    Attributes:
        program: what Python is told to run; another role has another.
    """

    program: tuple[str, ...] = ("-m", "infscale", "sidecar")

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.popen = subprocess.Popen(
            [
                *(sys.executable, *self.program),
                *("--web.listen-address", "127.0.0.1:0", "--kubelet.listen-address", "127.0.0.1:0"),
                *arguments,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        )
        self.log: list[str] = []
        self._session = requests.Session()
        self._session.trust_env = False
        self._ports: list[int] = []
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._up.wait(LONG_S) or len(self._ports) < 2:
            self.popen.kill()
            raise AssertionError(f"{self.program[-1]} did not start:\n" + "".join(self.log))

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.log.append(line)
            if found := _LISTENING.search(line):
                self._ports.append(int(found[1]))
                if len(self._ports) == 2:
                    self._up.set()
        self._up.set()

    @property
    def address(self) -> str:
        """Host and port of the main listener."""
        return f"127.0.0.1:{self._ports[0]}"

    def get(self, path: str, *, kubelet: bool = False, **options: object) -> requests.Response:
        """GET a path of one of the listeners; `scheme` and what requests takes as options."""
        scheme = options.pop("scheme", "http")
        url = f"{scheme}://127.0.0.1:{self._ports[1 if kubelet else 0]}{path}"
        return self._session.get(url, timeout=LONG_S, **options)  # type: ignore[arg-type]

    def values(self) -> dict[str, float]:
        """Each sample of the metrics page: `name` or `name{label="value",...}` to value."""
        return samples(self.get("/metrics").text)

    def state(self) -> str:
        """The one state that is 1."""
        return state_in(self.values())

    def ended(self) -> int:
        """Wait for the exit code."""
        code = self.popen.wait(LONG_S)
        self._reader.join(LONG_S)
        return code

    def close(self) -> None:
        """Kill it if it still runs, and give everything back."""
        self.popen.kill()
        self.popen.wait()
        self._reader.join(LONG_S)
        assert self.popen.stderr is not None
        self.popen.stderr.close()
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def samples(text: str) -> dict[str, float]:
    """A page's samples by their series, as text."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def state_in(values: dict[str, float]) -> str:
    """The one state of a page that is 1; an assertion if there is not exactly one."""
    states = [
        found[1]
        for name, value in values.items()
        if value == 1 and (found := re.fullmatch(r'infscale_engine_state\{state="(\w+)"\}', name))
    ]
    assert len(states) == 1, states
    return states[0]


@contextlib.contextmanager
def sidecar(*arguments: str, **environment: str) -> Iterator[Process]:
    """A sidecar for the time of a test."""
    with Process(*arguments, **environment) as process:
        yield process
