"""`infscale` again and again without the 0.5 s of its imports: each run is a process forked from this one.

    python tests/faults/nursery.py recommender ...

Forks a run for each line on standard input, says `PID` once it exists and `ended CODE` when it has; its log is its
standard error.
"""

from __future__ import annotations

import os
import sys

from infscale.cli import COMMANDS, cli, run


def warm() -> None:
    """Import what a run would import, with no thread left behind."""
    import click

    for name in COMMANDS:
        cli.get_command(click.Context(cli), name)
    import infscale.cli.reloading
    import infscale.fleet.parse
    import infscale.recommender
    import infscale.reload
    import infscale.serving  # noqa: F401


def main() -> None:
    """Serve lines until their end."""
    warm()
    print("ready", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(run(sys.argv[1:]))
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
