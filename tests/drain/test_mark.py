"""The Pod-termination mark: through the Unix socket, and through nothing else."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infscale.drain.mark import DEFAULT_SOCKET, MarkSocket, TerminationMark, open_socket, tell
from infscale.errors import SourceError, UsageError
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


def test_told_once_it_stays(rig: Rig, path: str) -> None:
    """The client's word sets the mark, and a second one changes nothing."""
    assert not rig.mark.is_set()
    assert tell(path) == "marked"
    assert rig.mark.is_set()
    assert tell(path) == "marked"


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


def test_silent_clients_are_few_and_not_for_long(rig: Rig, path: str) -> None:
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


@pytest.mark.parametrize("place", ["nowhere/mark.sock", "x" * 120, "file", "file/below"])
def test_a_path_that_cannot_be_is_told_in_one_line(tmp_path: Path, place: str) -> None:
    """No folder, too long for a socket, a file that is none: what and why, and the file stays."""
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UsageError, match=r"^--mark.socket: cannot listen on \S+: [^\n]+$"):
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


def test_nobody_listens(path: str) -> None:
    """The client says what it expected, in one line; the exit code is 1."""
    with pytest.raises(SourceError, match="expected the socket of a running sidecar"):
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
