"""From SIGTERM to the exit code, with a real process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infscale.web.lifecycle import Lifecycle
from tests.web.rig import Client, eventually, listening

PROGRAM = """
import sys
from infscale.web.lifecycle import Lifecycle
from infscale.web.message import text_response
from infscale.web.routes import Router
from infscale.web.server import Listener

life = Lifecycle()
life.install()
router = Router()
router.add("/-/ready", lambda _: text_response(503 if life.stopping else 200, "ready"))
router.add("/metrics", lambda _: text_response(200, "page"))

def wait(_):
    print("inside", flush=True)
    sys.stdin.readline()
    return text_response(200, "done")

router.add("/slow", wait)
listeners = [Listener("127.0.0.1:0", router), Listener("127.0.0.1:0", router)]
for listener in listeners:
    listener.start()
print(*(listener.port for listener in listeners), flush=True)
sys.exit(life.run(listeners, delay_s=float(sys.argv[1]), drain_s=float(sys.argv[2])))
"""


@dataclass
class Process:
    """The program above, running."""

    popen: subprocess.Popen[str]
    ports: list[int]

    def line(self) -> str:
        """The next line of its output."""
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def release(self) -> None:
        """Let the slow request go on."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.popen.send_signal(number)

    def exit_code(self) -> int:
        """Wait for its end; nothing may stand on standard error."""
        assert self.popen.stderr is not None
        assert self.popen.stderr.read() == ""
        return self.popen.wait(20)

    def refuses(self) -> bool:
        """Whether both listeners refuse new connections."""
        for listener in range(len(self.ports)):
            try:
                self.get("/metrics", listener)
            except (ConnectionError, AssertionError):
                continue
            return False
        return True

    def get(self, path: str, listener: int = 0) -> int:
        """Ask over a new connection; the status."""
        with Client(self.ports[listener]) as client:
            return client.get(path).status


@contextlib.contextmanager
def running(delay_s: float, drain_s: float) -> Iterator[Process]:
    """Run the program and kill what is left of it."""
    sources = str(Path(__file__).parents[2] / "exporter")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(delay_s), str(drain_s)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": sources},
    ) as popen:  # fmt: skip
        process = Process(popen, [])
        try:
            process.ports = [int(port) for port in process.line().split()]
            yield process
        finally:
            popen.kill()


@contextlib.contextmanager
def slow_request(process: Process) -> Iterator[Client]:
    """Begin a request that takes until `release`."""
    with Client(process.ports[0], timeout_s=30) as client:
        client.send(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
        assert process.line() == "inside"
        yield client


def test_order_of_a_stop():
    """Not ready at once, serving through the delay, then refusing while a slow request is finished, exit 0."""
    with running(delay_s=1.5, drain_s=30) as process, slow_request(process) as slow:
        assert process.get("/-/ready") == 200
        began = time.monotonic()
        process.signal(signal.SIGTERM)
        assert eventually(lambda: process.get("/-/ready") == 503)
        assert process.get("/metrics") == process.get("/metrics", listener=1) == 200
        assert eventually(process.refuses)
        assert time.monotonic() - began > 1.4
        assert process.popen.poll() is None
        process.release()
        assert (slow.answer().status, slow.at_end()) == (200, True)
        assert process.exit_code() == 0


def test_drain_is_bounded():
    """A request that does not end is left behind after the bound; the exit code is 0 all the same."""
    with running(delay_s=0, drain_s=0.3) as process, slow_request(process) as slow:
        process.signal(signal.SIGTERM)
        assert process.popen.wait(20) == 0
        assert slow.at_end()


@pytest.mark.parametrize(("delay_s", "drain_s"), [(60, 60), (0, 60)])
def test_second_signal(delay_s, drain_s):
    """A second SIGTERM ends the process at once, in the delay and in the drain, with the code of a killed one."""
    with running(delay_s, drain_s) as process, slow_request(process) as slow:
        process.signal(signal.SIGTERM)
        assert eventually(process.refuses if not delay_s else lambda: process.get("/-/ready") == 503)
        process.signal(signal.SIGTERM)
        assert process.popen.wait(20) == 128 + signal.SIGTERM
        assert slow.at_end()


def test_interrupt_has_no_delay():
    """Ctrl-C stops in order, without the delay."""
    with running(delay_s=60, drain_s=60) as process:
        assert process.get("/metrics") == 200
        process.signal(signal.SIGINT)
        assert process.exit_code() == 0


def test_other_signals_give_no_further_time():
    """A SIGHUP during the delay, which another handler takes, does not begin the delay anew."""
    former = signal.signal(signal.SIGHUP, lambda *_: None)
    life = Lifecycle()
    try:
        life.install()
        os.kill(os.getpid(), signal.SIGTERM)
        ended = threading.Event()

        def hang_up() -> None:
            while not ended.wait(0.1):
                os.kill(os.getpid(), signal.SIGHUP)

        sender = threading.Thread(target=hang_up)
        sender.start()
        guard = threading.Timer(20, ended.set)  # or it would last for ever
        guard.start()
        assert life.run([], delay_s=0.5, drain_s=1) == 0
        assert not ended.is_set()
    finally:
        ended.set()
        guard.cancel()
        sender.join()
        signal.signal(signal.SIGHUP, former)


def test_stop_from_within():
    """The process can end itself the same way; afterwards the former signal handlers are back."""
    former = signal.getsignal(signal.SIGTERM)
    life = Lifecycle()
    with listening() as server:
        threading.Timer(0.1, life.stop).start()
        assert not life.stopping
        assert life.run([server], delay_s=60, drain_s=5) == 0
        assert life.stopping
    assert signal.getsignal(signal.SIGTERM) is former
