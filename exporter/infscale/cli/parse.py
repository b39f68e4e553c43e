"""`infscale parse`: read metrics pages once, from files or URLs, and print what they say, a row each.

Exit status: 0 all were read (ok, fresh, asleep or stale), 1 one was not, 2 bad usage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option, every_setting
from infscale.cli.engine_options import chosen, engine_options
from infscale.cli.options import SECONDS, option
from infscale.cli.sources import Named, Outcome, Reader, cell, named, tell_errors, whole
from infscale.errors import printable
from infscale.reading import ASLEEP, FRESH, OK, STALE, ReadFailure

if TYPE_CHECKING:
    from infscale.config import Config

Row = dict[str, Any]

_READ = (OK, FRESH, ASLEEP, STALE)
_NUMBERS = ("running", "waiting", "inflight", "kv", "prompt_tokens", "generation_tokens")
_RATES = ("tokens_per_second", "cpu")
_HEADINGS = {"prompt_tokens": "PROMPT", "generation_tokens": "GENERATED", "tokens_per_second": "TOKENS/S"}
_EXAMPLES = """\b
Examples:
  infscale parse http://127.0.0.1:8000/metrics
  infscale parse --interval 5 http://10.0.0.7:8000/metrics http://10.0.0.8:8000/metrics
  curl -s http://127.0.0.1:8000/metrics | infscale parse --format json -
"""


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
    reader = Reader(chosen(config_file, engine, engine_select), strict)
    targets = [named(source, connection) for source in sources]
    rows = _rows(reader, targets, interval)
    click.echo(_json(rows) if format == "json" else "\n".join(_table(rows)))
    tell_errors((row["source"], row["error"]) for row in rows)
    ctx.exit(0 if all(row["state"] in _READ for row in rows) else 1)


def _rows(reader: Reader, targets: list[Named], interval_s: float | None) -> list[Row]:
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
    numbers = {key: whole(getattr(read, key)) for key in _NUMBERS}
    model = ", ".join(part.model for part in read.models if part.model) or None
    return {**told, **numbers, "model": model, "warnings": list(read.warnings), "error": None}


def _row_of_two(source: str, before: Outcome, after: Outcome, elapsed_s: float) -> Row:
    """The second of two reads, with what moved since the first."""
    if isinstance(before, ReadFailure) or isinstance(after, ReadFailure):
        return {**_row(source, after), **dict.fromkeys(_RATES)}
    from infscale.reads import Rates, rates, read_of
    from infscale.watch import Watch, restarted

    watch = Watch()
    watch.step(before, 0.0)
    view = watch.step(after, elapsed_s)
    row = _row(source, after)
    if view.reading is None:
        row = _row(source, ReadFailure(view.state, "missing", view.message, after.engine))
    elif view.state == STALE:
        row.update(state=STALE, warnings=[*row["warnings"], view.message])
    moved = Rates()
    if not restarted(before, after):
        moved = rates(read_of(before, 0.0), read_of(after, elapsed_s), cpu_request=1.0)
    return {**row, "tokens_per_second": _short(moved.tokens_per_second), "cpu": _short(moved.cpu_ratio)}


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _json(rows: list[Row]) -> str:
    """A list with a line for each row."""
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]"


def _table(rows: list[Row]) -> Iterable[str]:
    from infscale.cli.table import aligned

    numbers = [key for key in (*_NUMBERS, *_RATES) if key in rows[0]]
    columns = ["source", "engine", "state", *numbers, "model"]
    heading = [_HEADINGS.get(key, key.upper()) for key in columns]
    cells = [[cell(row[key]) for key in columns] for row in rows]
    lines = aligned([heading, *cells], right=range(3, 3 + len(numbers)))
    yield lines[0]
    for line, row in zip(lines[1:], rows, strict=True):
        yield line
        yield from (f"  warning: {printable(warning)}" for warning in row["warnings"])
        if row["error"]:
            yield f"  error: {printable(row['error'])}"
