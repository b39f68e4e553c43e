from __future__ import annotations

import http.client
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from infscale.cli.replay import command
from infscale.errors import SourceError, UsageError
from infscale.recording import Recording
from infscale.replay import Replay
from tests.recorded import RUNS, VLLM, failed, row, write

LONG_S = 10.0
"""A wait that a busy machine does not exceed."""


def address_of(replay: Replay) -> tuple[str, int]:
    """Host and port to connect to."""
    host, port = replay.address.rsplit(":", 1)
    return host, int(port)


class Answer:
    """One answer over a connection of its own."""

    def __init__(self, replay: Replay, method: str = "GET", path: str = "/metrics", timeout_s: float = LONG_S) -> None:
        connection = http.client.HTTPConnection(*address_of(replay), timeout=timeout_s)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            self.status, self.headers, self.body = response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()


def eventually(happened, what: str):
    """Wait for something that another thread brings about, and return it."""
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        if result := happened():
            return result
        time.sleep(0.005)
    raise AssertionError(f"{what}: not within {LONG_S} s")


def refused(replay: Replay) -> bool:
    """Whether a connection is refused now."""
    try:
        socket.create_connection(address_of(replay), timeout=LONG_S).close()
    except ConnectionRefusedError:
        return True
    return False


def is_cut(connection: socket.socket) -> bool:
    """Whether the other side closes or resets a connection without a word."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


class Clock:
    """A clock that a test drives."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def check_step_by_step(run: Path) -> None:
    """Replay a whole recording a GET a line over HTTP; compare each answer with its line."""
    recording = Recording.load(run)
    expected = [line for line in recording.lines if line.failure != "refused"]
    with Replay(recording, step=True, speed=1000) as replay:
        for line in expected:
            eventually(lambda: not refused(replay), "the listener opens after refused lines")
            if line.failure:
                with pytest.raises(ConnectionError):
                    Answer(replay)
            else:
                answer = Answer(replay)
                assert (answer.status, answer.body) == (line.status, recording.page(line))
                own = {"Content-Length", "Connection"}
                recorded = {name: value for name, value in line.headers if name not in own}
                assert {name: value for name, value in answer.headers.items() if name not in own} == recorded
                assert answer.headers["Content-Length"] == str(len(answer.body))
            assert replay.line == line
        assert replay.wait(LONG_S)
        assert replay.gets == len(expected)
        assert refused(replay)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_steps_through_a_shipped_recording(run):
    """By step every line of a real run arrives once, in order: status, header fields and bytes as recorded."""
    check_step_by_step(run)


def test_steps_through_further_recordings(recording):
    """The same for the recordings given with --recordings, those without a clock included."""
    check_step_by_step(recording)


def test_step_starts_at_a_phase(tmp_path):
    """`start_phase` begins with the first line of that phase."""
    recording = Recording.load(VLLM)
    with Replay(recording, step=True, start_phase="c12") as replay:
        assert Answer(replay).status == 200
        assert replay.line == next(line for line in recording.lines if line.phase == "c12")


def test_step_closes_the_listener_where_lines_are_refused(tmp_path):
    """Before refused lines the listener is closed ahead of the answer, and reopened with the first line after them."""
    rows = [row(0, "a 1\n"), failed(1, "refused"), failed(2, "refused"), row(3, "a 2\n"), row(4, "a 3\n")]
    with Replay(Recording.load(write(tmp_path, rows)), step=True, speed=4) as replay:
        assert Answer(replay).body == b"a 1\n"
        assert refused(replay)  # at once, for 2 s over the speed
        eventually(lambda: not refused(replay), "the listener opens again")
        assert replay.gets == 1
        assert Answer(replay).body == b"a 2\n"
        assert not refused(replay)
        assert Answer(replay).body == b"a 3\n"
        assert replay.wait(LONG_S)


def test_step_shortens_a_long_refusal(tmp_path):
    """Minutes of refused connections last a second by step."""
    rows = [failed(0, "refused"), row(600, "a 1\n")]
    began_s = time.monotonic()
    with Replay(Recording.load(write(tmp_path, rows)), step=True) as replay:
        assert refused(replay)
        eventually(lambda: not refused(replay), "the listener opens")
        assert time.monotonic() - began_s >= 1.0
        assert Answer(replay).body == b"a 1\n"


def test_http_errors_are_served_as_recorded(tmp_path):
    """A status other than 200 comes with its own fields and body, or without a body where none was recorded."""
    rows = [
        row(0, "", status=503, headers={"Content-Type": "application/json", "Retry-After": "3"}),
        row(1, '{"error": "loading"}', status=503, headers={"Content-Type": "application/json"}),
        row(2, "no", status=401, headers={"WWW-Authenticate": "Bearer", "Connection": "close"}),
    ]
    with Replay(Recording.load(write(tmp_path, rows)), step=True) as replay:
        first, second, third = Answer(replay), Answer(replay), Answer(replay)
    assert (first.status, first.body, first.headers["Retry-After"]) == (503, b"", "3")
    assert (second.status, second.body) == (503, b'{"error": "loading"}')
    assert (third.status, third.body, third.headers["WWW-Authenticate"]) == (401, b"no", "Bearer")


