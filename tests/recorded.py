"""Makes recorded runs for tests, and names those that are in the repository."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RUNS = sorted(timeline.parent for timeline in (Path(__file__).parent / "data" / "recordings").glob("*/timeline.jsonl"))
VLLM = next(run for run in RUNS if run.name == "vllm-0.32.0-single")

FAILURES = {
    "refused": "ClientConnectorError: Cannot connect to host 127.0.0.1:8101 [Connect call failed ('127.0.0.1', 8101)]",
    "timeout": "ServerTimeoutError: Timeout on reading data from socket",
    "reset": "ClientOSError: [Errno 104] Connection reset by peer",
}
"""What the recording client writes for each kind of failure."""


def row(t_s: float, page: str = "", **more: Any) -> dict[str, Any]:
    """A line of a timeline: a page that was answered with 200, unless `more` says otherwise."""
    headers = {"Content-Type": "text/plain; version=0.0.4", "Server": "an engine"}
    return {"t": t_s, "page": page, "status": 200, "headers": headers, "latency_ms": 1.0, **more}


def failed(t_s: float, kind: str, **more: Any) -> dict[str, Any]:
    """A line of a timeline for a scrape that got no answer."""
    return {"t": t_s, "status": 0, "error": FAILURES[kind], "latency_ms": 1.0, **more}


def write(folder: Path, rows: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]] = ()) -> Path:
    """Write a recording; a row's `page` becomes the file NNNN.prom.gz."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, given in enumerate(rows, start=1):
        line = dict(given)
        if page := line.pop("page", ""):
            line["file"] = f"{number:04}.prom.gz"
            (folder / line["file"]).write_bytes(gzip.compress(page.encode()))
        lines.append(json.dumps(line))
    (folder / "timeline.jsonl").write_text("\n".join(lines) + "\n")
    if events := list(events):
        (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder
