"""The Pod-termination mark: through the Unix socket, and through nothing else."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infscale.drain import mark as mark_module
from infscale.drain.mark import DEFAULT_SOCKET, MarkSocket, TerminationMark, open_socket, tell
from infscale.errors import SourceError, UsageError
from tests.drain.test_connections import until
from tests.raw_server import RawServer
from tests.sidecar_process import LONG_S, Process, sidecar

BUSY = b"vllm:num_requests_running 7\nvllm:num_requests_waiting 2\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A path for a socket."""
    return str(tmp_path / "mark.sock")


class Rig:
    """A mark and its socket; a waiting client may go once `left` is set."""

    def __init__(self, path: str) -> None:
        self.left = threading.Event()
        self.mark = TerminationMark()
        self.socket = MarkSocket(path, self.mark, self._wait)
        self.socket.start()

    def _wait(self) -> str:
        return "engine left" if self.left.wait(LONG_S) else "time is up"


@pytest.fixture
def rig(path: str) -> Iterator[Rig]:
    """A socket that listens."""
    made = Rig(path)
    yield made
    made.left.set()
    assert made.socket.stop(LONG_S)


def infscale(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A command of its own process."""
    return subprocess.Popen(
        [sys.executable, "-m", "infscale", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )


def test_told_once_it_stays(rig: Rig, path: str, caplog: pytest.LogCaptureFixture) -> None:
    """The client's word sets the mark, which is a line in the log; a second one changes nothing."""
    caplog.set_level(logging.INFO, "infscale")
    assert not rig.mark.is_set()
    assert tell(path) == "marked"
    assert rig.mark.is_set()
    assert tell(path) == "marked"
    said = [record.message for record in caplog.records]
    assert said == ["Pod is terminating: its requests count in no demand any more"]


def test_the_mark_has_an_age() -> None:
    """It counts from when it was set first, on a clock that only runs forward."""
    now = [100.0]
    mark = TerminationMark(lambda: now[0])
    assert mark.age_s() == 0
    mark.set()
    now[0] = 107.0
    mark.set()
    assert mark.age_s() == 7


def test_only_its_own_user_may_open_it(rig: Rig, path: str) -> None:
    """The socket is closed to every other user of the Pod."""
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_at_no_instant_may_another_open_it(path: str) -> None:
    """Where the umask is 0 the socket is closed to others from the moment that its file is there."""
    modes = []

    def after_call(_frame: object, event: str, function: object) -> None:
        if event == "c_return" and getattr(function, "__name__", "") == "bind":
            modes.append(stat.S_IMODE(os.stat(path).st_mode))

    before = os.umask(0)
    sys.setprofile(after_call)
    try:
        made = Rig(path)
    finally:
        sys.setprofile(None)
        os.umask(before)
    made.socket.stop(LONG_S)
    assert modes == [0o600]


def test_waiting_ends_when_the_engine_left(rig: Rig, path: str) -> None:
    """The mark is set at once; the client comes back with the sidecar's word."""
    marked, last = threading.Event(), []
    thread = threading.Thread(target=lambda: last.append(tell(path, wait=True, on_marked=marked.set)))
    thread.start()
    assert marked.wait(LONG_S)
    assert rig.mark.is_set()
    assert not last
    rig.left.set()
    thread.join(LONG_S)
    assert last == ["engine left"]


@pytest.mark.parametrize(
    "said", [b"hello\n", b"MARK\n", b"\n", b"", b"x" * 4096, b"\xff\xfe\n", b"GET /mark HTTP/1.1\r\n"]
)
def test_anything_else_marks_nothing(rig: Rig, path: str, said: bytes) -> None:
    """Only the two words count; more than a line is not read."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LONG_S)
        client.connect(path)
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # closed with bytes unread
            assert client.recv(100) in (b"expected mark or wait\n", b"")
    assert not rig.mark.is_set()


def test_whoever_says_something_else_is_told_what_was_expected(rig: Rig, path: str) -> None:
    """A person with a socket tool sees the two words; a word without its line's end counts when the client is done."""
    for said, answer in (
        (b"hello\n", b"expected mark or wait\n"),
        (b"\xff\n", b"expected mark or wait\n"),
        (b" mark \r\nhello\n", b"marked\n"),
        (b"mark", b"marked\n"),
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LONG_S)
            client.connect(path)
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == answer


def test_whoever_never_ends_its_line_is_answered(rig: Rig, path: str) -> None:
    """64 bytes are read; whoever sends more is no client of ours, and is not listened to any longer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LONG_S)
        client.connect(path)
        client.sendall(b"x" * 64)
        assert client.recv(100) == b"expected mark or wait\n"


def test_a_word_may_come_in_parts(rig: Rig, path: str) -> None:
    """A line is read to its end, however many packets it takes."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LONG_S)
        client.connect(path)
        client.sendall(b"ma")
        time.sleep(0.1)
        client.sendall(b"rk\n")
        assert client.recv(100) == b"marked\n"


def test_a_sidecar_that_takes_no_client_is_alive(path: str) -> None:
    """One whose queue is full is not waited for, and its socket is not taken away."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(path)
        listening.listen(0)
        for _ in range(3):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(path)
        with pytest.raises(UsageError, match=r"cannot listen on .*: resource temporarily unavailable$"):
            Rig(path)
        assert os.path.exists(path)


def test_silent_clients_are_few_and_not_for_long(rig: Rig, path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Clients that say nothing are closed, so that the hook gets through after them."""
    silent = [socket.socket(socket.AF_UNIX) for _ in range(8)]
    for client in silent:
        client.connect(path)
    end = time.monotonic() + LONG_S
    while not rig.mark.is_set() and time.monotonic() < end:
        try:
            tell(path)
        except SourceError:
            time.sleep(0.1)
    for client in silent:
        client.close()
    assert rig.mark.is_set()
    assert "Traceback" not in caplog.text


def test_more_clients_than_there_are_places_are_closed_at_once(rig: Rig, path: str) -> None:
    """Eight wait for the engine; the ninth is not kept waiting for them, and is told that no sidecar took the mark."""
    waiting = [threading.Event() for _ in range(8)]
    threads = [threading.Thread(target=tell, args=(path,), kwargs={"wait": True, "on_marked": e.set}) for e in waiting]
    for thread, marked in zip(threads, waiting, strict=True):
        thread.start()
        assert marked.wait(LONG_S)
    with pytest.raises(SourceError):
        tell(path)
    assert not rig.left.is_set()
    ours = [thread for thread in threading.enumerate() if thread.name in ("mark", "mark-client")]
    assert len(ours) >= 9
    assert all(thread.daemon for thread in ours), "a process that is told to stop does not wait for them"
    rig.left.set()
    for thread in threads:
        thread.join(LONG_S)


def test_a_dead_sidecars_socket_is_taken_over(path: str) -> None:
    """What a process that was killed left behind is no hindrance."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    made = Rig(path)
    tell(path)
    assert made.mark.is_set()
    made.socket.stop(LONG_S)


def test_a_living_sidecars_socket_is_not(rig: Rig, path: str) -> None:
    """Two sidecars on one path would mark each other."""
    with pytest.raises(UsageError, match=r"^--mark.socket: cannot listen on .*: another sidecar listens there"):
        Rig(path)
    tell(path)
    assert rig.mark.is_set()


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("nowhere/mark.sock", "no such file or directory"),
        ("x" * 120, "AF_UNIX path too long"),
        ("nul\0", "embedded null byte"),
        ("file", "a file that is no socket is there"),
        ("file/below", "not a directory"),
    ],
)
def test_a_path_that_cannot_be_is_told_in_one_line(tmp_path: Path, place: str, why: str) -> None:
    """No folder, too long for a socket, a file that is none: what and why, and the file stays."""
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UsageError, match=rf"^--mark.socket: cannot listen on \S+: {why}$"):
        Rig(str(tmp_path / place))
    assert (tmp_path / "file").read_text() == "kept"


def test_the_socket_is_gone_after_the_stop(path: str) -> None:
    """A stop leaves no file; one that another made there since stays."""
    made = Rig(path)
    made.socket.stop(LONG_S)
    assert not os.path.exists(path)
    made = Rig(path)
    os.unlink(path)
    Path(path).write_text("another's")
    made.socket.stop(LONG_S)
    assert os.path.exists(path)
    made = Rig(f"{path}.gone")
    os.unlink(made.socket.path)
    assert made.socket.stop(LONG_S)
    assert made.socket.stop(LONG_S), "once more is no fault"


def test_nobody_listens(path: str) -> None:
    """The client says what it expected, in one line; the exit code is 1."""
    with pytest.raises(
        SourceError, match=rf"^{path}: no such file or directory: expected the socket of a running sidecar$"
    ):
        tell(path)
    done = infscale("mark-terminating", "--mark.socket", path)
    out, err = done.communicate(timeout=LONG_S)
    assert (done.returncode, out, err.count("\n")) == (1, "", 1)
    assert path in err


def test_no_folder_no_mark() -> None:
    """Without the flag and without the folder of the default there is no socket, and no fault."""
    assert os.path.dirname(DEFAULT_SOCKET) == "/run/infscale"
    if not os.path.isdir("/run/infscale"):
        assert open_socket(None, TerminationMark(), lambda: "") is None


@pytest.fixture
def usual(path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path that holds without the flag."""
    monkeypatch.setattr(mark_module, "DEFAULT_SOCKET", path)
    return path


def test_without_the_flag_the_mark_is_where_the_command_looks_for_it(usual: str) -> None:
    """With the folder there, sidecar and command meet without being told; where the engine left long ago, too."""
    mark = TerminationMark()
    made = open_socket(None, mark, lambda: "engine left")
    assert made is not None
    made.start()
    assert (tell(usual, wait=True), mark.is_set(), mark.settable) == ("engine left", True, True)
    assert made.stop(LONG_S)


def test_a_usual_place_that_cannot_be_used_is_a_warning(usual: str, caplog: pytest.LogCaptureFixture) -> None:
    """The sidecar runs without a mark, says so, and does not take a drain for a restart."""
    Path(usual).write_text("a file")
    mark = TerminationMark()
    assert open_socket(None, mark, lambda: "") is None
    assert not mark.settable
    (line,) = caplog.records
    assert (line.levelname, line.message) == ("WARNING", "no Pod-termination mark")
    assert f"cannot listen on {usual}: a file that is no socket is there" in line.reason  # type: ignore[attr-defined]


def test_a_path_that_was_told_must_do(usual: str) -> None:
    """Whoever gives the flag is told when it cannot be, and gets that very path when it can."""
    with pytest.raises(UsageError, match="cannot listen on"):
        open_socket(f"{usual}/below", TerminationMark(), lambda: "")
    told = f"{usual}.told"
    made = open_socket(told, TerminationMark(), lambda: "time is up")
    assert made is not None
    made.start()
    assert (tell(told, wait=True), os.path.exists(usual)) == ("time is up", False)
    assert made.stop(LONG_S)
    made = open_socket(told, TerminationMark(), lambda: "")
    assert made is not None
    assert made.stop(LONG_S), "it was never started"


class Other:
    """Something else that listens there: it takes one client, does what it is told with it, and ends."""

    def __init__(self, path: str, act: Callable[[socket.socket], object]) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen()
        self._act = act
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        with self._listening.accept()[0] as client:
            self._act(client)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(LONG_S)
        self._listening.close()


def test_another_program_on_the_path_is_not_taken_for_a_sidecar(path: str) -> None:
    """What it answered is shown, and cut."""

    def answers(client: socket.socket) -> None:
        client.recv(100)
        client.sendall(b"220 mail " + b"x" * 50 + b"\n")

    said = rf"^{path}: answered '220 mail x{{31}}': expected 'marked', from a sidecar of infscale$"
    with Other(path, answers), pytest.raises(SourceError, match=said):
        tell(path)


def test_a_sidecar_that_ends_while_it_is_waited_for(path: str) -> None:
    """The command comes back, and says which of the two it was."""
    heard = []

    def ends(client: socket.socket) -> None:
        heard.append(client.recv(100))
        client.sendall(b"marked\n")

    with Other(path, ends):
        assert tell(path, wait=True) == "sidecar ended"
    os.unlink(path)
    with Other(path, ends):
        assert tell(path) == "marked"
    assert heard == [b"wait\n", b"mark\n"]


def test_a_sidecar_that_breaks_off_while_it_is_waited_for(path: str) -> None:
    """A connection that is reset is told with what it was for."""

    def breaks_off(client: socket.socket) -> None:
        select.select([client], [], [], LONG_S)  # what is never read makes the end a reset
        client.sendall(b"marked\n")

    said = rf"^{path}: connection reset by peer while it waited for the engine$"
    with Other(path, breaks_off), pytest.raises(SourceError, match=said):
        tell(path, wait=True)


def test_a_sidecar_that_hangs_is_not_waited_for(path: str) -> None:
    """The preStop hook comes back: the mark is set within 2 s, or it is not."""
    done = threading.Event()
    with Other(path, lambda client: done.wait(LONG_S)):
        with pytest.raises(SourceError, match=rf"^{path}: timed out: expected the socket of a running sidecar$"):
            tell(path)
        assert not done.is_set()
        done.set()


def test_a_fault_of_the_wait_is_no_hang(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """The client is let go, the log has the fault, and the place is free again."""

    def broken() -> str:
        raise ValueError("a fault of ours")

    def logged() -> list[str]:
        return [record.message for record in caplog.records if record.exc_info]

    mark = TerminationMark()
    made = MarkSocket(path, mark, broken)
    made.start()
    for number in range(1, 13):  # more than there are places
        assert tell(path, wait=True) == "sidecar ended"
        until(logged, ["mark failed"] * number)
    assert mark.is_set()
    assert made.stop(LONG_S)


def test_the_command_marks_the_sidecar_and_nothing_on_the_network_does(path: str) -> None:
    """No path of either listener sets it; the command does, and the reading and the metric say so at once."""
    with (
        RawServer(lambda call: call.page(BUSY)) as engine,
        sidecar("--engine-url", engine.url(), "--mark.socket", path) as process,
    ):
        for place in ("/mark", "/mark-terminating", "/api/v1/mark", "/-/mark", "/drain/mark"):
            assert process.get(place).status_code == 404
            assert process.get(place, kubelet=True).status_code == 404
        assert not drains(process)
        command = infscale("mark-terminating", INFSCALE_MARK_SOCKET=path)
        out, err = command.communicate(timeout=LONG_S)
        assert (command.returncode, out, err) == (0, "marked as terminating\n", "")
        assert drains(process)
        reading = process.get("/api/v1/reading").json()
        assert (reading["inflight"], reading["state"]) == (9, "ok")
        assert process.get("/-/ready", kubelet=True).status_code == 200


def drains(process: Process) -> bool:
    """What the sidecar's metric says, which is what its reading says."""
    reading = process.get("/api/v1/reading").json()["draining"]
    assert (process.values()["infscale_draining"] == 1) == reading
    return bool(reading)
