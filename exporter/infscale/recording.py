"""A recorded run of a real engine: a folder with each metrics page it served, when, and what its clients did meanwhile.

`infscale.replay` serves one, the demo shows one next to what the sidecar makes of it, and the tests hold readings
against its truth. tests/data/recordings/README.md tells what each file and field of a folder means.
"""

from __future__ import annotations

import bisect
import itertools
import json
import statistics
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from infscale.errors import ConfigError, SourceError, UsageError

REFUSED = "refused"
TIMEOUT = "timeout"
RESET = "reset"

PAGE_LIMIT_BYTES = 64 << 20
"""The largest page: a thousand times the largest real one (65 kB), and small enough for any machine."""

GRID_S = 1.0
"""Seconds from line to line where the recording has no clock (the collector-only ones)."""

# The recording client's own words, lower case, most telling first: its connection errors say "timeout" when connecting
# timed out, and "cannot connect" as well.
_FAILURE_WORDS = (
    ("timeout", TIMEOUT),
    ("timed out", TIMEOUT),
    ("reset by peer", RESET),
    ("disconnected", RESET),
    ("connect call failed", REFUSED),
    ("connection refused", REFUSED),
)


@dataclass(frozen=True)
class Line:
    """One scrape of the recorded engine: a line of timeline.jsonl.

    Attributes:
        number: its line in the file, from 1.
        t_s: when the GET was sent, Unix seconds; without a clock in the recording 0, 1, 2, ...
        status: the HTTP status, or 0 when no answer came.
        failure: `refused`, `timeout` or `reset` when no answer came, else empty.
        file: the page's file in the folder; empty when the answer had none.
        headers: the answer's header fields as recorded.
        latency_s: seconds from the GET to the whole page, or to the failure.
        phase: the load step under way; empty when the recording has none.
        inflight: requests that clients had in flight when the GET was sent; None when not recorded.
        inflight_after: the same when the page had arrived.
    """

    number: int
    t_s: float
    status: int
    failure: str = ""
    file: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    latency_s: float = 0.0
    phase: str = ""
    inflight: int | None = None
    inflight_after: int | None = None

    @property
    def closes(self) -> bool:
        """Whether the engine closed the connection after its answer."""
        return any(name.lower() == "connection" and value.lower() == "close" for name, value in self.headers)


@dataclass(frozen=True)
class Recording:
    """A recorded run, its lines in the order of time. Pages stay on disk until asked for.

    Attributes:
        folder: where it is.
        lines: every scrape, at least one.
        changes: (Unix seconds, +1 or -1) for each start and end of a request, in the order of time.
    """

    folder: Path
    lines: tuple[Line, ...]
    changes: tuple[tuple[float, int], ...] = ()

    @classmethod
    def load(cls, folder: str | Path) -> Recording:
        """Read a recording's folder and check every page in it.

        Raises:
            ConfigError: no such folder, no timeline, a line that cannot be used (`file:line`), a page that is missing
                or cannot be unpacked.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise ConfigError("no such folder; expected a recorded run (timeline.jsonl and pages)", source=str(folder))
        timeline = folder / "timeline.jsonl"
        if not timeline.is_file():
            raise ConfigError("no timeline.jsonl in it: this is not a recorded run", source=str(folder))
        lines = tuple(_line(row, number, f"{timeline}:{number}", folder) for number, row in _rows(timeline))
        if not lines:
            raise ConfigError("it has no lines; expected a scrape on each", source=str(timeline))
        for before, after in itertools.pairwise(lines):
            if after.t_s < before.t_s:
                raise ConfigError(
                    f"t is {after.t_s}, before the line above it ({before.t_s}); expected lines in the order of time",
                    source=f"{timeline}:{after.number}",
                )
        recording = cls(folder, lines, _changes(folder / "events.jsonl"))
        try:
            for line in lines:
                recording.page(line)
        except SourceError as error:
            raise ConfigError(str(error)) from error
        return recording

    @property
    def name(self) -> str:
        """The folder's name, which tells the engine and its version: `vllm-0.32.0-single`."""
        return self.folder.resolve().name

    @cached_property
    def phases(self) -> tuple[str, ...]:
        """The load steps that have a line, in the order of time."""
        return tuple(dict.fromkeys(line.phase for line in self.lines if line.phase))

    @cached_property
    def gap_s(self) -> float:
        """The usual (median) seconds from one line to the next."""
        gaps = [after.t_s - before.t_s for before, after in itertools.pairwise(self.lines)]
        return statistics.median(gaps) if gaps else GRID_S

    @property
    def end_s(self) -> float:
        """When the recording is over, Unix seconds: the last line has its usual time too."""
        return self.lines[-1].t_s + self.gap_s

    def page(self, line: Line) -> bytes:
        """The body of one answer, byte for byte as the engine sent it; empty when the answer had none.

        Raises:
            SourceError: the page is gone, damaged, or larger than PAGE_LIMIT_BYTES.
        """
        if not line.file:
            return b""
        path = self.folder / line.file
        unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: in a gzip file
        try:
            if path.stat().st_size > PAGE_LIMIT_BYTES:
                raise EOFError(f"it is larger than {PAGE_LIMIT_BYTES >> 20} MiB")
            body = unpacking.decompress(path.read_bytes(), PAGE_LIMIT_BYTES)
            if not unpacking.eof:
                cut = (
                    f"it unpacks to more than {PAGE_LIMIT_BYTES >> 20} MiB"
                    if unpacking.unconsumed_tail
                    else "it is cut"
                )
                raise EOFError(cut)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{path}: cannot unpack the page: {error}; expected a whole gzip file") from error
        return body

    def index_at(self, t_s: float) -> int:
        """The index of the line in force at a time in Unix seconds: the last one sent by then, at least the first."""
        return max(0, bisect.bisect_right(self.lines, t_s, key=lambda line: line.t_s) - 1)

    def inflight_at(self, t_s: float) -> int | None:
        """The truth: requests that clients had in flight at a time in Unix seconds.

        Starts minus ends of events.jsonl; in a recording without events the count of the line in force, if it has one.
        """
        if not self.changes:
            return self.lines[self.index_at(t_s)].inflight
        return self._inflight[bisect.bisect_right(self.changes, t_s, key=lambda change: change[0])]

    @cached_property
    def _inflight(self) -> tuple[int, ...]:
        """Requests in flight after none, one, two, ... of the changes."""
        counts = [0]
        for _, step in self.changes:
            counts.append(counts[-1] + step)
        return tuple(counts)

    def first_of(self, phase: str) -> int:
        """The index of the first line of a phase; of all lines where it is empty.

        Raises:
            UsageError: there is no such phase.
        """
        for index, line in enumerate(self.lines):
            if phase in ("", line.phase):
                return index
        phases = ", ".join(self.phases) or "none at all"
        raise UsageError(f"{self.folder}: no phase {phase!r} in this recording; it has {phases}")


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The JSON objects of a file with one on each line, with their line numbers; blank lines are passed over."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read it: {error.strerror}", source=str(path)) from error
    for number, text in enumerate(raw.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"not JSON ({error}); expected an object a line", source=f"{path}:{number}") from error
        if not isinstance(row, dict):
            raise ConfigError(f"{text[:40]!r} is not a JSON object", source=f"{path}:{number}")
        yield number, row


def _line(row: Mapping[str, Any], number: int, source: str, folder: Path) -> Line:
    """A Line out of a row of timeline.jsonl."""
    status = _number(row, "status", source)
    file = row.get("file") or ""
    if not isinstance(file, str) or file != Path(file).name:
        raise ConfigError(f"file is {file!r}; expected the name of a page in {folder}", source=source)
    if file and not (folder / file).is_file():
        raise ConfigError(f"its page {file} is missing in {folder}", source=source)
    if status != 0 and not 200 <= status <= 599:
        raise ConfigError(f"status is {status:g}; expected 0 (no answer) or 200 to 599", source=source)
    return Line(
        number=number,
        t_s=_number(row, "t", source, missing=(number - 1) * GRID_S),
        status=int(status),
        failure="" if status else _failure(row.get("error"), source),
        file=file if status else "",
        headers=_headers(row.get("headers") or {}, source),
        latency_s=_number(row, "latency_ms", source, missing=0.0) / 1000,
        phase=str(row.get("phase") or ""),
        inflight=_inflight(row, "client_inflight", source),
        inflight_after=_inflight(row, "client_inflight_after", source),
    )


def _number(row: Mapping[str, Any], key: str, source: str, missing: float | None = None) -> float:
    """A number of 0 or more out of a row, or `missing` where the row has none."""
    value = row.get(key, missing)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ConfigError(f"{key} is {value!r}; expected a number of 0 or more", source=source)
    return value


def _failure(error: object, source: str) -> str:
    """What kind of failure the recording client told of."""
    text = str(error).lower()
    for words, failure in _FAILURE_WORDS:
        if words in text:
            return failure
    raise ConfigError(
        f"status 0 with error {error!r}; expected one that tells of a refused connection, a timeout or a reset",
        source=source,
    )


def _headers(headers: object, source: str) -> tuple[tuple[str, str], ...]:
    """An answer's header fields, fit to be sent again."""
    if not isinstance(headers, dict):
        raise ConfigError(f"headers is {headers!r}; expected an object", source=source)
    for name, value in headers.items():
        text = f"{name}{value}"
        if not isinstance(value, str) or not (text.isascii() and text.isprintable()):
            raise ConfigError(f"header {name!r} is {value!r}; expected printable ASCII text", source=source)
    return tuple(headers.items())


def _inflight(row: Mapping[str, Any], key: str, source: str) -> int | None:
    """The clients' count of a row; the collector-only recordings tell what was put in per rank instead."""
    if key in row:
        return int(_number(row, key, source))
    if "run_per_rank" in row:
        running, waiting = _number(row, "run_per_rank", source), _number(row, "wait_per_rank", source)
        return int((running + waiting) * _number(row, "ranks", source, missing=1))
    return None


def _changes(path: Path) -> tuple[tuple[float, int], ...]:
    """The starts (+1) and ends (-1) of events.jsonl, by time; none when the recording has no such file."""
    if not path.exists():
        return ()
    changes = []
    for number, row in _rows(path):
        if (event := row.get("ev")) in ("start", "end"):
            changes.append((_number(row, "t", f"{path}:{number}"), 1 if event == "start" else -1))
    return tuple(sorted(changes, key=lambda change: change[0]))
