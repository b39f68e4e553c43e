"""`infscale demo --replay`: a real engine, replayed, and beside it what the sidecar says of it, a line a second.

The engine is a recording (a real vLLM under 0, 1, 4 and 12 clients, then a drain, cancelled requests and a SIGTERM
under load) that this process serves on a free port. The sidecar is a process of its own that reads that port, as it
would read an engine. The truth is what the recorded clients had in flight, out of their own log, when the page that the
engine gives now was recorded: a quarter of a second ago at most.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from infscale.errors import SourceError, UsageError
from infscale.recording import Recording
from infscale.replay import Replay
from infscale.web.bind import listen
from infscale_sim.demo.processes import Process, Processes
from infscale_sim.demo.screen import BAR_WIDTH, GREEN, RED, YELLOW, Screen, clock, count
from infscale_sim.demo.stop import Signals

SECONDS = 55.0
"""How long the replay takes."""

_RECORDINGS = Path(__file__).parents[3] / "tests" / "data" / "recordings"
"""In the repository; the wheel has none."""
_RECORDING = "vllm-0.32.0-single"

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


def run(folder: Path | None, port: int, seconds: float) -> None:
    """The whole demo.

    Args:
        folder: of the recorded run; None: the repository's.
        port: of the sidecar's page.
        seconds: how long the replay takes.

    Raises:
        InfscaleError: what a person is to be told in one line.
        Stopped: a signal came, or nobody reads the output any more.
    """
    signals = Signals()
    recording = Recording.load(_repository_run() if folder is None else folder)
    phase = next((line.phase for line in recording.lines if line.inflight), "")
    recorded_s = recording.end_s - recording.lines[recording.first_of(phase)].t_s
    screen = Screen(max(line.inflight or 0 for line in recording.lines))
    listen(f"127.0.0.1:{port}", "--port").close()  # a taken port is told before anything is started
    with contextlib.ExitStack() as stack:
        processes = stack.enter_context(Processes())
        replay = Replay(recording, start_phase=phase, speed=recorded_s / seconds)
        stack.callback(replay.stop)
        sidecar = Sidecar(processes, replay.url, port)
        sidecar.wait_until_up(signals)
        _head(screen, recording, sidecar.port, seconds)
        show(replay, sidecar, screen, signals)


def _repository_run() -> Path:
    run = _RECORDINGS / _RECORDING
    if not run.is_dir():
        raise UsageError(
            "--replay needs a recorded run, and only infscale's repository has one: tell a folder with --recording DIR"
        )
    return run


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


class Sidecar:
    """A sidecar as a process of its own."""

    def __init__(self, processes: Processes, engine_url: str, port: int) -> None:
        listen_to = ("--web.listen-address", f"127.0.0.1:{port}", "--kubelet.listen-address", "127.0.0.1:0")
        # With the default of a second a line could show the reading of the one before; and nobody waits for its end.
        quick = ("--engine.min-interval", "0.2", "--web.shutdown-delay", "0.1")
        self._process: Process = processes.start(
            "the sidecar", "sidecar", "--engine-url", engine_url, *listen_to, *quick
        )
        self.port = 0

    def wait_until_up(self, signals: Signals) -> None:
        """Wait until it listens.

        Raises:
            SourceError: it ended, or does not listen in time.
            Stopped: a signal came.
        """
        while not (port := self._process.port()):
            signals.check()
            time.sleep(0.05)
        self.port = port

    def read(self) -> Shown:
        """What it says now.

        Raises:
            SourceError: it ended, or its page could not be had.
        """
        self._process.check_alive()
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

    def _get(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()


def show(replay: Replay, sidecar: Sidecar, screen: Screen, signals: Signals) -> None:
    """Start the replay and print a line a second until it is over."""
    recording, tally = replay.recording, Tally()
    began_s = time.monotonic()
    replay.start()
    try:
        for second in itertools.count(1):
            left_s = 1.0
            while left_s > 0:  # once at least: where a machine is too busy for a line a second, each of them is late
                signals.check()
                left_s = began_s + second - time.monotonic()
                if replay.wait(min(0.1, max(0.0, left_s))):
                    return
            shown = sidecar.read()
            line = recording.lines[recording.index_at(replay.now_s)]
            truth = recording.inflight_at(line.t_s) or 0
            screen.say(_line(screen, time.monotonic() - began_s, line.phase, truth, shown, tally.add(truth, shown)))
    finally:
        if tally.agreed or tally.differences or tally.silent:
            screen.say(f"\n{tally.summary()}")


def _head(screen: Screen, recording: Recording, port: int, seconds: float) -> None:
    """What is seen here, and where to look further."""
    page = f"http://127.0.0.1:{port}/"
    screen.say(
        f"A recorded run of {recording.name} is replayed in {seconds:.0f} s and a sidecar reads it. Ctrl-C ends it."
    )
    screen.say(f"The sidecar's page: {page} (what Prometheus reads: {page}metrics)\n")
    titles = "  ".join(f"{title:<{BAR_WIDTH + 5}}" for title in ("truth in flight", "the sidecar says"))
    screen.say(f"{'time':>5}  {'load':<18}  {titles}  running  waiting  state")


def _line(screen: Screen, elapsed_s: float, phase: str, truth: int, shown: Shown, mark: str) -> str:
    """One second."""
    state = shown.state if shown.state == "ok" else screen.paint(YELLOW, shown.state)
    painted = screen.paint(GREEN if mark == "=" else YELLOW if shown.inflight is None else RED, mark)
    return (
        f"{clock(elapsed_s)}  {PHASES.get(phase, phase):<18}  {screen.bar(truth)}  {screen.bar(shown.inflight)}"
        f"  {count(shown.running):>7}  {count(shown.waiting):>7}  {state}  {painted}"
    )
