"""A real Prometheus server (Debian's package): it scrapes what a test runs, and answers its queries."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import requests

LONG_S = 60.0


class Prometheus:
    """A running server.

    Args:
        folder: for its configuration, log and data; data that is there already is served.
        config: what stands in `prometheus.yml`.
        flags: further ones of the server.
    """

    def __init__(self, folder: Path, config: dict[str, Any], *flags: str) -> None:
        found = shutil.which("prometheus")
        assert found, "no prometheus on the PATH: `make test` installs it"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self._log = (folder / "prometheus.log").open("w")
        self.session = requests.Session()
        self.session.trust_env = False
        self._process = subprocess.Popen(
            [
                found,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.address}",
                *flags,
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def url(self) -> str:
        """Where its API is."""
        return f"http://{self.address}"

    def wait_ready(self) -> None:
        """Until it answers queries."""
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            with contextlib.suppress(requests.RequestException):
                if self.session.get(f"{self.url}/-/ready", timeout=2).status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("Prometheus did not become ready")

    def query(self, expression: str, path: str = "query", **more: str) -> list[dict[str, Any]]:
        """The result of an instant query (or of `query_range`)."""
        result: list[dict[str, Any]] = self.ask(path, {"query": expression, **more})["result"]
        return result

    def ask(self, path: str, form: Mapping[str, str]) -> Any:
        """What a path of the API below /api/v1 answers to these parameters."""
        answer = self.session.get(f"{self.url}/api/v1/{path}", params=form, timeout=LONG_S).json()
        assert answer["status"] == "success", f"{answer.get('error')}: {form}"
        return answer["data"]

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(LONG_S)
        finally:
            self._process.kill()
            self._log.close()
            self.session.close()


@contextlib.contextmanager
def prometheus(folder: Path, targets: list[str], *, interval: str = "250ms") -> Iterator[Prometheus]:
    """A server that scrapes these addresses, for the time of a test."""
    server = Prometheus(
        folder,
        {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [{"job_name": "infscale", "static_configs": [{"targets": targets}]}],
        },
    )
    try:
        server.wait_ready()
        yield server
    finally:
        server.close()
