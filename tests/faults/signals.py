"""A recommender that writes its state is hit by signals at random points. `make test` does it 50 times, the soak 1,000.

What has to hold after each: the state can be read, is at least as new as what was published before the signal, and no
older than one period; and at no time is anything else asked for than the two replicas that the load needs.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from infscale.state_file import read_state
from tests.sidecar_process import LONG_S

NURSERY = Path(__file__).parent / "nursery.py"
PERIOD_S = 0.05
SLACK_S = 10.0
"""For an evaluation and a start on a busy machine, beside the period."""

GOOD = ("queue:4,max=20,downwindow=0", "queue:4,max=19,downwindow=0")
_PORT = re.compile(r"msg=listening address=\S+ port=(\d+)")
SIGNALS = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL, "HUP": signal.SIGHUP}


class Recommenders:
    """One recommender after the other, with one state file.

    Attributes:
        state: the file.
        config: what SIGHUP reads again.
        log: what all of them logged.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self.state, self.config = folder / "state.json", folder / "infscale.yaml"
        self.configure(GOOD[0])
        self.log: list[str] = []
        self._ports: list[int] = []
        self._up = threading.Condition()
        self._session = requests.Session()
        self._session.trust_env = False
        flags = (
            *("--web.listen-address=127.0.0.1:0", "--kubelet.listen-address=127.0.0.1:0", "--web.shutdown-delay=0.01"),
            *(source, "--workload=ml/vllm", "--spec-replicas=2", f"--interval={PERIOD_S}"),
            *(f"--state={self.state}", f"--config.file={self.config}"),
        )
        self._nursery = subprocess.Popen(
            [sys.executable, str(NURSERY), "recommender", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._line() == "ready", "".join(self.log)

    def configure(self, policy: str) -> None:
        """What the configuration file says; a text that is no policy cannot be used."""
        temporary = self.config.with_suffix(".new")
        temporary.write_text(f"policy: {policy!r}\n")
        temporary.rename(self.config)

    def start(self) -> int:
        """Start the next; its process id, once it listens."""
        with self._up:
            self._ports.clear()
        assert self._nursery.stdin is not None
        self._nursery.stdin.write("\n")
        self._nursery.stdin.flush()
        pid = int(self._line())
        with self._up:
            assert self._up.wait_for(lambda: len(self._ports) == 2, LONG_S), "".join(self.log[-20:])
        return pid

    def ended(self) -> int:
        """Wait for the end of the one that runs; its exit code."""
        line = self._line()
        assert line.startswith("ended "), line
        return int(line.split()[1])

    def page(self) -> dict[str, Any]:
        """What `/api/v1/recommendation` answers."""
        answer: dict[str, Any] = self._get("/api/v1/recommendation").json()
        return answer

    def metrics(self) -> str:
        """What `/metrics` answers."""
        return self._get("/metrics").text

    def close(self) -> None:
        """Ends all."""
        assert self._nursery.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._nursery.stdin.close()
        try:
            self._nursery.wait(LONG_S)
        finally:
            self._nursery.kill()
            self._nursery.wait()
        self._reader.join(LONG_S)
        for pipe in (self._nursery.stdout, self._nursery.stderr):
            assert pipe is not None
            pipe.close()
        self._session.close()

    def _get(self, path: str) -> requests.Response:
        return self._session.get(f"http://127.0.0.1:{self._ports[0]}{path}", timeout=LONG_S)

    def _line(self) -> str:
        assert self._nursery.stdout is not None
        return self._nursery.stdout.readline().strip()

    def _read(self) -> None:
        assert self._nursery.stderr is not None
        for line in self._nursery.stderr:
            self.log.append(line)
            if found := _PORT.search(line):
                with self._up:
                    self._ports.append(int(found[1]))
                    self._up.notify_all()


@contextlib.contextmanager
def recommenders(folder: Path, source: str) -> Iterator[Recommenders]:
    """Some, for the time of a test."""
    found = Recommenders(folder, source)
    try:
        yield found
    finally:
        found.close()


def strike(found: Recommenders, times: int, seed: int) -> Counter[str]:
    """Send so many signals at random points; how many of each. Asserts what has to hold after each of them."""
    rng = random.Random(seed)
    counted: Counter[str] = Counter()
    pid, published_s = found.start(), 0.0
    while counted.total() < times:
        time.sleep(rng.uniform(0.0, 2 * PERIOD_S))
        name = rng.choice(list(SIGNALS))
        if name == "HUP":
            found.configure(rng.choice([*GOOD, "no policy"]))
        page = found.page()
        assert page["desired"] in (2, None), page
        published_s = page["evaluated_at"] or published_s
        signalled_s = time.time()
        os.kill(pid, SIGNALS[name])
        counted[name] += 1
        if name != "HUP":
            code = found.ended()
            assert code == {"TERM": 0, "KILL": -signal.SIGKILL}[name], (code, found.log[-5:])
        loaded = read_state(found.state, time.time())  # raises where it is damaged
        assert not loaded.dropped
        assert loaded.state.evaluated_s is not None or not published_s
        # The state is kept before its decision is published: it is never older than what anybody saw.
        assert (loaded.state.evaluated_s or 0.0) >= published_s
        assert not published_s or signalled_s - (loaded.state.evaluated_s or 0.0) < PERIOD_S + SLACK_S
        if name != "HUP":
            found.configure(GOOD[0])  # who starts has nothing former to keep
            pid = found.start()
    os.kill(pid, signal.SIGTERM)
    assert found.ended() == 0
    return counted
