"""The recommender as its users run it: a process of its own; and five sidecars for it that can be killed and hung.

Also a program, which runs infscale as in a Pod whose service account is in a folder of the test's:

    python tests/recommender_process.py FOLDER recommender ...
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fleet.crew import Crew
from tests.sidecar_process import LONG_S, Process

QUICK = ("--interval=0.25", "--fleet.timeout=3", "--web.shutdown-delay=0.1")


class Recommender(Process):
    """A running `infscale recommender` that evaluates four times a second."""

    program = ("-m", "infscale", "recommender")

    def __init__(self, *arguments: str, **environment: str) -> None:
        super().__init__(*QUICK, *arguments, **environment)

    def recommendation(self) -> dict[str, Any]:
        """What `/api/v1/recommendation` answers, whatever its status."""
        answer: dict[str, Any] = self.get("/api/v1/recommendation").json()
        return answer

    def until(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first recommendation of which it holds."""
        end = time.monotonic() + LONG_S
        while True:
            found = self.recommendation()
            if holds(found):
                return found
            assert time.monotonic() < end, (found, "".join(self.log[-20:]))
            time.sleep(0.05)

    def evaluations(self, count: int) -> dict[str, Any]:
        """The recommendation after so many more evaluations have begun."""
        for _ in range(count):
            before = self.recommendation()["evaluated_at"]
            found = self.until(lambda one, before=before: one["evaluated_at"] != before)  # type: ignore[misc]
        return found

    def stop(self) -> int:
        """Tell it to end; its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.ended()


class PodRecommender(Recommender):
    """One in a Pod: the API server by the kubelet's environment, the token of a service account.

    Args:
        account: the folder of the service account.
        host, port: of the API server.
    """

    def __init__(self, account: Path, host: str, port: int, *arguments: str) -> None:
        self.program = (str(Path(__file__)), str(account), "recommender")
        super().__init__(*arguments, KUBERNETES_SERVICE_HOST=host, KUBERNETES_SERVICE_PORT=str(port))


class Team(Crew):
    """Five sidecars, of which some may hang."""

    def hang(self, number: int) -> None:
        """It takes connections and never answers."""
        self._processes[number].popen.send_signal(signal.SIGSTOP)

    def restore(self) -> None:
        """Everyone lives, with 3 requests running and 1 waiting."""
        for process in self._processes:
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGCONT)
        super().restore()

    def load(self, running: int, waiting: int = 0) -> None:
        """What every engine shows."""
        for engine in self.engines:
            engine.running, engine.waiting = running, waiting

    @property
    def static(self) -> str:
        """The five as a fleet source."""
        return "static:" + ",".join(f"http://{place}" for place in self.places)


def main() -> None:
    """Run infscale with the service account of a folder."""
    from infscale.cli import main as infscale
    from infscale.kube.incluster import InCluster

    # Where the kubelet puts the account is no setting; the folder is all that is different here.
    InCluster.from_environment.__func__.__defaults__ = (os.environ, Path(sys.argv.pop(1)))  # type: ignore[attr-defined]
    infscale()


if __name__ == "__main__":
    main()
