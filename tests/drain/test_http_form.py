"""The HTTP form end to end: real sidecars, real engines that are ended as kubelet ends them, on the wall clock.

Each scenario waits for seconds and works for milliseconds, so all of them run side by side.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from infscale.drain.endpoint import DrainEndpoint
from infscale.drain.ledger import Beside
from infscale.drain.mark import TerminationMark
from infscale.drain.options import DrainOptions
from infscale.drain.report import DrainReport
from infscale.metrics.drains import DrainCounters
from infscale.scrape import Target
from infscale.sidecar import Engine, EngineSettings
from infscale.web.message import Request
from infscale.web.routes import Router
from tests.certs import Certs, make_certs
from tests.drain.engine import EngineProcess, whole
from tests.drain.hooked import install
from tests.drain.kubelet import Removal, remove
from tests.drain.matrix import BUSY, BY_NAME, ROWS, WALL_CLOCK, Row
from tests.drain.test_waiting import until
from tests.raw_server import RawServer
from tests.sidecar_process import Process, sidecar

GRACE_S = 15
LONG_GRACE_S = 120  # for who is let go long before: a busy machine may take its time
STAGGER_S = 0.1  # or all of them read at the same instant, on two cores
LONG_S = 55.0
CUT = 'infscale_drain_requests_cut_total{outcome="deadline"}'

IN_PROCESS = [row for row in ROWS if row not in WALL_CLOCK and not row.heavy]


def kubelet_of(process: Process) -> http.client.HTTPConnection:
    """A caller of the kubelet listener."""
    return http.client.HTTPConnection("127.0.0.1", process._ports[1], timeout=LONG_S)


def call(process: Process, path: str = "/drain") -> tuple[int, str]:
    """Ask the kubelet listener, as kubelet does: plain HTTP, no credentials, no time-out to speak of."""
    with contextlib.closing(kubelet_of(process)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def pre_stop(process: Process) -> list[str]:
    """The same call as a command, for the kubelet of these tests."""
    code = (
        "import http.client, sys\n"
        f"asked = http.client.HTTPConnection('127.0.0.1', {process._ports[1]}, timeout={LONG_S})\n"
        "asked.request('GET', '/drain')\n"
        "sys.stdout.write(asked.getresponse().read().decode())\n"
    )
    return [sys.executable, "-I", "-c", code]


def told(removal: Removal) -> DrainReport:
    """The report that kubelet's call was answered with."""
    assert removal.hook is not None
    return DrainReport.from_json(removal.hook.out)


def grace_of(row: Row) -> int:
    """The grace period for a row: a short one for who is held to its end."""
    return LONG_GRACE_S if row.reads else GRACE_S


def drain_row(row: Row, certs: Certs) -> DrainReport:
    """One listener of the matrix beside a sidecar of its own."""
    with row.serve(certs) as url, sidecar("--engine-url", url, f"--grace={grace_of(row)}") as process:
        status, body = call(process)
        assert status == 200
        return DrainReport.from_json(body)


def drain_row_here(row: Row, certs: Certs) -> DrainReport:
    """One listener of the matrix, drained by the endpoint's routes in this process."""
    with row.serve(certs) as url:
        engine, router = Engine(Target(url), EngineSettings()), Router()
        beside = Beside(
            DrainOptions(url, grace_s=grace_of(row)),
            EngineSettings().profiles,
            lambda: engine.profile,
            lambda timeout_s: engine.read(timeout_s)[0],
        )
        DrainEndpoint([beside], TerminationMark(), DrainCounters()).add_routes(router)
        answer = router.dispatch(Request("GET", "/drain", client="127.0.0.1"))
        assert answer.status == 200
        return DrainReport.from_json(answer.body)


@dataclass
class Removed:
    """What became of an engine and its requests.

    Attributes:
        removal: how its container ended.
        whole: how many of its streams came whole.
        words: what the engine said of its requests; empty where it was killed.
        cut: what the sidecar counted as cut in the end.
        values: the sidecar's metrics then.
    """

    removal: Removal
    whole: int
    words: dict[str, int] = field(default_factory=dict)
    cut: float = 0.0
    values: dict[str, float] = field(default_factory=dict)


