"""Lines and rows of trace files, read one at a time, and the one form of their errors. All readers of files use it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from infscale.errors import UsageError
from infscale_sim.traffic import Request

LAST_S = 10 * 366 * 86_400.0
"""Ten years: an arrival beyond is a Unix time, not seconds since the trace began."""

MOST_TOKENS = 100_000_000
"""Of one request; the longest context on offer is 10 million."""

MAX_LINE_BYTES = 1 << 20
"""A Mooncake line with the 512-token blocks of a prompt of 10 million tokens has 160 kB."""


class TraceError(UsageError):
    """A trace that cannot be used.

    Attributes:
        source: the file.
        line: its line, from 1; 0 for the file as a whole.
    """

    def __init__(self, source: str | Path, line: int, message: str) -> None:
        self.source, self.line = str(source), line
        super().__init__(f"{source}:{line}: {message}" if line else f"{source}: {message}")


def shown(value: object) -> str:
    """What stood there, short enough for a line."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= 40 else text[:37] + "...")


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file, with their ends.

    Raises:
        TraceError: it cannot be read, is no UTF-8, or has a line that is none of a trace.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
                if len(line) > MAX_LINE_BYTES or b"\0" in line:
                    raise TraceError(
                        path, number, "a line of more than 1 MiB, or a binary file: expected a trace in text"
                    )
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise TraceError(path, 0, "not UTF-8: expected a trace in text") from None
    except OSError as error:
        raise TraceError(path, 0, f"cannot be read: {error.strerror}") from None


def header(line: str) -> list[str]:
    """The column names of a CSV file's first line."""
    return [name.strip() for name in next(csv.reader([line]), [])]


def csv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line number and the wanted values, in the order of `columns` (two or more), of each row below the header.

    Blank lines are passed over.

    Raises:
        TraceError: the header lacks a column, or a row a value.
    """
    reader = csv.reader(lines(path))
    try:
        names = [name.strip() for name in next(reader, [])]
        missing = [column for column in columns if column not in names]
        if missing:
            raise TraceError(path, 1, f"no column {missing[0]!r}: expected {','.join(columns)}")
        wanted = itemgetter(*(names.index(column) for column in columns))
        for row in reader:
            if row:
                try:
                    yield reader.line_num, wanted(row)
                except IndexError:
                    expected = f"expected {len(names)}, as the header has"
                    raise TraceError(path, reader.line_num, f"{len(row)} values: {expected}") from None
    except csv.Error as error:
        raise TraceError(path, reader.line_num, f"not CSV: {error}") from None


def number(path: Path, line: int, name: str, value: object, most: float = LAST_S) -> float:
    """A number from 0 to `most`, of a CSV or JSON value.

    Raises:
        TraceError: it is none.
    """
    try:
        found = float(value)  # type: ignore[arg-type]  # what is no number is the case below
    except (TypeError, ValueError, OverflowError):
        found = -1.0
    if not 0 <= found <= most or isinstance(value, bool):
        raise TraceError(path, line, f"{name} is {shown(value)}: expected a number from 0 to {most:,.0f}")
    return found


def tokens(path: Path, line: int, name: str, value: object) -> int:
    """A whole number of tokens, 1 or more, of a CSV or JSON value; `12.0` is one, as some programs write it.

    Raises:
        TraceError: it is none.
    """
    try:
        count = int(value) if isinstance(value, str) and value.isdigit() else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        count = 0
    if not 1 <= count <= MOST_TOKENS or count != int(count) or isinstance(value, bool):
        raise TraceError(path, line, f"{name} is {shown(value)}: expected a whole number of tokens, 1 or more")
    return int(count)


def checked(
    path: Path, names: tuple[str, str, str], rows: Iterable[tuple[int, float, object, object]]
) -> Iterator[Request]:
    """Requests of rows (line, seconds since the start, prompt tokens, output tokens).

    Args:
        path: of the file.
        names: of the three columns, for messages.
        rows: in order of arrival.

    Raises:
        TraceError: a value cannot be used, or a row comes before the one above it.
    """
    arrival, prompt, output = names
    before_s = 0.0
    for line, arrival_s, prompt_tokens, output_tokens in rows:
        if arrival_s < before_s:
            raise TraceError(
                path,
                line,
                f"{arrival} goes back by {before_s - arrival_s:g} s: expected rows in order of arrival (sort it)",
            )
        before_s = arrival_s
        yield Request(arrival_s, tokens(path, line, prompt, prompt_tokens), tokens(path, line, output, output_tokens))
