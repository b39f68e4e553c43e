"""`open_trace`: what a source of traffic is, found out, and walked as often as one likes. The commands call it."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from infscale.errors import UsageError
from infscale_sim.traces import azure, burstgpt, csv_requests, mooncake, prometheus, rates, synthetic
from infscale_sim.traces.files import TraceError, header, lines, shown
from infscale_sim.traces.prometheus import History, Rebuilt
from infscale_sim.traces.rates import Level
from infscale_sim.traces.scaling import scaled
from infscale_sim.traffic import Request

MOST_SCALE = 1e6

_REQUEST_COLUMNS: dict[str, tuple[tuple[str, ...], Callable[[Path], Iterator[Request]]]] = {
    "csv": (csv_requests.COLUMNS, csv_requests.read),
    "azure": (azure.COLUMNS, azure.read),
    "burstgpt": (burstgpt.COLUMNS, burstgpt.read),
}
_RATE_COLUMNS: dict[str, tuple[tuple[str, ...], Callable[[Path], Iterator[Level]]]] = {
    "rates": (rates.COLUMNS, rates.read),
    "servegen": (rates.SERVEGEN_COLUMNS, rates.read_servegen),
    "burstgpt-minutes": (burstgpt.MINUTE_COLUMNS, burstgpt.read_minutes),
}


class Source(Protocol):
    """Where requests come from."""

    def requests(self, scale: float, seed: int) -> Iterator[Request]:
        """So many times the requests, in order of arrival; the same for the same seed."""

    def is_random(self, scale: float) -> bool:
        """Whether the seed has a say in them."""


@dataclass(frozen=True)
class RequestFile:
    """A file with one request a row."""

    path: Path
    read: Callable[[Path], Iterator[Request]]

    def requests(self, scale: float, seed: int) -> Iterator[Request]:
        """See `Source`."""
        return self.read(self.path) if scale == 1 else scaled(self.read(self.path), scale, random.Random(seed))  # noqa: S311 - traffic, no secret

    def is_random(self, scale: float) -> bool:
        """See `Source`."""
        return scale != 1


@dataclass(frozen=True)
class RateFile:
    """A file with one rate a row."""

    path: Path
    read: Callable[[Path], Iterator[Level]]

    def requests(self, scale: float, seed: int) -> Iterator[Request]:
        """See `Source`."""
        return rates.requests_of(self.read(self.path), scale, seed)

    def is_random(self, scale: float) -> bool:
        """See `Source`."""
        return True


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival. Each walk begins anew and gives the same; nothing of it stays in memory.

    Attributes:
        name: of the file or the server, for people.
        format: `csv`, `azure`, `burstgpt`, `mooncake`, `rates`, `servegen`, `burstgpt-minutes`, `synthetic` or
            `prometheus`.
        source: where the requests come from.
        seed: of everything random in it; None where nothing is.
        scale: how many times the requests.
        limit: at most so many, the first; None: all.
        note: one line for people on how it came about; may be empty.
    """

    name: str
    format: str
    source: Source
    seed: int | None
    scale: float = 1.0
    limit: int | None = None
    note: str = ""

    def __iter__(self) -> Iterator[Request]:
        """The requests.

        Raises:
            TraceError: a row cannot be used, or there is no request at all.
        """
        requests = itertools.islice(self.source.requests(self.scale, self.seed or 0), self.limit)
        first = next(requests, None)
        if first is None:
            at_scale = "" if self.scale == 1 else f" at scale {self.scale:g}"
            raise TraceError(self.name, 0, f"no request in it{at_scale}")
        yield first
        yield from requests


def open_trace(
    where: str | Path | History, *, scale: float = 1.0, limit: int | None = None, seed: int | None = None
) -> Trace:
    """A source of traffic as a trace; what kind of file a file is stands in its first line.

    Args:
        where: a file, `.yaml` or `.yml` for a description, JSON lines or CSV else; or what to ask of a Prometheus,
            which is asked now and not at each walk.
        scale: how many times the requests, above 0: fewer below 1, more above.
        limit: at most so many requests, the first.
        seed: of everything random; None: that of the description, or 0.

    Raises:
        UsageError: scale or limit cannot be used; a TraceError or ConfigError: the file cannot be read or is no trace.
        SourceError: the Prometheus does not answer or has nothing to rebuild from.
    """
    if not 0 < scale <= MOST_SCALE or not math.isfinite(scale):
        raise UsageError(f"a trace's scale is {scale:g}: expected more than 0 and at most {MOST_SCALE:,.0f}, as 0.1")
    if limit is not None and limit < 1:
        raise UsageError(f"a trace's limit is {limit} requests: expected 1 or more")
    name, kind, source, told = _opened(where)
    known = next((one for one in (seed, told) if one is not None), 0) if source.is_random(scale) else None
    return Trace(name, kind, source, known, scale, limit, source.note if isinstance(source, Rebuilt) else "")


def _opened(where: str | Path | History) -> tuple[str, str, Source, int | None]:
    """Name, format, source, and the seed that it asks for."""
    if isinstance(where, History):
        rebuilt = prometheus.rebuild(where)
        return f"Prometheus at {rebuilt.place}", "prometheus", rebuilt, None
    path = Path(where)
    if path.suffix.lower() in (".yaml", ".yml"):
        described = synthetic.read(path)
        return str(path), "synthetic", described, described.seed
    return (str(path), *_detected(path), None)


def _detected(path: Path) -> tuple[str, Source]:
    first = next((line for line in lines(path) if line.strip()), None)
    if first is None:
        raise TraceError(path, 0, "an empty file: expected a trace")
    if first.lstrip().startswith("{"):
        return "mooncake", RequestFile(path, mooncake.read)
    names = set(header(first))
    for kind, (columns, read) in _REQUEST_COLUMNS.items():
        if names.issuperset(columns):
            return kind, RequestFile(path, read)
    for kind, (columns, read_levels) in _RATE_COLUMNS.items():
        if names.issuperset(columns):
            return kind, RateFile(path, read_levels)
    known = " or ".join(",".join(columns) for columns in (csv_requests.COLUMNS, rates.COLUMNS))
    raise TraceError(
        path, 1, f"{shown(first.strip())} begins no trace: expected {known}, or another format of docs/traces.md"
    )