def remove_engine(
    on_term: str, grace_s: int, *streams: tuple[float, int], cut: float = 0, hook: Path | None = None
) -> Removed:
    """Delete a Pod whose engine has streams (seconds, how many) in flight; its sidecar outlives it.

    Args:
        on_term: what the engine does at SIGTERM.
        grace_s: of the Pod.
        streams: what is in flight.
        cut: how many of them the sidecar is expected to count as cut.
        hook: the launcher of the exec form; None: kubelet asks the sidecar.
    """
    with (
        EngineProcess(on_term) as engine,
        sidecar("--engine-url", engine.url, f"--grace={grace_s}") as process,
    ):
        requests = [one for seconds, count in streams for one in engine.request(seconds, count)]
        engine.wait_begun(len(requests))
        command = pre_stop(process)
        if hook:
            sidecar_url = f"http://127.0.0.1:{process._ports[1]}"
            told = ("--url", engine.url, "--grace", str(grace_s), "--sidecar-url", sidecar_url, "--report-file", "")
            command = ["/bin/sh", str(hook), *told]
        removal = remove(engine.popen, command, grace_s, os.environ)
        finished, words = whole(requests), engine.last_words()
        until(lambda: process.values()[CUT] >= cut)
        time.sleep(1.0)  # if more is counted than should be, it is by now
        values = process.values()
        return Removed(removal, finished, words, values[CUT], values)


def settings_of_main(certs: Certs, folder: Path) -> tuple[int, int, DrainReport]:
    """TLS and a password on the main listener: what that says to nobody, and what `/drain` says."""
    web = folder / "web.yml"
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    web.write_text(
        f"tls_server_config: {{cert_file: {certs.server.cert}, key_file: {certs.server.key}}}\n"
        f"basic_auth_users: {{prometheus: '{hashed}'}}\n"
    )
    row = BY_NAME["busy then idle"]
    with (
        row.serve(certs) as url,
        sidecar("--engine-url", url, f"--grace={LONG_GRACE_S}", "--web.config.file", str(web)) as process,
    ):
        status, body = call(process)
        refused = process.get("/metrics", scheme="https", verify=str(certs.ca)).status_code
        return refused, status, DrainReport.from_json(body)


@dataclass
class Crowd:
    """Many callers at once: what they were told, and what it cost."""

    reports: list[str]
    reads: int
    turned_away: tuple[int, str]
    probe: int
    cpu_s: float
    seconds: float


def crowd() -> Crowd:
    """Sixteen callers of a busy engine, one more, and a probe."""
    with (
        RawServer(lambda call: call.page(BUSY)) as engine,
        sidecar("--engine-url", engine.url(), f"--grace={GRACE_S}") as process,
        contextlib.ExitStack() as stack,
    ):
        callers = [stack.enter_context(contextlib.closing(kubelet_of(process))) for _ in range(16)]
        for caller in callers:
            caller.connect()
        for caller in callers:  # all within a moment, on a busy machine too
            caller.request("GET", "/drain")
        until(lambda: sum("drain asked for" in line for line in process.log) == 16)
        began_s, cpu_s = time.monotonic(), cpu_of(process.popen.pid)
        turned_away, probe = call(process), call(process, "/-/healthy")[0]
        bodies = [caller.getresponse().read().decode() for caller in callers]
        cpu_s = cpu_of(process.popen.pid) - cpu_s
        return Crowd(bodies, len(engine.calls), turned_away, probe, cpu_s, time.monotonic() - began_s)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Older:
    """A cluster without native sidecars: the sidecar's own preStop beside the engine's."""

    removed: Removal
    last: str
    status: int
    order: bool
    draining: float


