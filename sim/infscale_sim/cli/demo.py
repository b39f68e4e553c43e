"""`infscale demo`: the whole loop on one machine, or a recorded engine beside its sidecar."""

from __future__ import annotations

from pathlib import Path

import click

from infscale.cli.options import PORT, SECONDS
from infscale.errors import UsageError
from infscale_sim.demo.stop import Stopped

_EXAMPLES = """\b
Examples:
  infscale demo
  infscale demo --seconds 60 --port 10147
  infscale demo --replay
"""


@click.command("demo", epilog=_EXAMPLES)
@click.option("--port", type=PORT, default=10047, show_default=True, help="Of the page to look at; 0 takes a free one.")
@click.option("--seconds", type=SECONDS, help="How long it takes.  [default: 120; with --replay 55]")
@click.option("--replay", "replayed", is_flag=True, help="A recorded engine and its sidecar, instead of the loop.")
@click.option(
    "--recording",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The run to replay.  [default: the repository's]",
)
def command(port: int, seconds: float | None, replayed: bool, recording: Path | None) -> int:
    """Watch replicas follow the load: stand-in engines, sidecars, the recommender, a burst, all on this machine.

    Every process is real but the model. Nothing is left running, and Ctrl-C ends it at any time.
    """
    if recording is not None and not replayed:
        raise UsageError("--recording is for --replay: add it")
    try:
        if replayed:
            from infscale_sim.demo import replay

            replay.run(recording, port, seconds or replay.SECONDS)
        else:
            from infscale_sim.demo import loop, pace

            if seconds is not None and seconds < pace.SHORTEST_S:
                raise UsageError(f"--seconds is {seconds:g}: expected at least {pace.SHORTEST_S:g} without --replay")
            loop.run(port, seconds or pace.SECONDS)
    except Stopped as stopped:
        return stopped.status
    return 0
