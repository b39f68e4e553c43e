"""`kubectl proxy` on a Unix socket: the way for calls that kubectl has no command for (a Pod's proxy with headers).

`kubectl get --raw` tells neither the status nor the body of what a Pod answers, and sends no header. Called by
`kubectl` only. The socket lies in a folder that nobody else may enter, and leads to Pods' proxies alone; the process
ends with the last call that uses it, so that nothing is left open between two looks.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from infscale import __version__
from infscale.kube.errors import BrokenAnswer, KubeError, TimedOut, Unreachable, one_line
from infscale.kube.transport import Answer
from infscale.scrape_http import read_body, read_head
from infscale.scrape_wire import Deadline, Wire, WireFault

_PATHS = "^/api/v1/namespaces/[^/]+/pods/[^/]+/proxy(/|$)"
NOT_THE_NETWORK = ("x509:", "tls:", "getting credentials")
"""In what kubectl says: another try would give the same."""

MAX_STDERR_BYTES = 64 * 1024


class KubectlProxy:
    """Calls through a `kubectl proxy` that runs as long as one of them does. May be used from several threads.

    Args:
        command: kubectl with its options, without a command of its own.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def request(
        self, method: str, path: str, *, headers: Mapping[str, str], deadline: Deadline, max_bytes: int
    ) -> Answer:
        """One call to a Pod's proxy, never repeated; the answer as it came.

        Raises:
            KubeError: as `Transport.proxy`.
        """
        with self._in_use(deadline) as running:
            wire = _SocketWire(deadline)
            try:
                wire.connect_to(running.path)
                wire.send(_request(method, path, headers))
                head = read_head(wire)
                answer = Answer(head.status, read_body(wire, head, max_bytes))
            except WireFault as fault:
                raise _fault(fault, method, path) from None
            finally:
                wire.close()
            if answer.status == 500 and running.complained_of(answer.body):
                raise _no_api(answer.body)
            return answer

    @contextlib.contextmanager
    def _in_use(self, deadline: Deadline) -> Iterator[_Running]:
        with self._lock:
            running = self._running
            if running is None or running.ended:
                running = self._running = _Running(self._command, deadline)
            running.users += 1
        try:
            yield running
        finally:
            with self._lock:
                running.users -= 1
                if not running.users:
                    running.stop()
                    self._running = None if self._running is running else self._running


class _Running:
    """One `kubectl proxy`, from its start to its end.

    Attributes:
        path: of the socket.
        users: calls under way.
    """

    def __init__(self, command: Sequence[str], deadline: Deadline) -> None:
        self.users = 0
        self._folder = tempfile.mkdtemp(prefix="infscale-")  # 0700
        self.path = os.path.join(self._folder, "s")
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._process: subprocess.Popen[bytes] | None = None
        arguments = ["proxy", f"--unix-socket={self.path}", f"--accept-paths={_PATHS}"]
        try:
            self._process = start([*command, *arguments], stdin=subprocess.DEVNULL, stderr=self._stderr)
            self._wait_until_it_serves(self._process, deadline)
        except BaseException:
            self.stop()
            raise

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process is None or self._process.poll() is not None

    def complained_of(self, body: bytes) -> bool:
        """Whether a body is kubectl's own complaint that it has no way to the API server: it logs the same words."""
        return bool(body.strip()) and body.strip() in os.pread(self._stderr.fileno(), MAX_STDERR_BYTES, 0)

    def stop(self) -> None:
        """End the process and what it started, and take the socket away."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        self._stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_it_serves(self, process: subprocess.Popen[bytes], deadline: Deadline) -> None:
        """It prints one line once it listens."""
        assert process.stdout is not None  # noqa: S101 (it is a pipe)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            left_s = deadline.left_s()
            if left_s <= 0 or not selector.select(left_s):
                raise TimedOut(f"kubectl proxy did not begin within {deadline.budget_s:.3g} s")
        if not os.read(process.stdout.fileno(), 4096):
            words = os.pread(self._stderr.fileno(), MAX_STDERR_BYTES, 0).decode("utf-8", "replace")
            raise KubeError(f"kubectl: {one_line(words.removeprefix('error: ')) or 'proxy ended without a word'}")


def start(command: Sequence[str], *, stdin: IO[bytes] | int, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start kubectl in a session of its own, so that a login plugin of it that hangs is ended with it.

    Raises:
        KubeError: the system does not run it.
    """
    try:
        return subprocess.Popen(  # noqa: S603 (the person's own kubectl, and no shell is involved)
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
        )
    except OSError as error:
        raise KubeError(f"kubectl: {command[0]} cannot be run: {error.strerror}") from None


class _SocketWire(Wire):
    """A wire over a Unix socket."""

    def connect_to(self, path: str) -> None:
        """Connect to the socket at a path, within the wire's deadline."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(self._left_s())
        try:
            self._socket.connect(path)
        except OSError as error:
            raise self._fault(error) from None
        self.connected = True


def _request(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    own = {"Host": "localhost", "User-Agent": f"infscale/{__version__}", "Accept-Encoding": "identity"}
    own |= {"Connection": "close"} | ({"Content-Length": "0"} if method != "GET" else {})
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**headers, **own}.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _fault(fault: WireFault, method: str, path: str) -> KubeError:
    call = f"{method} {path}"
    if fault.kind == "timeout":
        return TimedOut(f"{call}: {fault.message}")
    if fault.kind == "too_large":
        return BrokenAnswer(f"{call}: {fault.message}")
    return Unreachable(f"{call}: kubectl proxy {fault.message}")


def _no_api(body: bytes) -> KubeError:
    words = one_line(body.decode("utf-8", "replace"))
    if any(sign in words for sign in NOT_THE_NETWORK):
        return KubeError(f"kubectl: {words}")
    return Unreachable(f"kubectl: the API server cannot be reached: {words}")
