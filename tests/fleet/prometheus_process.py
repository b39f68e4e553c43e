"""Debian's Prometheus as a process of its own, which scrapes twice a second."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.sidecar_process import LONG_S

_LISTENING = re.compile(r"Listening on.* address=\S+:(\d+)")


class Prometheus:
    """A server.

    Args:
        folder: for its data and configuration.
        jobs: each job's targets, `host:port` to the labels that its scrape gets; those of a page count before them.
    """

    def __init__(self, folder: Path, jobs: Mapping[str, Mapping[str, Mapping[str, str]]]) -> None:
        config = folder / "prometheus.yml"
        config.write_text(json.dumps(_config(jobs)))  # JSON is YAML
        self.popen = subprocess.Popen(
            [
                *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"),
                *("--web.listen-address=127.0.0.1:0", "--log.level=info"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "GOMAXPROCS": "1"},
        )
        self.log: list[str] = []
        self.port = 0
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._up.wait(LONG_S) or not self.port:
            self.close()
            raise AssertionError("Prometheus did not start:\n" + "".join(self.log))

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def _read(self) -> None:
        assert self.popen.stderr is not None
        ready = False
        for line in self.popen.stderr:
            self.log.append(line)
            if found := _LISTENING.search(line):
                self.port = int(found[1])
            ready = ready or "ready to receive web requests" in line
            if self.port and ready:
                self._up.set()
        self._up.set()

    def close(self) -> None:
        """Ends it."""
        self.popen.kill()
        self.popen.wait()
        self._reader.join(LONG_S)
        assert self.popen.stderr is not None
        self.popen.stderr.close()


def _config(jobs: Mapping[str, Mapping[str, Mapping[str, str]]]) -> dict[str, object]:
    def groups(targets: Mapping[str, Mapping[str, str]]) -> list[dict[str, object]]:
        return [{"targets": [place], "labels": dict(labels)} for place, labels in targets.items()]

    return {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "scrape_configs": [
            {"job_name": name, "honor_labels": True, "static_configs": groups(targets)}
            for name, targets in jobs.items()
        ],
    }