def test_reset_is_a_reset(tmp_path):
    """A reset line resets the connection after the request."""
    rows = [failed(0, "reset"), row(1, "a 1\n")]
    with Replay(Recording.load(write(tmp_path, rows)), step=True) as replay:
        with pytest.raises(ConnectionResetError):
            Answer(replay)
        assert Answer(replay).body == b"a 1\n"


def test_timeout_holds_the_connection(tmp_path):
    """A time-out line accepts, and answers nothing for the recorded latency over the speed; others are not held up."""
    rows = [failed(0, "timeout", latency_ms=2000), row(2, "a 1\n"), failed(3, "timeout", latency_ms=3_600_000)]
    with Replay(Recording.load(write(tmp_path, rows)), step=True, speed=4) as replay:
        began_s = time.monotonic()
        with pytest.raises(http.client.RemoteDisconnected):
            Answer(replay)
        assert time.monotonic() - began_s >= 0.5
        assert Answer(replay).body == b"a 1\n"
        with pytest.raises(TimeoutError):
            Answer(replay, timeout_s=0.2)
        assert replay.line == replay.recording.lines[2]
        assert replay.wait(LONG_S)  # the client's patience ended the hold, and the recording with it


def test_time_moves_the_lines(tmp_path):
    """By time a GET gets the line whose time has come, as often as it asks, and refused lines close the listener."""
    rows = [
        row(50, "a 1\n", phase="c1"),
        row(50.5, "a 2\n"),
        failed(51, "refused"),
        failed(52, "refused"),
        row(53, "a 3\n"),
    ]
    clock = Clock()
    with Replay(Recording.load(write(tmp_path, rows)), speed=2, clock=clock) as replay:
        assert [Answer(replay).body for _ in range(3)] == [b"a 1\n"] * 3
        clock.now_s += 0.25
        assert replay.now_s == 50.5
        assert Answer(replay).body == b"a 2\n"
        clock.now_s += 0.5
        eventually(lambda: refused(replay), "the listener closes")
        clock.now_s += 0.7  # still refused: the second of the lines
        time.sleep(0.1)
        assert refused(replay)
        clock.now_s += 0.05
        eventually(lambda: not refused(replay), "the listener opens")
        assert Answer(replay).body == b"a 3\n"
        assert not replay.wait(0)
        clock.now_s += 0.5  # the last line has the usual time, 1 s over the speed
        assert replay.wait(LONG_S)
        assert refused(replay)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_time_at_high_speed(run):
    """A real run at a hundred times its speed: every answer is a page of it, in order, and it ends by itself."""
    recording = Recording.load(run)
    numbers, failures = [], 0
    with Replay(recording, speed=100, start_phase="c0") as replay:
        while not replay.wait(0):
            try:
                answer = Answer(replay)
            except ConnectionError:
                failures += 1
                continue
            assert replay.line is not None
            assert answer.body == recording.page(replay.line)
            numbers.append(replay.line.number)
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 10
    assert failures > 0  # the run ends with a stopped engine


def test_open_connections_are_cut_when_the_engine_goes(tmp_path):
    """A kept-alive connection serves several GETs and does not outlive the listener."""
    clock = Clock()
    rows = [row(0, "a 1\n"), failed(5, "refused"), row(6, "a 2\n")]
    with Replay(Recording.load(write(tmp_path, rows)), clock=clock) as replay:
        connection = http.client.HTTPConnection(*address_of(replay), timeout=LONG_S)
        for _ in range(2):
            connection.request("GET", "/metrics")
            assert connection.getresponse().read() == b"a 1\n"
        clock.now_s += 5
        assert connection.sock is not None
        assert is_cut(connection.sock)
        connection.close()


