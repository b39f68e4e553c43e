"""Run the scoreboard.

    python -m bench.scoreboard --traces DIR [--rows 1,4] [--jobs 2] [--json] [--markdown docs/scoreboard.md]

Minutes. Every number is simulated and the same for the same traces; one that is absent is told. `--markdown` puts the
tables of all rows into a page, between its lines `<!-- scoreboard -->` and `<!-- end of scoreboard -->`, or writes a
new one.
"""

from __future__ import annotations

import datetime
import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from bench.scoreboard import table
from bench.scoreboard.cases import Case, all_cases
from bench.scoreboard.play import Foresight, Score, foresee, play
from bench.scoreboard.table import Played
from bench.table import command_line, put

COMMAND = 'make scoreboard TRACES=DIR ARGS="--markdown docs/scoreboard.md"'
MARKS = "<!-- scoreboard -->", "<!-- end of scoreboard -->"
ALL_ROWS = "1,2,3,4,5,6"
_ORACLE = -1
"""In place of an entry's number."""
_ORACLE_RUNS = 10
"""About so many policies' time the oracle takes; for the order only: what takes longest starts first."""

_cases: list[Case] = []
"""Set before the processes are forked, which find it here."""


def tasks(cases: list[Case]) -> list[tuple[int, int]]:
    """(case, entry) of everything to simulate, the longest first and the entries of one case together."""
    wanted: list[tuple[float, int, int]] = []
    for index, case in enumerate(cases):
        if case.entries and case.has_oracle:
            wanted.append((-case.scenario.horizon_s * _ORACLE_RUNS, index, _ORACLE))
        wanted += [(-case.scenario.horizon_s, index, number) for number in range(len(case.entries))]
    return [(index, number) for _, index, number in sorted(wanted)]


def work(task: tuple[int, int]) -> Score | Foresight:
    """One task, in a process of its own."""
    case = _cases[task[0]]
    return foresee(case) if task[1] == _ORACLE else play(case, case.entries[task[1]])


def simulate(cases: list[Case], jobs: int) -> dict[tuple[int, int], Score | Foresight]:
    """All tasks, with a line of progress on a terminal."""
    _cases[:] = cases
    wanted, began_s = tasks(cases), time.monotonic()
    results: dict[tuple[int, int], Score | Foresight] = {}
    # Ctrl-C ends the processes at once and without a word; only the first one has something to say.
    quiet = (signal.SIGINT, signal.SIG_DFL)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), signal.signal, quiet) as pool:
        try:
            futures = {pool.submit(work, task): task for task in wanted}
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                progress(len(results), len(wanted), time.monotonic() - began_s)
        except BaseException:
            pool.shutdown(cancel_futures=True, wait=False)
            raise
    return results


def progress(done: int, wanted: int, took_s: float) -> None:
    """One line, written over itself; ended with the last."""
    if sys.stderr.isatty():
        end = "\n" if done == wanted else ""
        print(f"\r{done} of {wanted} runs, {took_s:.0f} s", end=end, file=sys.stderr, flush=True)


def played(cases: Iterable[Case], jobs: int) -> Iterator[Played]:
    """Every case with its results."""
    cases = list(cases)
    results = simulate(cases, jobs)
    for index, case in enumerate(cases):
        scores = [(entry, results[index, number]) for number, entry in enumerate(case.entries)]
        foresight = results.get((index, _ORACLE))
        yield Played(
            case,
            tuple((entry, score) for entry, score in scores if isinstance(score, Score)),
            foresight if isinstance(foresight, Foresight) else None,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command_line(__doc__)
    parser.prog = "python -m bench.scoreboard"
    parser.add_argument("--traces", type=Path, metavar="DIR", help="folder with the public traces")
    parser.add_argument("--rows", default=ALL_ROWS, help="which rows, as 1,4")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the tables into this page too")
    options = parser.parse_args(arguments)
    rows = options.rows.split(",")
    if not set(rows) <= set(ALL_ROWS.split(",")):
        parser.error(f"--rows {options.rows}: expected some of {ALL_ROWS}")
    if options.markdown is not None and set(rows) != set(ALL_ROWS.split(",")):
        parser.error("--markdown is for all rows: the page says that it was made by one command")
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: expected 1 or more")
    if options.traces is not None and not options.traces.is_dir():
        parser.error(f"--traces {options.traces}: no such folder")
    cases = [case for case in all_cases(options.traces) if str(case.row) in rows]
    results = list(played(cases, options.jobs))
    print(json.dumps(table.as_json(results), indent=2) if options.json else "\n".join(table.text(results)))
    if options.markdown is not None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        put(options.markdown, table.markdown(results, COMMAND, today), "Scoreboard", MARKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
