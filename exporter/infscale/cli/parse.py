"""`infscale parse`: read metrics pages once, from files or URLs, and print what they say, a row each.

Exit status: 0 all were read (ok, fresh, asleep or stale), 1 one was not, 2 bad usage.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option, every_setting
from infscale.cli.engine_options import Chosen, chosen, engine_options
from infscale.cli.engine_options import target as target_of
from infscale.cli.options import SECONDS, option
from infscale.errors import ExpositionError, UsageError
from infscale.reading import ASLEEP, FRESH, OK, STALE, UNREACHABLE, ReadFailure, Reading

if TYPE_CHECKING:
    from infscale.config import Config
    from infscale.scrape import Target

Outcome = Reading | ReadFailure
Row = dict[str, Any]

_READ = (OK, FRESH, ASLEEP, STALE)
_NUMBERS = ("running", "waiting", "inflight", "kv", "prompt_tokens", "generation_tokens")
_RATES = ("tokens_per_second", "cpu")
_HEADINGS = {"prompt_tokens": "PROMPT", "generation_tokens": "GENERATED", "tokens_per_second": "TOKENS/S"}
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]+([/?#].*)?", re.ASCII)
_EXAMPLES = """\b
Examples:
  infscale parse http://127.0.0.1:8000/metrics
  infscale parse --interval 5 http://10.0.0.7:8000/metrics http://10.0.0.8:8000/metrics
  curl -s http://127.0.0.1:8000/metrics | infscale parse --format json -
"""


@dataclass(frozen=True)
class _Reader:
    """How every source of one call is read: as which engine, and with `strict` the whole page."""

    engine: Chosen
    strict: bool

    def read(self, source: str, target: Target | None) -> Outcome:
        """One read of a file, or of a URL where there is a target."""
        return self._url(source, target) if target else self._file(source)

    def _file(self, source: str) -> Outcome:
        from infscale.cli.page_file import page_in_file
        from infscale.normalise import read_page

        text = page_in_file(source)
        if isinstance(text, ReadFailure):
            return text
        read = read_page(text, profile=self.engine.told, profiles=self.engine.profiles, source=source)
        return self._checked(read, text, source)

    def _url(self, source: str, target: Target) -> Outcome:
        from infscale.outcome import outcome
        from infscale.scrape import Page, fetch

        answer = fetch(target)
        read = outcome(answer, profile=self.engine.told, profiles=self.engine.profiles, source=source)
        if isinstance(answer, Page) and answer.status == 200:
            return self._checked(read, answer.body.decode("utf-8", "replace"), source)
        return read

    def _checked(self, read: Outcome, text: str, source: str) -> Outcome:
        """With --strict, the page's first broken line instead of what was read from the others."""
        if not self.strict or (isinstance(read, ReadFailure) and read.reason == "not_metrics"):
            return read
        from infscale.exposition import parse

        try:
            parse(text, source)
        except ExpositionError as exc:
            return ReadFailure(UNREACHABLE, "unusable", str(exc), read.engine)
        return read


@click.command("parse", epilog=_EXAMPLES)
@click.argument("sources", nargs=-1, required=True, metavar="FILE|URL...")
@option("--format", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@option("--strict", is_flag=True, help="Take any line that breaks the format for an error, not only one that counts.")
@option("--interval", type=SECONDS, metavar="SECONDS", help="Read URLs again after this long; adds tokens/s and CPU.")
@engine_options
@config_file_option(every_setting)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    format: str,
    engine: str | None,
    strict: bool,
    engine_select: tuple[str, ...],
    interval: float | None,
    config_file: Config,
    **connection: Any,
) -> None:
    """Read metrics pages once and print what they say: one row for each file or URL.

    A FILE may be packed with gzip; - is standard input.
    """
    reader = _Reader(chosen(config_file, engine, engine_select), strict)
    targets = [(source, _target(source, connection)) for source in sources]
    rows = _rows(reader, targets, interval)
    click.echo(_json(rows) if format == "json" else "\n".join(_table(rows)))
    _tell_errors(rows)
    ctx.exit(0 if all(row["state"] in _READ for row in rows) else 1)


