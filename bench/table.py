"""What a benchmark hands back, and the table of it: text, Markdown, JSON. Used by each benchmark and `python -m bench`.

A row is one figure: infscale's, a peer's from the same run, how many times better that is, and the target if there is
one. A figure that could not be taken is a row too: it has no number, and says why.
"""

from __future__ import annotations

import argparse
import enum
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

BEGIN, END = MARKS = "<!-- benchmarks -->", "<!-- end of benchmarks -->"
HEADINGS = ("benchmark", "what", "infscale", "peer", "times better", "target", "met")


class Size(enum.Enum):
    """How much is run: TINY shows that a benchmark works, QUICK leaves out what takes minutes, FULL is the table's."""

    TINY = "tiny"
    QUICK = "quick"
    FULL = "full"

    def pick(self, tiny: int, most: int) -> int:
        """A number of repetitions: the first for TINY, the second otherwise."""
        return tiny if self is Size.TINY else most


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        what: what was measured.
        unit: of both figures.
        ours: infscale's; None where it could not be taken.
        peer: the same of `peer_name`, from the same run; None where there is nothing to compare with.
        more_is_better: as of requests a second; else less is, as of seconds.
        at_most, at_least: the target of `ours`.
        ratio_at_least: the target of `ratio`.
        note: why there is no figure, or what else is to be known.
        benchmark: whose row it is; set by who runs several.
    """

    what: str
    unit: str = ""
    ours: float | None = None
    peer_name: str = ""
    peer: float | None = None
    more_is_better: bool = False
    at_most: float | None = None
    at_least: float | None = None
    ratio_at_least: float | None = None
    note: str = ""
    benchmark: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer; None where it cannot be said."""
        if self.ours is None or self.peer is None:
            return None
        over, under = (self.ours, self.peer) if self.more_is_better else (self.peer, self.ours)
        return over / under if under > 0 else None

    @property
    def target(self) -> str:
        """The target as a text; empty where there is none."""
        if self.ratio_at_least is not None:
            return f"≥ {self.ratio_at_least:g} times"
        if self.at_least is not None:
            return f"≥ {figure(self.at_least, self.unit)}"
        return "" if self.at_most is None else f"≤ {figure(self.at_most, self.unit)}"

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is no target or no figure."""
        if self.ours is None:
            return None
        if self.ratio_at_least is not None:
            return None if self.ratio is None else self.ratio >= self.ratio_at_least
        if self.at_least is not None:
            return self.ours >= self.at_least
        return None if self.at_most is None else self.ours <= self.at_most


def figure(value: float | None, unit: str = "") -> str:
    """A number as people read it, three digits of it, with its unit; a dash for None."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= 100:
        text = f"{value:,.0f}"
    elif value == int(value):
        text = f"{value:.0f}"
    else:
        text = f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"
    return f"{text} {unit}".rstrip()


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts, in the order of HEADINGS."""
    peer = "" if not row.peer_name else row.peer_name
    if row.peer is not None:
        peer = f"{figure(row.peer, row.unit)}, {row.peer_name}"
    return (
        row.benchmark,
        f"{row.what} ({row.note})" if row.note else row.what,
        figure(row.ours, row.unit),
        peer,
        "" if row.ratio is None else figure(row.ratio),
        row.target,
        {True: "yes", False: "MISSED", None: ""}[row.met],
    )


def text(rows: Iterable[Row]) -> list[str]:
    """The table as lines, its columns under one another; without those that are empty."""
    columns = [column for column in zip(HEADINGS, *map(cells, rows), strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def markdown(rows: Iterable[Row]) -> list[str]:
    """The table as Markdown lines."""
    body = [HEADINGS, ("---", "---", "--:", "---", "--:", "--:", "---"), *(cells(row) for row in rows)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in body]


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows as objects: figures are numbers or null, `target` is a text or null."""
    return [
        {
            "benchmark": row.benchmark,
            "what": row.what,
            "unit": row.unit,
            "ours": row.ours,
            "peer_name": row.peer_name or None,
            "peer": row.peer,
            "ratio": row.ratio,
            "target": row.target or None,
            "met": row.met,
            "note": row.note or None,
        }
        for row in rows
    ]


def machine() -> str:
    """The machine's kind: processor, cores, memory, kernel and Python; no name that tells which machine it is."""
    facts = [f"{os.cpu_count()} cores", _processor(), _memory(), f"{platform.system()} {platform.machine()}"]
    return ", ".join(filter(None, [*facts, f"{platform.python_implementation()} {platform.python_version()}"]))


def _processor() -> str:
    return _line("/proc/cpuinfo", "model name")


def _memory() -> str:
    kib = _line("/proc/meminfo", "MemTotal").split()
    return f"{int(kib[0]) / 2**20:.0f} GiB of memory" if kib else ""


def _line(path: str, name: str) -> str:
    """The value of the first `name: value` line of a file of /proc; empty where there is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def put(page: Path, lines: Iterable[str], title: str = "Performance", marks: tuple[str, str] = MARKS) -> None:
    """Write the lines between the page's marks; without them the page becomes a heading and the lines."""
    begin, end = marks
    before, after = f"# {title}\n\n", "\n"
    if page.exists() and begin in (whole := page.read_text(encoding="utf-8")) and end in whole:
        before, rest = whole.split(begin, 1)
        after = rest.split(end, 1)[1]
    page.write_text("\n".join([before + begin, *lines, end + after]), encoding="utf-8")


def alone(doc: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark that is run by itself: its docstring is its help; Ctrl-C ends it in a line."""
    parser = command_line(doc)
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    return parser


def command_line(doc: str | None) -> argparse.ArgumentParser:
    """A command line whose help is the docstring; Ctrl-C ends the command in a line."""
    sys.excepthook = _in_a_line
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def show(rows: Sequence[Row], *, check: bool) -> int:
    """Print the table; the exit code, which is 1 where `check` is set and a target is missed."""
    print("\n".join(text(rows)))
    return int(check and any(row.met is False for row in rows))


def _in_a_line(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    """Python's own way to report an exception, but for Ctrl-C, which is no fault."""
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, at)