def older_cluster(folder: Path) -> Older:
    """Engine and sidecar are ended side by side; the sidecar's hook comes back when the engine has left."""
    mark = str(folder / "older.sock")
    with (
        EngineProcess() as engine,
        sidecar("--engine-url", engine.url, f"--grace={GRACE_S}", "--mark.socket", mark) as process,
    ):
        requests = engine.request(8.0, 3)
        engine.wait_begun(3)
        hook = subprocess.Popen(
            [sys.executable, "-m", "infscale", "mark-terminating", "--wait", "--mark.socket", mark],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        removed = remove(engine.popen, pre_stop(process), GRACE_S, os.environ)
        was_waiting = hook.poll() is None
        out, _ = hook.communicate(timeout=LONG_S)
        draining = process.values()["infscale_draining"]
        assert whole(requests) == 3
        return Older(removed, out, hook.returncode, was_waiting, draining)


def stopped() -> tuple[int, float]:
    """A sidecar that is told to stop in the middle of a drain of ten minutes: its exit code, and how long that took."""
    with (
        RawServer(lambda call: call.page(BUSY)) as engine,
        sidecar("--engine-url", engine.url(), "--grace=600", "--web.shutdown-delay=0") as process,
    ):
        asked = threading.Thread(target=lambda: _ignore(lambda: call(process)))
        asked.start()
        until(lambda: any("drain asked for" in line for line in process.log))
        began_s = time.monotonic()
        process.popen.terminate()
        status = process.ended()
        asked.join(LONG_S)
        return status, time.monotonic() - began_s


class SideBySide:
    """Scenarios that run at the same time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(64)
        self._runs: dict[str, Future[Any]] = {}

    def start(self, name: str, work: Callable[[], object]) -> None:
        """Begin one."""
        self._runs[name] = self._pool.submit(work)

    def __getitem__(self, name: str) -> Any:
        """What came of it."""
        return self._runs[name].result(LONG_S)

    def close(self) -> None:
        """Wait for all."""
        self._pool.shutdown()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    """Every scenario, under way."""
    folder = tmp_path_factory.mktemp("http")
    certs = make_certs(folder)
    made = SideBySide()
    made.start("enough", lambda: remove_engine("abort", LONG_GRACE_S, (8.0, 50)))
    made.start("too short", lambda: remove_engine("abort", GRACE_S, (25.0, 20), (7.0, 5), cut=20))
    made.start("goes on", lambda: remove_engine("finish", GRACE_S, (12.0, 4), (30.0, 6), cut=6))
    made.start("finishes", lambda: remove_engine("finish", GRACE_S, (12.5, 4)))
    hook = install(folder / "hook", "--engine", "vllm")
    made.start("exec", lambda: remove_engine("abort", GRACE_S, (25.0, 3), cut=3, hook=hook))
    made.start("older", lambda: older_cluster(folder))
    made.start("main", lambda: settings_of_main(certs, folder))
    made.start("crowd", crowd)
    made.start("stopped", stopped)
    for row in WALL_CLOCK:
        made.start(row.name, lambda row=row: drain_row(row, certs))  # type: ignore[misc]
    for row in IN_PROCESS:
        time.sleep(STAGGER_S)
        made.start(row.name, lambda row=row: drain_row_here(row, certs))  # type: ignore[misc]
    yield made
    made.close()


@pytest.mark.parametrize("name", [row.name for row in [*WALL_CLOCK, *IN_PROCESS]])
def test_listener(name: str, runs: SideBySide) -> None:
    """The sidecar gives the verdict that the drain gives by itself, in the same time."""
    report = runs[name]
    assert isinstance(report, DrainReport)
    BY_NAME[name].check(report, grace_of(BY_NAME[name]), wall_clock=True)


def test_with_tls_and_a_password_on_the_main_listener_the_drain_still_waits(runs: SideBySide) -> None:
    """Kubelet brings no credentials; the main listener refuses whoever has none, and `/drain` does its work."""
    refused, status, report = runs["main"]
    assert (refused, status) == (401, 200)
    BY_NAME["busy then idle"].check(report, LONG_GRACE_S, wall_clock=True)


def test_nobody_is_cut_when_the_grace_suffices(runs: SideBySide) -> None:
    """Fifty streams in flight, preStop, SIGTERM: all come whole."""
    done = runs["enough"]
    assert isinstance(done, Removed)
    report = told(done.removal)
    assert (report.outcome, report.inflight, done.whole, done.cut) == ("idle", 0, 50, 0)
    assert done.words == {"finished": 50, "aborted": 0}
    assert not done.removal.killed
    assert done.values['infscale_drains_total{outcome="idle"}'] == 1


def test_exactly_those_cut_are_counted_when_it_does_not(runs: SideBySide) -> None:
    """Twenty of 25 streams are too long: they are aborted at SIGTERM, reported as in flight and counted as cut."""
    done = runs["too short"]
    assert isinstance(done, Removed)
    report = told(done.removal)
    assert (report.outcome, report.inflight, done.whole, done.cut) == ("deadline", 20, 5, 20)
    assert done.words == {"finished": 5, "aborted": 20}
    assert done.values['infscale_drains_total{outcome="deadline"}'] == 1
    assert 10 <= done.values['infscale_drain_duration_seconds_sum{outcome="deadline"}'] <= 12


def test_cut_is_who_was_aborted_and_not_who_was_in_flight(runs: SideBySide) -> None:
    """An engine that goes on after SIGTERM: ten in flight at G-5, four finish before the kill, six are cut."""
    done = runs["goes on"]
    assert isinstance(done, Removed)
    report = told(done.removal)
    assert (report.outcome, report.inflight, done.whole, done.cut) == ("deadline", 10, 4, 6)
    assert done.removal.killed


def test_who_finishes_in_the_exit_reserve_is_not_cut(runs: SideBySide) -> None:
    """An engine that is done with its requests after SIGTERM, and before the kill, cut nobody."""
    done = runs["finishes"]
    assert (told(done.removal).outcome, told(done.removal).inflight) == ("deadline", 4)
    assert (done.whole, done.cut, done.removal.killed) == (4, 0, False)


def test_the_exec_form_shows_in_the_same_metrics(runs: SideBySide) -> None:
    """The installed hook tells the sidecar of its drain, and the sidecar sees who is cut when the engine ends."""
    done = runs["exec"]
    assert (told(done.removal).outcome, done.words) == ("deadline", {"finished": 0, "aborted": 3})
    assert done.values['infscale_drains_total{outcome="deadline"}'] == 1
    assert done.cut == 3


def test_without_native_sidecars_the_sidecar_outlives_the_engine(runs: SideBySide) -> None:
    """Its own hook marks the Pod at once, comes back only when the engine has left, and says why."""
    done = runs["older"]
    assert isinstance(done, Older)
    assert (told(done.removed).outcome, told(done.removed).note) == ("idle", "")
    assert done.order, "the sidecar's hook came back before the engine had left"
    assert (done.status, done.last, done.draining) == (0, "marked as terminating\nengine left\n", 1)


def test_callers_are_bounded_and_cost_nothing(runs: SideBySide) -> None:
    """Sixteen wait, the next gets 503, probes are answered; all together are one drain without a busy wait."""
    done = runs["crowd"]
    assert isinstance(done, Crowd)
    assert len(set(done.reports)) == 1
    report = DrainReport.from_json(done.reports[0])
    assert (report.outcome, report.busy_reads) == ("deadline", report.reads)
    assert report.reads <= done.reads <= report.reads + 4, "and the looks that follow when it could not wait"
    assert done.turned_away == (503, "16 callers wait for the drain already\n")
    assert done.probe == 200
    assert done.cpu_s < 0.05 * done.seconds


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--grace=14"], "--grace is 14 s"),
        (["--grace=20", "--exit-reserve=15"], "at least 25 s"),
        (["--max-grace=9"], "--max-grace"),
    ],
)
def test_a_grace_period_that_leaves_no_time_is_refused(flags: list[str], said: str) -> None:
    """At the start, in one line, and not when the Pod is being deleted."""
    done = subprocess.run(
        [sys.executable, "-m", "infscale", "sidecar", "--engine-url", "http://127.0.0.1:1/", *flags, "--config.check"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_a_drain_is_no_hindrance_to_the_end(runs: SideBySide) -> None:
    """A sidecar that is told to stop while a drain runs ends in its own time, and not in the engine's."""
    status, seconds = runs["stopped"]
    assert status == 0
    assert seconds < 40


def _ignore(work: Callable[[], object]) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        work()