def _target(source: str, connection: Mapping[str, Any]) -> Target | None:
    """What to fetch for a source that is a URL; None for a file."""
    if "://" in source or source.startswith(("http:", "https:")):
        return target_of(source, **connection)
    if _ADDRESS.fullmatch(source) and not os.path.exists(source):
        raise UsageError(f"{source!r}: no such file, and no URL without its scheme: expected http://{source}")
    return None


def _rows(reader: _Reader, targets: list[tuple[str, Target | None]], interval_s: float | None) -> list[Row]:
    if interval_s is None:
        return [_row(source, reader.read(source, target)) for source, target in targets]
    first = [(reader.read(source, target), time.monotonic()) for source, target in targets]
    if any(target for _, target in targets):
        time.sleep(interval_s)
    rows = []
    for (source, target), (before, before_s) in zip(targets, first, strict=True):
        if target is None:
            rows.append({**_row(source, before), **dict.fromkeys(_RATES)})
        else:
            after = reader.read(source, target)
            rows.append(_row_of_two(source, before, after, time.monotonic() - before_s))
    return rows


def _row(source: str, read: Outcome) -> Row:
    """One source in the form of the JSON output; the table shows the same."""
    told: Row = {"source": source, "engine": read.engine or None, "state": read.state}
    if isinstance(read, ReadFailure):
        return {**told, **dict.fromkeys((*_NUMBERS, "model")), "warnings": [], "error": read.message}
    numbers = {key: _whole(getattr(read, key)) for key in _NUMBERS}
    model = ", ".join(part.model for part in read.models if part.model) or None
    return {**told, **numbers, "model": model, "warnings": list(read.warnings), "error": None}


def _row_of_two(source: str, before: Outcome, after: Outcome, elapsed_s: float) -> Row:
    """The second of two reads, with what moved since the first."""
    if isinstance(before, ReadFailure) or isinstance(after, ReadFailure):
        return {**_row(source, after), **dict.fromkeys(_RATES)}
    from infscale.watch import Watch, restarted

    watch = Watch()
    watch.step(before, 0.0)
    view = watch.step(after, elapsed_s)
    row = _row(source, after)
    if view.reading is None:
        row = _row(source, ReadFailure(view.state, "missing", view.message, after.engine))
    elif view.state == STALE:
        row.update(state=STALE, warnings=[*row["warnings"], view.message])
    same = not restarted(before, after)
    tokens = _rate(_tokens(before), _tokens(after), elapsed_s) if same else None
    return {**row, "tokens_per_second": tokens, "cpu": _rate(before.cpu_s, after.cpu_s, elapsed_s) if same else None}


def _tokens(reading: Reading) -> float | None:
    known = [count for count in (reading.prompt_tokens, reading.generation_tokens) if count is not None]
    return sum(known) if known else None


def _rate(before: float | None, after: float | None, elapsed_s: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return round((after - before) / elapsed_s, 3)


def _whole(value: float | None) -> float | None:
    """5 rather than 5.0: most of these are counts."""
    return int(value) if value is not None and value == int(value) else value


def _json(rows: list[Row]) -> str:
    """A list with a line for each row."""
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]"


def _table(rows: list[Row]) -> Iterable[str]:
    from infscale.cli.table import aligned, printable

    numbers = [key for key in (*_NUMBERS, *_RATES) if key in rows[0]]
    columns = ["source", "engine", "state", *numbers, "model"]
    heading = [_HEADINGS.get(key, key.upper()) for key in columns]
    cells = [[_cell(row[key]) for key in columns] for row in rows]
    lines = aligned([heading, *cells], right=range(3, 3 + len(numbers)))
    yield lines[0]
    for line, row in zip(lines[1:], rows, strict=True):
        yield line
        yield from (f"  warning: {printable(warning)}" for warning in row["warnings"])
        if row["error"]:
            yield f"  error: {printable(row['error'])}"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _tell_errors(rows: list[Row]) -> None:
    """A line on standard error for each source that could not be read, for those who read the output by program."""
    from infscale.cli import say
    from infscale.cli.table import printable

    for row in rows:
        if row["error"]:
            known = row["error"].startswith(row["source"])
            say(printable(row["error"] if known else f"{row['source']}: {row['error']}"))
