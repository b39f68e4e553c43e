"""What each kind of listener does to a preStop hook, and for how long: infscale's, and a loop of curl and awk.

    python bench/drain_listeners.py

The installed hook and the loop drain every listener of the tests' table, from an idle engine to one that drips, lies or
is gone, with a grace period G of 15 s, in processes of their own and on the wall clock. Right is who ends before
G - 5 s where nothing is in flight or nothing can be measured, and holds the Pod until then where something is in flight
or may be. infscale's hook has to return by G - 3 s whatever the listener does, and has to report what the table says.
The loop adds up the running and the waiting gauge. Half a minute, most of it waiting.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infscale.drain.bundle import install
from infscale.drain.report import DrainReport

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table and tests.drain

from bench.table import Row, Size, alone, show
from tests.certs import make_certs
from tests.drain import matrix
from tests.drain.kubelet import Hooked, run_hook

GRACE_S, HELD_S, LATEST_S = 15, 10.0, 12.0
STAGGER_S = 0.1
"""Between two starts: 50 interpreters at once would take most of the settle time on two cores."""
LOOP = (
    "until curl -s {url} | awk '/^vllm:num_requests_(running|waiting)[ {{]/ {{ sum += $NF }} END {{ exit sum != 0 }}'; "
    "do sleep 1; done"
)
PEER = "a loop of curl and awk"
SHOWN = ("idle", "never idle", "hangs", "drips", "endless", "refuses", "HTTP 500")
"""Whose seconds are rows of the table."""

Hooks = Mapping[str, Hooked]
"""What a hook did, by listener."""


def drained(listeners: Sequence[matrix.Row], hook: Callable[[str], list[str]]) -> Hooks:
    """Run a hook on each listener, all at the same time."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        certs = make_certs(Path(name))
        pool = stack.enter_context(ThreadPoolExecutor(len(listeners)))
        running = {}
        for listener in listeners:
            command = hook(stack.enter_context(listener.serve(certs)))
            running[listener.name] = pool.submit(run_hook, command, os.environ, GRACE_S)
            time.sleep(STAGGER_S)
        return {name: future.result() for name, future in running.items()}


def right(listeners: Sequence[matrix.Row], hooks: Hooks) -> int:
    """How many listeners a hook judged right: left early, or held the Pod."""
    return sum((hooks[one.name].seconds < HELD_S) is bool(one.reads) for one in listeners)


def as_told(listener: matrix.Row, hooked: Hooked) -> bool:
    """Whether infscale's report is what the table of listeners says: outcome, reads, time."""
    try:
        listener.check(DrainReport.from_json(hooked.out), GRACE_S, wall_clock=True)
    except (AssertionError, ValueError):
        return False
    return hooked.status == 0


def measure(listeners: Sequence[matrix.Row]) -> list[Row]:
    """How many each hook judged right, and for how long some held it."""
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder), ["--grace", str(GRACE_S), "--report-file", "", "--sidecar-url", ""])
        ours = drained(listeners, lambda url: ["sh", f"{folder}/infscale-drain", "--url", url])
    loop = drained(listeners, lambda url: ["sh", "-c", LOOP.format(url=url)]) if shutil.which("curl") else None
    peer = PEER if loop else "curl is absent: apt-get install it"
    count = len(listeners)
    told = [one.name for one in listeners if not as_told(one, ours[one.name])]
    judged = right(listeners, loop) if loop else None
    unit = f"of {count}"
    table = [
        Row("listeners judged right", unit, right(listeners, ours), peer, judged, more_is_better=True, at_least=count),
        Row("reports as the table says", unit, count - len(told), at_least=count, note=", ".join(told)),
    ]
    for name in SHOWN:
        theirs_s = loop[name].seconds if loop else None
        table.append(Row(f"seconds held, {name}", "s", ours[name].seconds, peer, theirs_s, at_most=LATEST_S))
    return table


def rows(size: Size = Size.FULL) -> list[Row]:
    """Every listener; in a tiny run those alone whose seconds are shown."""
    return measure([one for one in matrix.ROWS if size is not Size.TINY or one.name in SHOWN])


def main() -> int:
    """Run alone."""
    options = alone(__doc__).parse_args()
    return show(rows(), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