def test_head_and_foreign_requests(tmp_path):
    """HEAD has the fields without the body and takes no line; other paths are 404, methods 405, other protocols 400."""
    with Replay(Recording.load(write(tmp_path, [row(0, "a 1\n"), row(1, "a 2\n")])), step=True) as replay:
        head = Answer(replay, "HEAD")
        assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", "4")
        assert Answer(replay, path="/health").status == 404
        assert Answer(replay, "POST").status == 405
        assert replay.gets == 0
        with socket.create_connection(address_of(replay), timeout=LONG_S) as raw:
            raw.sendall(b"\x16\x03\x01 TLS\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
        with socket.create_connection(address_of(replay), timeout=LONG_S) as raw:
            raw.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
            assert is_cut(raw)
        assert Answer(replay, path="/metrics?autoload=false").body == b"a 1\n"


def test_silent_connections_are_bounded(tmp_path):
    """More connections than the limit are closed at once, and serving goes on when they are gone."""
    with Replay(Recording.load(write(tmp_path, [row(0, "a 1\n"), row(900, "a 2\n")]))) as replay:
        address = address_of(replay)
        silent = [socket.create_connection(address, timeout=LONG_S) for _ in range(140)]
        assert is_cut(silent[-1])
        for connection in silent:
            connection.close()
        eventually(lambda: _answers(replay), "the replay answers again")


def _answers(replay: Replay) -> bool:
    try:
        return Answer(replay).status == 200
    except ConnectionError:
        return False


def test_address_holds_before_the_start_and_is_given_back(tmp_path):
    """The port is fixed from the beginning and refuses; after `stop` it is free."""
    replay = Replay(Recording.load(write(tmp_path, [row(0, "a 1\n")])))
    address = address_of(replay)
    assert refused(replay)
    with replay:
        assert address_of(replay) == address
        assert Answer(replay).status == 200
    replay.stop()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(address)
        other.listen()


def test_bad_port_speed_and_phase_are_told_in_a_line(tmp_path):
    """A port that somebody listens on, a foreign address, a speed of 0 and an unknown phase are usage errors."""
    recording = Recording.load(write(tmp_path, [row(0, "a 1\n", phase="c0"), row(1, "a 1\n", phase="c1")]))
    said = r"127\.0\.0\.1:\d+: the port is taken by another program"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match=said):
        Replay(recording, port=taken.getsockname()[1])
    with pytest.raises(UsageError, match="cannot listen there"):
        Replay(recording, host="192.0.2.1")
    for speed in (0, -1, math.inf, math.nan):
        with pytest.raises(UsageError, match="the speed is"):
            Replay(recording, speed=speed)
    with pytest.raises(UsageError, match="no phase 'c7' in this recording; it has c0, c1"):
        Replay(recording, start_phase="c7")


def test_page_lost_while_serving_ends_the_replay(tmp_path):
    """A page that vanishes under the replay ends it with an error that names the page."""
    folder = write(tmp_path, [row(0, "a 1\n"), row(900, "a 2\n")])
    with Replay(Recording.load(folder)) as replay:
        (folder / "0001.prom.gz").unlink()
        with pytest.raises(ConnectionError):
            Answer(replay)
        with pytest.raises(SourceError, match=r"0001\.prom\.gz"):
            replay.wait(LONG_S)


class Process:
    """`infscale replay` as a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "infscale", "replay", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.process.stdout
        self.first_line = self.process.stdout.readline()

    def end(self) -> tuple[int, str, str]:
        """Wait for it: status, the rest of its output, its errors."""
        out, err = self.process.communicate(timeout=LONG_S)
        return self.process.returncode, out, err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_end_the_command_at_once(number, status):
    """SIGTERM ends `infscale replay` with 0, Ctrl-C with 130, both with a closing line."""
    process = Process(str(VLLM), "--port", "0")
    assert re.match(
        r"replaying vllm-0\.32\.0-single at http://127\.0\.0\.1:\d+/metrics: 112 recorded s", process.first_line
    )
    assert "phases: load, warmup, c0, c1, c4, c12, drain, " in process.first_line
    process.process.send_signal(number)
    assert process.end() == (status, "stopped; GETs answered: 0\n", "")


def test_command_ends_with_the_recording(tmp_path):
    """`infscale replay` serves on the port it names, and exits 0 with a line when the recording is over."""
    rows = [row(0, "a 1\n", phase="c0"), row(1, "a 2\n", phase="c1"), row(2, "a 3\n", phase="c1")]
    process = Process(str(write(tmp_path, rows)), "--port", "0", "--step", "--from", "c1")
    url = re.search(r"http://([\d.]+):(\d+)/metrics: a line a GET, phases: c0, c1$", process.first_line)
    assert url
    for body in (b"a 2\n", b"a 3\n"):
        connection = http.client.HTTPConnection(url[1], int(url[2]), timeout=LONG_S)
        connection.request("GET", "/metrics")
        assert connection.getresponse().read() == body
        connection.close()
    assert process.end() == (0, "the recording is over; GETs answered: 2\n", "")


def test_command_tells_bad_usage_in_a_line(tmp_path):
    """A folder that is no recording exits 2 with one line and no traceback."""
    process = Process(str(tmp_path), "--port", "0")
    status, out, err = process.end()
    assert (status, process.first_line, out) == (2, "", "")
    assert err == f"infscale: {tmp_path}: no timeline.jsonl in it: this is not a recorded run\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing option '--port'"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--port", "0", "--speed", "fast"], "'fast' is not a valid float"),
        (["--port", "0", "--sped", "2"], "No such option '--sped'"),
    ],
)
def test_bad_flags(arguments, said):
    """A flag that cannot be used exits 2 and says which."""
    result = CliRunner().invoke(command, [str(VLLM), *arguments])
    assert result.exit_code == 2
    assert said in result.output
