"""`infscale replay`: serve a recorded run of an engine until it is over."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from infscale.cli.options import PORT, envvar_of, option
from infscale.recording import Recording
from infscale.replay import Replay

EXAMPLE = """\b
Example:
  infscale replay tests/data/recordings/vllm-0.32.0-single --port 8000 --from c0
  curl http://127.0.0.1:8000/metrics"""


@click.command(name="replay", epilog=EXAMPLE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@option("--port", type=PORT, required=True, help="Port to serve at; 0 takes a free one.")
@option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to serve at.")
@option(
    "--speed",
    type=float,
    default=1.0,
    metavar="X",
    help="Recorded seconds that pass in a second.",
)
@click.option(
    "--from",
    "start_phase",  # `from` is no name in Python
    default="",
    metavar="PHASE",
    envvar=envvar_of("--from"),
    show_envvar=True,
    help="Begin with the first line of this phase.",
)
@option("--step", is_flag=True, help="Each GET takes the next line of the recording, whatever the time.")
def command(folder: Path, port: int, host: str, speed: float, start_phase: str, step: bool) -> int:
    """Serve the recorded run in DIR at /metrics as the engine served it, failures included, and end with it.

    A GET gets the page whose time has come, byte for byte, at once. Where the engine refused connections nothing
    listens; where it hung the connection is held for the recorded time; where it reset, it is reset.
    """
    recording = Recording.load(folder)
    replay = Replay(recording, host=host, port=port, speed=speed, start_phase=start_phase, step=step)
    with stop_signals() as received, replay:
        pace = "a line a GET" if step else f"{replay.recorded_s:.0f} recorded seconds at speed {speed:g}"
        phases = ", ".join(recording.phases) or "none"
        click.echo(f"replaying {recording.name} at {replay.url}: {pace}, phases: {phases}")
        while not replay.wait(0.1) and not received:
            pass
    click.echo(f"{'stopped' if received else 'the recording is over'}; GETs answered: {replay.gets}")
    return 128 + signal.SIGINT if signal.SIGINT in received else 0


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of ending at them."""
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        """Remember that it came."""
        received.append(number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
