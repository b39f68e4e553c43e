"""`make demo`: a real engine, replayed, and beside it what the sidecar says of it, a line a second for a minute.

The engine is a recording (a real vLLM under 0, 1, 4 and 12 clients, then a drain, cancelled requests and a SIGTERM
under load) that this process serves on a free port. The sidecar is a process of its own that reads that port, as it
would read an engine. The truth is what the recorded clients had in flight, out of their own log, when the page that the
engine gives now was recorded: a quarter of a second ago at most.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

import click
from prometheus_client.parser import text_string_to_metric_families

from infscale.cli.options import SECONDS
from infscale.errors import InfscaleError, SourceError, UsageError
from infscale.recording import Recording
from infscale.replay import Replay

RECORDING = Path(__file__).parent.parent / "tests" / "data" / "recordings" / "vllm-0.32.0-single"
SIDECAR = (sys.executable, "-m", "infscale", "sidecar")
START_LIMIT_S = 20.0
"""For the sidecar's first answer: it needs half a second on an idle machine."""
STOP_LIMIT_S = 2.0
"""From SIGTERM to SIGKILL."""
BAR_WIDTH = 14

PHASES = {
    "warmup": "the first request",
    "c0": "idle",
    "c1": "1 client",
    "c4": "4 clients",
    "c12": "12 clients",
    "drain": "clients leave",
    "drained": "idle again",
    "cancel-before": "12 clients",
    "cancel": "they hang up",
    "cancelled": "idle again",
    "headers": "idle",
    "term-before": "load again",
    "term": "SIGTERM",
    "exited": "the engine is gone",
}
"""What a person reads for the names of the load steps."""


class Stopped(Exception):
    """The demo is to end: a signal came, or nobody reads its output any more."""

    def __init__(self, number: int) -> None:
        self.status = 0 if number == signal.SIGINT else 128 + number


class Signals:
    """Remembers Ctrl-C, SIGTERM and the end of the terminal; the demo asks, so that nothing is cut short halfway."""

    def __init__(self) -> None:
        self._received = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # ignored: nohup
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received = number

    def check(self) -> None:
        """Raise Stopped once one of them came."""
        if self._received:
            raise Stopped(self._received)


@dataclass(frozen=True)
class Shown:
    """What the sidecar said over HTTP; None for what it did not show."""

    state: str
    inflight: float | None
    running: float | None
    waiting: float | None


@dataclass
class Tally:
    """How the lines so far came out."""

    agreed: int = 0
    silent: int = 0
    differences: list[int] = field(default_factory=list)

    def add(self, truth: int, shown: Shown) -> str:
        """Count a line, and give its mark."""
        if shown.inflight is None:
            self.silent += 1
            return "shows no value"
        difference = round(shown.inflight) - truth
        if difference:
            self.differences.append(difference)
            return f"differs by {difference:+d}"
        self.agreed += 1
        return "="

    def summary(self) -> str:
        """The closing words."""
        differed = len(self.differences)
        text = f"The truth and the sidecar agreed on {self.agreed} of {self.agreed + differed} lines."
        if differed:
            text += f" They differed by {min(self.differences):+d} to {max(self.differences):+d} on the rest"
            if differed > (self.agreed + differed) / 4:
                text += ", which is too often: these pages and these clients do not belong together."
            else:
                text += ": normal for a line, within one step of the engine after a change."
        if self.silent:
            text += f" On {self.silent} more the sidecar showed no value, since the engine gave none."
        return text


