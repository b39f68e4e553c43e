"""`infscale demo`: replicas follow the load, no request is cut, nothing is left running."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time

import pytest
import requests

from tests.sim.demo_process import (
    LONG_S,
    children_of,
    demo,
    ended,
    is_gone,
    lives,
    port_of,
    told_of_taken_port,
)

LINE = re.compile(r"^ *\d+:\d\d +\d+\.\d +(?:\d+|-) #* +(?:\d+|-) +(\d+|-)  (\d+)(?: \+(\d+))?(?: -(\d+))? +\w+")
"""A line of the table: recommended, serving, starting, draining."""


def lines(process: subprocess.Popen[str], until: re.Pattern[str]) -> list[str]:
    """Read the output up to a line that matches."""
    assert process.stdout
    seen: list[str] = []
    for text in process.stdout:
        seen.append(text)
        if until.search(text):
            return seen
    raise AssertionError("the demo ended early:\n" + "".join(seen))


def all_gone(pids: set[int]) -> bool:
    """Whether none of these processes lives, after a while."""
    end_s = time.monotonic() + LONG_S
    while any(map(lives, pids)):
        if time.monotonic() > end_s:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.timeout(150)
def test_replicas_follow_the_load():
    """A burst brings replicas, its end takes them away, drained; every request is answered, and the page shows it."""
    pids: set[int] = set()
    with demo("--seconds", "20") as process:
        seen = lines(process, re.compile("serves, "))  # a third replica is up
        pids |= set(children_of(process.pid))
        page = requests.get(f"http://127.0.0.1:{port_of(process)}/", timeout=LONG_S)
        seen += lines(process, re.compile("drained, "))
        pids |= set(children_of(process.pid))
        status, out, err = ended(process, within_s=100)
    assert (status, err) == (0, "")
    out = "".join(seen) + out
    assert "infscale recommender demo/stand-in" in page.text
    assert "queue: " in page.text

    table = [found.groups() for text in out.splitlines() if (found := LINE.match(text))]
    assert {table[0][1], table[-1][1]} == {"2"}
    assert max(int(serving) for _, serving, _, _ in table) >= 4
    assert any(starting for _, _, starting, _ in table)
    assert any(draining for _, _, _, draining in table)

    answered = re.search(r"^(\d+) of (\d+) requests answered, 0 failed \(0 of them cut\)\.$", out, re.MULTILINE)
    assert answered
    assert answered[1] == answered[2]
    drained = re.search(
        r"^(\d+) replicas were drained before SIGTERM, (\d+) of them had nothing in flight", out, re.MULTILINE
    )
    assert drained
    assert drained[1] == drained[2]
    assert re.search(r"^Time to first token: p50 0\.\d+ s, ", out, re.MULTILINE)
    assert "\x1b" not in out

    assert len(pids) >= 6  # two engines and sidecars at least, and a third of each
    assert all_gone(pids)
    assert is_gone(port_of(process))


@pytest.mark.parametrize(("number", "wanted"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_end_it(number, wanted):
    """Ctrl-C and SIGTERM end it with its closing words, and leave nothing running."""
    with demo() as process:
        lines(process, LINE)
        pids = set(children_of(process.pid))
        process.send_signal(number)
        status, out, err = ended(process)
    assert (status, err) == (wanted, "")
    assert "requests answered, 0 failed" in out
    assert len(pids) >= 4
    assert all_gone(pids)


def test_killed_demo_leaves_nothing():
    """Even SIGKILL, which the demo cannot see, leaves no process."""
    with demo() as process:
        lines(process, re.compile("time +req/s"))  # the first engines are starting
        while len(pids := set(children_of(process.pid))) < 3:
            time.sleep(0.05)
        process.kill()
        process.wait(LONG_S)
        assert all_gone(pids)


def test_lost_engine_is_told():
    """An engine that dies by itself ends the demo with one line."""
    with demo() as process:
        lines(process, LINE)
        pids = set(children_of(process.pid))
        for pid in pids:
            shown = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=True)
            if " sim-engine " in shown.stdout:
                os.kill(pid, signal.SIGKILL)
                break
        status, out, err = ended(process)
    assert status == 1
    assert re.fullmatch(r"infscale: the engine of replica [12] ended with status -9: .*\n", err)
    assert "requests answered" in out
    assert all_gone(pids)


def test_nobody_reads():
    """A closed pipe ends it without a traceback."""
    read_end, write_end = os.pipe()
    with demo(stdout=write_end) as process:
        os.close(write_end)
        os.read(read_end, 10)
        os.close(read_end)
        status, _, err = ended(process)
    assert (status, err) == (128 + signal.SIGPIPE, "")


def test_taken_port_is_a_line():
    """A port that is taken is one line, before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with demo("--port", str(port)) as process:
            assert ended(process) == (2, "", told_of_taken_port(port))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--seconds", "5"), "infscale: --seconds is 5: expected at least 20 without --replay\n"),
        (("--recording", "."), "infscale: --recording is for --replay: add it\n"),
    ],
)
def test_wrong_flags_are_a_line(arguments, told):
    """Flags that do not fit are one line."""
    with demo(*arguments) as process:
        assert ended(process) == (2, "", told)


def test_colour_on_a_terminal():
    """On a terminal the closing words are coloured; what both demos share is tested with the replay."""
    terminal, screen = os.openpty()
    with demo(stdout=screen, TERM="xterm", NO_COLOR="") as process:
        os.close(screen)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal ends on Linux
            while chunk := os.read(terminal, 4096):
                shown += chunk
                if process.poll() is None and re.search(rb"\d:\d\d +\d\.\d ", shown):
                    process.send_signal(signal.SIGINT)
        os.close(terminal)
        assert ended(process)[0] == 0
    assert re.search(rb"\x1b\[32m\d+ of \d+ requests answered", shown)
