"""Pods that are deleted: the installed hook, an engine with real streams, and what a kubelet does, on the wall clock.

All removals of this module go on side by side, each with an engine of its own; none takes longer than its grace period.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from infscale.drain.report import DrainReport
from tests.drain.engine import EngineProcess, whole
from tests.drain.hooked import NOWHERE, install, tools
from tests.drain.kubelet import Removal, remove

GRACE_S = 15
CUSTOM = """
profiles:
  - {name: mine, base: vllm, finished: null}
"""


@dataclass
class Case:
    """A Pod on its way out.

    Attributes:
        folder: the hook's volume, the container's tools and its log.
        engine: the engine's process.
        removal: what the kubelet saw.
        sent: requests that clients had sent.
        whole: those whose streams came whole.
        last_words: what the engine said of its requests.
        log: lines that the hook wrote to the engine's log.
    """

    folder: Path
    engine: EngineProcess
    removal: Removal | None = None
    sent: int = 0
    whole: int = 0
    last_words: dict[str, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def ended(self) -> Removal:
        """What the kubelet saw, of a hook that ended well."""
        assert self.removal is not None
        assert self.removal.hook is not None
        assert (self.removal.hook.status, self.removal.hook.err) == (0, "")
        return self.removal

    def report(self) -> DrainReport:
        """What the hook said on its standard output."""
        hook = self.ended().hook
        assert hook is not None
        return DrainReport.from_json(hook.out)


Requests = Callable[[EngineProcess], list[Future[bool]]]


def remove_pod(
    case: Case,
    in_flight: Requests = lambda engine: [],
    late: Requests = lambda engine: [],
    *,
    options: tuple[str, ...] = (),
    with_tools: tuple[str, ...] = ("sleep", "python3"),
    hooked: bool = True,
) -> None:
    """Delete the Pod while requests are in flight, and let further ones come 3 s later.

    Args:
        case: the Pod; takes what came of it.
        in_flight: sends requests before the delete.
        late: sends requests 3 s after it.
        options: of the hook.
        with_tools: programs of the engine's image.
        hooked: whether there is a hook.
    """
    log = case.folder / "log"
    log.touch()
    told = ("--grace", str(GRACE_S), "--report-file", str(log), *options)
    command = ["/bin/sh", str(case.folder.parent / "hook" / "infscale-drain"), "--url", case.engine.url, *told]
    env = tools(case.folder / "bin", *with_tools)
    requests = in_flight(case.engine)
    case.engine.wait_begun(len(requests))
    came: list[Future[bool]] = []
    timer = threading.Timer(3, lambda: came.extend(late(case.engine)))
    timer.start()
    case.removal = remove(case.engine.popen, command if hooked else None, GRACE_S, env)
    timer.join()
    case.sent, case.whole = len(requests) + len(came), whole([*requests, *came])
    case.last_words = case.engine.last_words()
    case.log = log.read_text().splitlines()


class Sidecar(ThreadingHTTPServer):
    """What a sidecar is to a hook: it takes reports, and drains for whoever cannot."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SidecarHandler)
        self.reports: list[dict[str, object]] = []

    @property
    def url(self) -> str:
        """Its kubelet listener."""
        return f"http://127.0.0.1:{self.server_port}"