class Screen:
    """The lines on standard output: coloured on a terminal that can, plain elsewhere."""

    def __init__(self, most: int) -> None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
        self._coloured = sys.stdout.isatty() and not plain
        self._most = max(1, most)

    def head(self, recording: Recording, port: int, seconds: float) -> None:
        """What is seen here, and where to look further."""
        page = f"http://127.0.0.1:{port}/"
        self.say(
            f"A recorded run of {recording.name} is replayed in {seconds:.0f} s and a sidecar reads it. Ctrl-C ends it."
        )
        self.say(f"The sidecar's page: {page} (what Prometheus reads: {page}metrics)\n")
        titles = "  ".join(f"{title:<{BAR_WIDTH + 5}}" for title in ("truth in flight", "the sidecar says"))
        self.say(f"{'time':>5}  {'load':<18}  {titles}  running  waiting  state")

    def line(self, elapsed_s: float, phase: str, truth: int, shown: Shown, mark: str) -> None:
        """One second."""
        clock = f"{int(elapsed_s) // 60:>2}:{int(elapsed_s) % 60:02}"
        state = shown.state if shown.state == "ok" else self._paint("33", shown.state)
        painted = self._paint("32" if mark == "=" else "33" if shown.inflight is None else "31", mark)
        self.say(
            f"{clock}  {PHASES.get(phase, phase):<18}  {self._bar(truth)}  {self._bar(shown.inflight)}"
            f"  {_count(shown.running):>7}  {_count(shown.waiting):>7}  {state}  {painted}"
        )

    def say(self, text: str) -> None:
        """Print a line.

        Raises:
            Stopped: nobody reads it.
        """
        try:
            print(text, flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python itself flushes at its end
            raise Stopped(signal.SIGPIPE) from None

    def _bar(self, value: float | None) -> str:
        """A number and a bar, of one width."""
        length = 0 if value is None else min(BAR_WIDTH, round(value * BAR_WIDTH / self._most))
        return f"{_count(value):>4} {'#' * length:<{BAR_WIDTH}}"

    def _paint(self, colour: str, text: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self._coloured else text


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


class Sidecar:
    """A sidecar as a process of its own, in a process group of its own."""

    def __init__(self, engine_url: str, port: int, log: IO[str]) -> None:
        self.port, self._log = port, log
        listen = ("--web.listen-address", f"127.0.0.1:{port}", "--kubelet.listen-address", "127.0.0.1:0")
        # With the default of a second a line could show the reading of the one before; and nobody waits for its end.
        quick = ("--engine.min-interval", "0.2", "--web.shutdown-delay", "0.1")
        foreign = {name: value for name, value in os.environ.items() if not name.startswith("INFSCALE_")}
        self.process = subprocess.Popen(
            (*SIDECAR, "--engine-url", engine_url, *listen, *quick),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=foreign,
            start_new_session=True,
        )

    def wait_until_up(self, signals: Signals) -> None:
        """Wait for its first answer.

        Raises:
            SourceError: it ended, or did not answer in time.
        """
        end_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end_s:
            signals.check()
            self._check_alive()
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._get()
                return
            time.sleep(0.05)
        raise SourceError(f"the sidecar did not answer within {START_LIMIT_S:.0f} s: {self._last_words()}")

    def read(self) -> Shown:
        """What it says now.

        Raises:
            SourceError: it ended, or its page could not be had.
        """
        self._check_alive()
        try:
            samples = [sample for family in text_string_to_metric_families(self._get()) for sample in family.samples]
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SourceError(f"the sidecar's page at port {self.port} could not be read: {error}") from error
        state, sums = "", dict[str, float]()
        for sample in samples:
            if sample.name == "infscale_engine_state" and sample.value == 1:
                state = sample.labels["state"]
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
        values = (sums.get(f"infscale_{name}_requests") for name in ("inflight", "running", "waiting"))
        return Shown(state, *values)

    def stop(self) -> None:
        """End the whole process group, by force if it takes long."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_LIMIT_S)

    def _get(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def _check_alive(self) -> None:
        status = self.process.poll()
        if status is not None:
            raise SourceError(f"the sidecar ended with status {status}: {self._last_words()}")

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read()[-10_000:].strip().splitlines()
        return lines[-1] if lines else "it said nothing"


@contextlib.contextmanager
def sidecar_on(engine_url: str, port: int, signals: Signals) -> Iterator[Sidecar]:
    """A sidecar that is up, for as long as the context lasts; nothing is left of it afterwards."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise UsageError(f"port {port} on 127.0.0.1: {error.strerror}; choose another: make demo PORT=10147") from error
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        sidecar = Sidecar(engine_url, port, log)
        try:
            sidecar.wait_until_up(signals)
            yield sidecar
        finally:
            sidecar.stop()


def show(replay: Replay, sidecar: Sidecar, screen: Screen, signals: Signals) -> None:
    """Start the replay and print a line a second until it is over."""
    recording, tally = replay.recording, Tally()
    began_s = time.monotonic()
    replay.start()
    try:
        for second in itertools.count(1):
            while (left_s := began_s + second - time.monotonic()) > 0:
                signals.check()
                if replay.wait(min(0.1, left_s)):
                    return
            shown = sidecar.read()
            line = recording.lines[recording.index_at(replay.now_s)]
            truth = recording.inflight_at(line.t_s) or 0
            screen.line(time.monotonic() - began_s, line.phase, truth, shown, tally.add(truth, shown))
    finally:
        if tally.agreed or tally.differences or tally.silent:
            screen.say(f"\n{tally.summary()}")


def run(folder: Path, port: int, seconds: float) -> None:
    """The whole demo.

    Raises:
        InfscaleError: what a person is to be told in one line.
        Stopped: a signal came, or nobody reads the output any more.
    """
    signals = Signals()
    recording = Recording.load(folder)
    phase = next((line.phase for line in recording.lines if line.inflight), "")
    recorded_s = recording.end_s - recording.lines[recording.first_of(phase)].t_s
    screen = Screen(max(line.inflight or 0 for line in recording.lines))
    replay = Replay(recording, start_phase=phase, speed=recorded_s / seconds)
    with contextlib.ExitStack() as stack:
        stack.callback(replay.stop)
        sidecar = stack.enter_context(sidecar_on(replay.url, port, signals))
        screen.head(recording, port, seconds)
        show(replay, sidecar, screen, signals)


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), default=10047, show_default=True, help="Port of the sidecar's page."
)
@click.option("--recording", "folder", type=click.Path(path_type=Path), default=RECORDING, help="The run to replay.")
@click.option("--seconds", type=SECONDS, default=55.0, show_default=True, help="How long the replay takes.")
def main(port: int, folder: Path, seconds: float) -> NoReturn:
    """Replay a real engine and show, a line a second, what it had in flight and what the sidecar says of it."""
    try:
        run(folder, port, seconds)
    except Stopped as stopped:
        sys.exit(stopped.status)
    except InfscaleError as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(error.exit_code)
    sys.exit(0)


if __name__ == "__main__":
    main()
