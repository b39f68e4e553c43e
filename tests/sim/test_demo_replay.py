"""`infscale demo --replay`: a recorded engine and what a sidecar says of it."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from typing import cast

import pytest

from infscale.recording import Recording
from infscale.replay import Replay
from infscale_sim.demo.replay import Shown, Sidecar, show
from infscale_sim.demo.screen import Screen
from infscale_sim.demo.stop import Signals, Stopped
from tests.recorded import VLLM
from tests.sim.demo_process import children_of, demo, ended, is_gone, port_of, told_of_taken_port

LINE = re.compile(
    r"^ *\d+:\d\d  .{18}  +(\d+) #* +(\d+|-) #* +(\d+|-) +(\d+|-)  (\w+)  (=|differs by [+-]\d+|shows no value)$"
)
"""A line of the demo: truth, shown, running, waiting, state, mark."""


def first_line(process: subprocess.Popen[str]) -> str:
    """Wait for the first line with values: everything is up then."""
    assert process.stdout
    for text in process.stdout:
        if LINE.match(text.rstrip("\n")):
            return text
    raise AssertionError("the demo ended before its first line")


def test_demo_shows_truth_and_sidecar_side_by_side(tmp_path):
    """The demo replays a real engine, shows truth and sidecar a line a second, ends by itself, leaves nothing."""
    folder = tmp_path / VLLM.name
    shutil.copytree(VLLM, folder)
    timeline = folder / "timeline.jsonl"
    last = json.loads(timeline.read_text().splitlines()[-1])
    with timeline.open("a") as lines:  # 20 s more of an engine that is gone, so that a line of the demo falls into them
        lines.writelines(json.dumps({**last, "t": last["t"] + step}) + "\n" for step in range(1, 21))
    with demo("--replay", "--seconds", "7", "--recording", str(folder)) as process:
        status, out, err = ended(process)
        assert (status, err) == (0, "")
        assert f"http://127.0.0.1:{port_of(process)}/ " in out
        assert "\x1b" not in out  # no colour where no terminal is
        shown = [found.groups() for text in out.splitlines() if (found := LINE.match(text))]
        assert len(shown) >= 5
        answered = [(int(truth), int(inflight)) for truth, inflight, *_ in shown if inflight != "-"]
        assert sum(truth == inflight for truth, inflight in answered) >= len(answered) / 2
        assert any(running == "4" and int(waiting) >= 4 for _, _, running, waiting, state, _ in shown if state == "ok")
        assert shown[-1] == ("0", "-", "-", "-", "unreachable", "shows no value")  # gone, which is not 0
        assert re.search(r"agreed on \d+ of \d+ lines\..* On \d+ more the sidecar showed no value", out)
        assert is_gone(port_of(process))


def test_demo_shows_a_tampered_page(tmp_path):
    """Pages whose running gauge was rewritten show as differences, red on a terminal, and the closing words say so."""
    folder = tmp_path / "tampered"
    shutil.copytree(VLLM, folder)
    for page in folder.glob("*.prom.gz"):
        text = gzip.decompress(page.read_bytes())
        page.write_bytes(gzip.compress(re.sub(rb"(?m)^(vllm:num_requests_running\{.*\}) .*$", rb"\1 99.0", text), 1))
    status, out = on_terminal("--seconds", "3", "--recording", str(folder), TERM="xterm", NO_COLOR="")
    assert status == 0
    assert len(re.findall(r"  ok  \x1b\[31mdiffers by \+(?:8\d|9\d|10\d)\x1b\[0m", out)) >= 2
    assert "\x1b[32m=" not in out
    assert "do not belong together" in out


def on_terminal(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run the demo on a terminal: status and what was on the screen."""
    terminal, screen = os.openpty()
    with demo("--replay", *arguments, stdout=screen, **environment) as process:
        os.close(screen)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal ends on Linux
            while chunk := os.read(terminal, 4096):
                shown += chunk
        os.close(terminal)
        return ended(process)[0], shown.decode()


@pytest.mark.parametrize("environment", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb", "NO_COLOR": ""}])
def test_no_colour_where_it_is_not_wanted(environment):
    """NO_COLOR and a dumb terminal get plain lines."""
    status, out = on_terminal("--seconds", "1.2", **environment)
    assert status == 0
    assert "agreed on" in out
    assert "\x1b" not in out


def test_signals_end_the_demo_and_its_sidecar():
    """Ctrl-C, SIGTERM and the end of the terminal end the demo with its closing words and leave nothing running."""
    wanted = {signal.SIGINT: 0, signal.SIGTERM: 143, signal.SIGHUP: 129}
    with contextlib.ExitStack() as stack:
        demos = {number: stack.enter_context(demo("--replay")) for number in wanted}
        for number, process in demos.items():
            first_line(process)
            assert not is_gone(port_of(process))
            process.send_signal(number)
        for number, process in demos.items():
            status, out, err = ended(process)
            assert (status, err) == (wanted[number], "")
            assert "agreed on" in out
            assert is_gone(port_of(process))


def test_demo_ends_when_nobody_reads_it():
    """A closed pipe (or a terminal that went away) ends the demo without a traceback, and nothing is left running."""
    read_end, write_end = os.pipe()
    with demo("--replay", stdout=write_end) as process:
        os.close(write_end)
        os.read(read_end, 10)
        os.close(read_end)
        status, _, err = ended(process)
        assert (status, err) == (128 + signal.SIGPIPE, "")
        assert is_gone(port_of(process))


def test_demo_tells_a_taken_port_in_a_line():
    """A port that is taken is one line that says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with demo("--replay", "--port", str(port)) as process:
            status, out, err = ended(process)
    assert (status, out) == (2, "")
    assert err == told_of_taken_port(port)


def test_demo_tells_a_bad_recording_in_a_line(tmp_path):
    """A folder that is no recording is one line."""
    with demo("--replay", "--recording", str(tmp_path)) as process:
        assert ended(process) == (2, "", f"infscale: {tmp_path}: no timeline.jsonl in it: this is not a recorded run\n")


def test_demo_tells_that_the_sidecar_died():
    """A sidecar that is killed ends the demo with one line on standard error."""
    with demo("--replay") as process:
        first_line(process)
        for pid in children_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        status, out, err = ended(process)
    assert status == 1
    assert re.fullmatch(r"infscale: the sidecar ended with status -9: .*\n", err)
    assert "agreed on" in out


def test_a_demo_that_is_late_with_each_line_can_be_ended_and_ends():
    """On a machine that takes more than a second for a line: a signal ends it, and so does the end of the recording."""

    class Late:
        def read(self) -> Shown:
            time.sleep(1.05)
            return Shown("ok", 0.0, 0.0, 0.0)

    class Told(Signals):
        def __init__(self) -> None:
            self._received = 0

    signals, recording = Told(), Recording.load(VLLM)
    slow, fast = Replay(recording), Replay(recording, speed=500.0)
    with contextlib.ExitStack() as stack:
        stack.callback(slow.stop)
        stack.callback(fast.stop)
        threading.Timer(2.5, signals._on_signal, (signal.SIGTERM, None)).start()
        with pytest.raises(Stopped, match="SIGTERM"):
            show(slow, cast(Sidecar, Late()), Screen(12), signals)
        show(fast, cast(Sidecar, Late()), Screen(12), Told())
