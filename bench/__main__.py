"""Run the benchmarks, one after the other, and print one table.

    python -m bench [NAME ...] [--quick] [--json] [--markdown [FILE]] [--check] [--list]

Each runs in a process of its own, so that none sees another's memory, and is ended when it takes too long. A target
that is missed, or a benchmark that fails, is a row that says so; the exit code is 0 all the same unless `--check` is
given. Ctrl-C ends it with what was measured so far. All of them take about five minutes on two cores, with `--quick`
about three. Linux: `/proc` is read.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import difflib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench import table
from bench.table import Row, Size

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
NAMES = (
    "page_to_reading", "page_to_samples", "exposition_growth", "parse_files", "cli_startup", "render", "http_server",
    "sidecar", "decide", "decide_fleet", "fleet", "recommender", "reaction", "drain_start", "drain_listeners",
    "drain_side_by_side", "activator", "simulate", "simpy_step",
)  # fmt: skip
"""In the order of the table: the way of the data, then the roles, then the simulator."""
LIMIT_S = 240.0
"""For one benchmark: twice what the longest takes on two cores."""
CHILD = "import bench.__main__ as b, sys; b.child(*sys.argv[1:])"
NO_FIGURES = "no figures"
"""What a row measured whose benchmark came to nothing."""
STOPPED = "interrupted"
INTERRUPTED = 128 + signal.SIGINT
"""The exit code at Ctrl-C, as a shell has it."""


def child(name: str, size: str) -> None:
    """Measure one benchmark in this process and print its rows, as the last line, for `measured`."""
    rows: Sequence[Row] = importlib.import_module(f"bench.{name}").rows(Size(size))
    print(json.dumps([asdict(row) for row in rows]))


def measured(name: str, size: Size, limit_s: float = LIMIT_S) -> list[Row]:
    """The rows of one benchmark; one that says what went wrong where there are none."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("exporter", "sim", ""))}
    with (
        tempfile.TemporaryDirectory() as folder,  # for what it writes, since it may be killed before it cleans up
        subprocess.Popen(
            [sys.executable, "-c", CHILD, name, size.value],
            cwd=ROOT,
            env={**environment, "TMPDIR": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return [Row(NO_FIGURES, note=f"ended: it took more than {limit_s:g} s", benchmark=name)]
        finally:  # also what it started itself and left behind
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        said = [line.strip() for line in err.splitlines() if line.strip()] or [f"exit code {process.returncode}"]
        return [Row(NO_FIGURES, note=f"failed: {said[-1][:200]}", benchmark=name)]
    return [replace(Row(**row), benchmark=name) for row in json.loads(out.splitlines()[-1])]


def run(names: Sequence[str], size: Size) -> Iterator[Row]:
    """The rows of these benchmarks, with a line of progress on a terminal; at Ctrl-C rows that say so for the rest."""
    began_s = time.monotonic()
    for number, name in enumerate(names, start=1):
        progress(f"{number} of {len(names)}: {name}, {time.monotonic() - began_s:.0f} s so far")
        try:
            rows = measured(name, size)
        except KeyboardInterrupt:
            progress("")
            yield from (Row(NO_FIGURES, note=STOPPED, benchmark=rest) for rest in names[number - 1 :])
            return
        yield from rows
    progress("")


def progress(line: str) -> None:
    """One line, written over the one before; an empty one wipes it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def preface(options: argparse.Namespace, took_s: float) -> list[str]:
    """What stands above the table in Markdown: the command, when, on what."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    words = [
        "python -m bench",
        *options.names,
        *(["--quick"] if options.quick else []),
        *(["--tiny"] if options.tiny else []),
        "--markdown",
    ]
    return [f"`{' '.join(words)}` on {today}, in {took_s:.0f} s: {table.machine()}.", ""]


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line; a name that is no benchmark ends the process with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all without any (--list shows them)")
    parser.add_argument("--list", action="store_true", help="print the benchmarks and end")
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes; its rows say so")
    parser.add_argument(
        "--tiny", action="store_true", help="few repetitions: shows that it works, its figures are noise"
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects in place of the table")
    parser.add_argument(
        "--markdown", type=Path, nargs="?", const=PAGE, metavar="FILE", help="write the table into this page too"
        f" (default {PAGE.relative_to(ROOT)})",
    )  # fmt: skip
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed or a benchmark failed")
    options = parser.parse_args(arguments)
    if options.markdown == PAGE and (options.names or options.quick or options.tiny):
        parser.error(f"{PAGE.relative_to(ROOT)} has the table of a full run: give --markdown a FILE of its own")
    for name in options.names:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            parser.error(f"no benchmark {name!r}: " + (f"did you mean {near[0]}?" if near else "see --list"))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = parsed(arguments)
    if options.list:
        for name in NAMES:
            print(f"{name:20} {summary(name)}")
        return 0
    began_s = time.monotonic()
    size = Size.TINY if options.tiny else Size.QUICK if options.quick else Size.FULL
    rows = list(run(options.names or NAMES, size))
    print(json.dumps(table.as_json(rows), indent=2) if options.json else "\n".join(table.text(rows)))
    if any(row.note == STOPPED for row in rows):
        return INTERRUPTED
    if options.markdown is not None:
        table.put(options.markdown, [*preface(options, time.monotonic() - began_s), *table.markdown(rows)])
    return int(options.check and any(row.met is False or row.what == NO_FIGURES for row in rows))


def summary(name: str) -> str:
    """The first line of a benchmark's docstring, without importing it."""
    first = (ROOT / "bench" / f"{name}.py").read_text(encoding="utf-8").partition("\n")[0]
    return first.strip('"')


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as other programs do at the end of `| head`
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing that was started stays
    sys.exit(main())