class _SidecarHandler(BaseHTTPRequestHandler):
    server: Sidecar

    def do_POST(self) -> None:
        """A report."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.reports.append(json.loads(body) | {"path": self.path})
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        """A drain, that takes 8 s."""
        time.sleep(8)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"drained\n")

    def log_message(self, format: str, *args: object) -> None:
        """No log."""


@pytest.fixture(scope="module")
def sidecar() -> Iterator[Sidecar]:
    """A sidecar for all Pods of this module."""
    with Sidecar() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def streams(*counts_and_seconds: tuple[int, float]) -> Requests:
    """Clients that ask for so many streams of so many seconds each."""
    return lambda engine: [f for count, seconds in counts_and_seconds for f in engine.request(seconds, count)]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, sidecar: Sidecar) -> Iterator[dict[str, Case]]:
    """Every removal, to its end."""
    folder = tmp_path_factory.mktemp("removal")
    config = folder / "infscale.yaml"
    config.write_text(CUSTOM)
    install(folder / "hook", "--engine", "mine", "--config", str(config), "--sidecar-url", NOWHERE)
    told = ("--sidecar-url", sidecar.url)
    scenarios: dict[str, tuple[str, Callable[[Case], None]]] = {
        "late": ("abort", functools.partial(remove_pod, late=streams((1, 4)), options=told)),
        "50 streams": ("abort", functools.partial(remove_pod, in_flight=streams((50, 7)))),
        "too short": ("abort", functools.partial(remove_pod, in_flight=streams((20, 6), (30, 40)))),
        "finishes": ("finish", functools.partial(remove_pod, in_flight=streams((10, 12)))),
        "finishes too late": ("finish", functools.partial(remove_pod, in_flight=streams((5, 12), (5, 40)))),
        "sidecar": (
            "abort",
            functools.partial(remove_pod, in_flight=streams((5, 6)), options=told, with_tools=("sleep", "curl")),
        ),
        "nothing": ("abort", functools.partial(remove_pod, late=streams((1, 1)), with_tools=("sleep",))),
        "no hook": ("abort", functools.partial(remove_pod, in_flight=streams((5, 3)), hooked=False)),
        "moved": ("abort", functools.partial(remove_pod, options=("--url", f"{NOWHERE}/metrics"))),
        "leader": ("abort", _with_leader),
    }
    with contextlib.ExitStack() as stack:
        made = {
            name: Case(folder / name, stack.enter_context(EngineProcess(term))) for name, (term, _) in scenarios.items()
        }
        pool = stack.enter_context(ThreadPoolExecutor(len(made)))
        for case in made.values():
            case.folder.mkdir()
        for running in [pool.submit(scenarios[name][1], case) for name, case in made.items()]:
            running.result()
        yield made


def _with_leader(case: Case) -> None:
    """A worker, whose own engine tells nothing, beside a leader with requests of 7 s."""
    with EngineProcess("abort") as leader:
        requests = leader.request(7, 3)
        leader.wait_begun(3)
        remove_pod(case, options=("--leader-url", leader.url))
        case.sent, case.whole = len(requests), whole(requests)


def test_a_late_request_is_not_cut(cases):
    """A request that was routed before the delete and arrives 3 s after it is served to its end."""
    case = cases["late"]

    assert (case.whole, case.last_words) == (1, {"finished": 1, "aborted": 0})
    assert case.report().outcome == "idle"


def test_fifty_streams_are_not_cut(cases):
    """With 50 streams in flight and a grace period that suffices the engine gets SIGTERM after the last of them."""
    case = cases["50 streams"]

    assert (case.sent, case.whole, case.last_words) == (50, 50, {"finished": 50, "aborted": 0})
    assert case.report().outcome == "idle"
    assert not case.ended().killed


def test_too_short_a_grace_counts_what_is_cut(cases):
    """Where the grace period is too short the report counts those, and only those, whom SIGTERM then aborts."""
    case = cases["too short"]

    assert (case.report().outcome, case.report().inflight) == ("deadline", 30)
    assert (case.sent - case.whole, case.last_words) == (30, {"finished": 20, "aborted": 30})
    assert "30 request(s) still in flight" in case.report().note


def test_in_flight_at_the_deadline_is_not_cut(cases):
    """An engine that goes on after SIGTERM finishes what was in flight at the deadline: nothing is cut."""
    case = cases["finishes"]

    assert (case.report().outcome, case.report().inflight) == ("deadline", 10)
    assert (case.whole, case.last_words) == (10, {"finished": 10, "aborted": 0})
    assert not case.ended().killed


def test_killed_at_the_end_of_the_grace_period(cases):
    """What such an engine has not finished by the end of the grace period is cut by SIGKILL."""
    case = cases["finishes too late"]

    assert (case.sent, case.whole) == (10, 5)
    assert case.ended().killed
    assert case.ended().seconds >= GRACE_S - 0.1


def test_without_python_the_sidecar_drains(cases):
    """In an image without Python the hook waits for the sidecar's drain."""
    case = cases["sidecar"]

    assert case.ended().hook.out == "drained\n"
    assert case.last_words == {"finished": 5, "aborted": 0}


def test_without_python_and_curl_a_late_request_is_not_cut(cases):
    """In an image with neither, at least what arrives in the settle time, and is short, is not cut."""
    case = cases["nothing"]

    assert case.ended().hook.out.startswith("infscale-drain: waited for the settle time of 5 s")
    assert case.last_words == {"finished": 1, "aborted": 0}


def test_without_a_hook_all_are_cut(cases):
    """Without a hook SIGTERM comes at once and every stream is cut: what the others are held against."""
    case = cases["no hook"]

    assert (case.whole, case.last_words) == (0, {"finished": 0, "aborted": 5})


def test_an_engine_that_was_moved_gets_the_settle_time(cases):
    """An engine that its own --port put elsewhere gets the settle time and two refusals, and the report says why."""
    report = cases["moved"].report()

    assert (report.outcome, report.reads) == ("refused", 2)
    assert "--port" in report.note
    assert 6 <= report.seconds < GRACE_S - 3


def test_a_worker_waits_for_its_leader(cases):
    """With --leader-url a worker's hook holds until the leader is idle."""
    case = cases["leader"]

    assert (case.sent, case.whole) == (3, 3)
    assert (case.report().outcome, case.report().inflight) == ("idle", 0)
    assert case.report().seconds >= 7


@pytest.mark.parametrize("name", ["late", "50 streams", "too short", "moved"])
def test_the_report_stands_in_the_engines_log(name, cases):
    """The line on standard output is in the engine's log too; both are the whole report."""
    case = cases[name]

    assert case.log == case.ended().hook.out.splitlines()
    assert len(case.log) == 1


def test_hooks_return_in_time(cases):
    """Every hook has returned 3 s before the grace period is over."""
    seconds = {name: case.ended().hook.seconds for name, case in cases.items() if name != "no hook"}

    assert {name: spent for name, spent in seconds.items() if spent > GRACE_S - 3} == {}


def test_a_custom_engine_travels(cases):
    """The hook of this module reads the page by a profile out of the configuration file."""
    assert cases["50 streams"].report().engine == "mine"


def test_the_sidecar_hears_of_the_drain(cases, sidecar):
    """The sidecar is told when a drain starts, and what came of it."""
    started, ended = sidecar.reports

    assert started == {"event": "started", "engine": "mine", "grace_s": 15.0, "path": "/drain/report"}
    assert ended == json.loads(cases["late"].log[0]) | {"path": "/drain/report"}
