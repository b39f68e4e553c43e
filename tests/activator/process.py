"""The activator as its users run it: a process of its own, told by flags, with its three ports."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import requests

import tests.recommender_process as in_a_pod
from tests.activator.rig import until
from tests.sidecar_process import LONG_S, Process

_PORT = re.compile(r'msg="activator listening" .*requests_port=(\d+)')
QUICK = ("--web.shutdown-delay=0.1", "--listen-address=127.0.0.1:0", "--upstream.probe-interval=0.1")


class ActivatorProcess(Process):
    """A running `infscale activator`.

    Attributes:
        port: where it takes requests.
    """

    program = ("-m", "infscale", "activator")

    def __init__(self, upstream: str, *arguments: str, **environment: str) -> None:
        super().__init__(*QUICK, "--upstream", upstream, "--workload=ml/vllm", *arguments, **environment)
        until(lambda: _PORT.search("".join(self.log)) or self.popen.poll() is not None)
        found = _PORT.search("".join(self.log))
        assert found, "".join(self.log)
        self.port = int(found[1])

    def post(self, path: str = "/v1/completions", **options: object) -> requests.Response:
        """Ask for something, as a client."""
        url = f"http://127.0.0.1:{self.port}{path}"
        return self._session.post(url, timeout=LONG_S, **options)  # type: ignore[arg-type]

    def held(self) -> dict[str, Any]:
        """What `/api/v1/held` answers."""
        answer: dict[str, Any] = self.get("/api/v1/held").json()
        return answer

    def stop(self) -> None:
        """Tell it to end."""
        self.popen.send_signal(signal.SIGTERM)


class PodActivator(ActivatorProcess):
    """One in a Pod: the API server by the kubelet's environment, the token of a service account."""

    def __init__(self, account: Path, host: str, api_port: int, upstream: str, *arguments: str) -> None:
        self.program = (str(in_a_pod.__file__), str(account), "activator")
        super().__init__(upstream, *arguments, KUBERNETES_SERVICE_HOST=host, KUBERNETES_SERVICE_PORT=str(api_port))
