"""`/drain` and `/drain/report` on a listener, and what a drain does to metrics, readings and decisions."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import requests

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import ScaleState
from infscale.core.replicas import Fleet, Phase, Replica
from infscale.drain.endpoint import DrainEndpoint
from infscale.drain.ledger import Beside
from infscale.drain.mark import TerminationMark
from infscale.drain.options import DrainOptions
from infscale.drain.report import MAX_REPORT_BYTES, DrainReport
from infscale.fleet.members import Members
from infscale.fleet.peer import sighting_of_reading
from infscale.metrics.collectors import Settings
from infscale.metrics.drains import DrainCollector, DrainCounters
from infscale.scrape import Target
from infscale.sidecar import Engine, EngineSettings, Sidecar
from infscale.web.message import Request
from infscale.web.routes import Router
from infscale.web.server import Listener
from tests.drain.test_waiting import until
from tests.raw_server import Call, RawServer
from tests.sidecar_process import LONG_S

BUSY = b"vllm:num_requests_running 7\nvllm:num_requests_waiting 2\n"
IDLE = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"


class Pod:
    """The drain of some engines on a listener of its own; the settle time is short."""

    def __init__(self, *engines: RawServer, grace_s: float = 15.0, mark: TerminationMark | None = None) -> None:
        self.mark, self.counters = mark or TerminationMark(), DrainCounters()
        options = DrainOptions("http://127.0.0.1:1/metrics", grace_s=grace_s, settle_s=0.1, connections=False)
        settings = EngineSettings()
        readers = [Engine(Target(engine.url()), settings) for engine in engines]
        beside = [
            Beside(
                replace(options, url=reader.source),
                settings.profiles,
                lambda reader=reader: reader.profile,  # type: ignore[misc]
                lambda timeout_s, reader=reader: reader.read(timeout_s)[0],  # type: ignore[misc]
            )
            for reader in readers
        ]
        self.endpoint = DrainEndpoint(beside, self.mark, self.counters)
        self.router = Router()
        self.endpoint.add_routes(self.router)
        self._listener = Listener("127.0.0.1:0", self.router, flag="--kubelet.listen-address")
        self._listener.start()
        self._session = requests.Session()
        self._session.trust_env = False

    def drain(self) -> DrainReport:
        """What `GET /drain` answers."""
        answer = self._session.get(f"http://127.0.0.1:{self._listener.port}/drain", timeout=LONG_S)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
        return DrainReport.from_json(answer.text)

    def post(self, body: bytes, path: str = "/drain/report") -> requests.Response:
        """A hook's report."""
        return self._session.post(f"http://127.0.0.1:{self._listener.port}{path}", data=body, timeout=LONG_S)

    def value(self, name: str, outcome: str) -> float:
        """One of the drain's metrics."""
        families = DrainCollector(self.mark.is_set, self.counters).collect()
        return next(
            s.value for f in families for s in f.samples if (s.name, s.labels.get("outcome")) == (name, outcome)
        )

    def ended(self, outcome: str) -> float:
        """`infscale_drains_total`."""
        return self.value("infscale_drains_total", outcome)

    def cut(self, outcome: str = "deadline") -> float:
        """`infscale_drain_requests_cut_total`."""
        return self.value("infscale_drain_requests_cut_total", outcome)

    def close(self) -> None:
        """Stop the listener."""
        self._session.close()
        self._listener.stop(LONG_S)


@contextlib.contextmanager
def pod(*engines: RawServer, grace_s: float = 15.0, mark: TerminationMark | None = None) -> Iterator[Pod]:
    """A Pod for the time of a test."""
    made = Pod(*engines, grace_s=grace_s, mark=mark)
    try:
        yield made
    finally:
        made.close()


def test_an_idle_engine_is_two_reads_and_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the report as JSON, the metrics count it, and the log has it in one line."""
    caplog.set_level(logging.INFO, "infscale")
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        report = it.drain()
        assert (report.outcome, report.reads, report.inflight, report.engine) == ("idle", 2, 0, "vllm")
        assert len(engine.calls) == 2
        assert it.ended("idle") == 1
        assert it.value("infscale_drain_duration_seconds_count", "idle") == 1
    (line,) = [record for record in caplog.records if record.message == "drain ended"]
    assert (line.outcome, line.form, line.reads) == ("idle", "httpGet", 2)  # type: ignore[attr-defined]


def test_callers_at_once_share_the_reads() -> None:
    """Rule 20: five at once are one drain, two reads and one in the metrics, and all are told the same."""
    reports: list[DrainReport] = []
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        threads = [threading.Thread(target=lambda: reports.append(it.drain())) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        assert reports == [reports[0]] * 5
        assert len(engine.calls) == 2
        assert it.ended("idle") == 1


def test_asking_marks_nothing() -> None:
    """Rule 21: to ask for a drain leaves no mark behind."""
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        it.drain()
        it.post(json.dumps({"event": "started"}).encode())
        it.post(DrainReport("idle").to_json().encode())
        assert not it.mark.is_set()


def test_a_drain_without_the_mark_is_a_restart() -> None:
    """Rule 22: where the mark could have been set and was not, the container is restarted; the report says so."""
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        assert it.drain().note == ""
        it.mark.settable = True
        assert it.drain().note == "no Pod-termination mark: a restart of the container, the Pod stays"
        it.mark.set()
        assert it.drain().note == ""


def test_a_restart_of_the_engine_is_reported() -> None:
    """Rule 17: another process start in the middle of the drain."""

    def answer(call: Call) -> None:
        began = 1_700_000_000 if call.number == 0 else 1_700_000_900
        call.page((BUSY if call.number == 0 else IDLE) + b"process_start_time_seconds %d\n" % began)

    with RawServer(answer) as engine, pod(engine) as it:
        report = it.drain()
    assert (report.outcome, report.restarted) == ("idle", True)


def test_several_engines_must_all_be_idle() -> None:
    """One of two goes on for two reads: both are waited for, and the sums are over both."""

    def second(call: Call) -> None:
        call.page(BUSY if call.number < 2 else IDLE)

    with RawServer(lambda call: call.page(IDLE)) as one, RawServer(second) as two, pod(one, two) as it:
        report = it.drain()
    assert (report.outcome, report.busy_reads, report.inflight) == ("idle", 2, 0)
    assert report.reads == len(one.calls) + len(two.calls)


def test_the_exec_form_shows_in_the_same_metrics(caplog: pytest.LogCaptureFixture) -> None:
    """Rule 25: its start is logged, its end is counted under its outcome, whatever version wrote it."""
    caplog.set_level(logging.INFO, "infscale")
    told = json.loads(DrainReport("fresh", seconds=6.2, reads=2, inflight=0).to_json())
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        assert it.post(json.dumps({"event": "started", "engine": "", "grace_s": 30}).encode()).status_code == 200
        assert it.ended("fresh") == 0
        assert it.post(json.dumps({**told, "of_the_future": [1]}).encode()).status_code == 200
        assert it.ended("fresh") == 1
        assert it.value("infscale_drain_duration_seconds_sum", "fresh") == pytest.approx(6.2)
    assert [record.form for record in caplog.records if record.message == "drain ended"] == ["exec"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{}", 400),
        (b"[]", 400),
        (b"not JSON", 400),
        (b"\xff\xfe", 400),
        (b'{"outcome": "exploded"}', 400),
        (b'{"outcome": "idle", "seconds": -1}', 400),
        (b'{"outcome": "idle", "seconds": NaN}', 400),
        (b'{"outcome": "idle", "reads": 1.5}', 400),
        (b'{"event": "ended"}', 400),
        (b"[" * 10_000, 400),
        (b'{"outcome": "idle", "note": "' + b"x" * MAX_REPORT_BYTES + b'"}', 413),
    ],
)
def test_a_report_that_is_none_is_refused(body: bytes, status: int) -> None:
    """Bounded, checked, answered in one line, and counted nowhere."""
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        answer = it.post(body)
        assert (answer.status_code, answer.text.count("\n")) == (status, 1)
        assert it.counters.totals() == DrainCounters().totals()


@pytest.mark.parametrize(("client", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.0.0.7", 403), ("", 403)])
def test_reports_come_from_this_pod(client: str, status: int) -> None:
    """The port is open to the network: nobody out there writes this Pod's metrics."""
    body = DrainReport("idle").to_json().encode()
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        assert it.router.dispatch(Request("POST", "/drain/report", body=body, client=client)).status == status
        assert it.ended("idle") == (status == 200)


def test_methods() -> None:
    """A drain is asked for with GET, a report is posted."""
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        assert it.post(b"{}", "/drain").status_code == 405
        assert it.router.dispatch(Request("GET", "/drain/report")).status == 405


def test_requests_cut_of_the_exec_form_are_counted() -> None:
    """Its report says that some were in flight; the sidecar sees the engine end, and counts those of the last read."""
    engine = RawServer(lambda call: call.page(BUSY))
    report = DrainReport("deadline", seconds=25.0, reads=20, busy_reads=20, inflight=9, grace_s=30, deadline_s=25)
    with engine, pod(engine) as it:
        it.post(report.to_json().encode())
        until(lambda: len(engine.calls) > 0)
        assert it.cut() == 0
        engine.close()
        until(lambda: it.cut() == 9)


def test_the_sidecars_own_hook_waits_for_the_engine() -> None:
    """Without native sidecars: it stays while a hook is at work or the port answers, and goes when refused twice."""
    engine, last = RawServer(lambda call: call.page(BUSY)), []
    with engine, pod(engine) as it:
        it.mark.set()
        it.post(json.dumps({"event": "started"}).encode())
        thread = threading.Thread(target=lambda: last.append(it.endpoint.wait_until_left()))
        thread.start()
        engine.close()
        thread.join(4.0)
        assert not last, "an exec hook had not said that it ended"
        it.post(DrainReport("gone", grace_s=15, deadline_s=10).to_json().encode())
        thread.join(LONG_S)
    assert last == ["engine left"]


def test_the_sidecars_own_hook_returns_in_time() -> None:
    """Without native sidecars: of an engine that never leaves it comes back at G-3, counted from the mark."""
    passed_s = [0.0]
    mark = TerminationMark(lambda: time.monotonic() + passed_s[0])
    marked_s = time.monotonic()
    mark.set()
    with RawServer(lambda call: call.page(BUSY)) as engine, pod(engine, grace_s=30.0, mark=mark) as it:
        passed_s[0] = 26.0
        assert it.endpoint.wait_until_left() == "time is up"
        assert time.monotonic() - marked_s >= 0.99  # 27 s after the mark
        passed_s[0] = 27.0
        assert it.endpoint.wait_until_left() == "time is up"


@pytest.mark.parametrize(("terminating", "kept_s"), [(False, 900), (True, 30)])
def test_a_saturated_engine_is_held_less_long_once_the_pod_terminates(terminating: bool, kept_s: float) -> None:
    """Its last values stand for 15 minutes, and for 30 s once marked: it ends soon, and then nothing is in flight."""
    now, hang = [1000.0], threading.Event()

    def answer(call: Call) -> None:
        call.hang() if hang.is_set() else call.page(BUSY)

    with RawServer(answer) as server:
        engine = Engine(
            Target(server.url(), timeout_s=0.3),
            EngineSettings(min_interval_s=1e-6),
            wall_clock=lambda: now[0],
            terminating=lambda: terminating,
        )
        assert engine.view().reading is not None
        hang.set()
        now[0] += kept_s
        held = engine.view()
        now[0] += 1
        gone = engine.view()
    assert (held.state, held.reading is not None) == ("saturated", True)
    assert (gone.state, gone.reading) == ("saturated", None)


def reading_of(page: bytes, draining: bool) -> dict[str, object]:
    """What `/api/v1/reading` says of a replica with such an engine, as a peer gets it."""
    with RawServer(lambda call: call.page(page)) as server:
        engine = Engine(Target(server.url()), EngineSettings())
        told = Sidecar([engine], Settings(), draining=lambda: draining).reading()
    loaded: dict[str, object] = json.loads(json.dumps(told))
    return loaded


def test_a_drain_of_240_s_causes_no_scale_up() -> None:
    """Rule 24: one of three was taken away and drains its 9 requests for four minutes; two with 9 each stay two."""
    staying, leaving = reading_of(BUSY, draining=False), reading_of(BUSY, draining=True)
    assert leaving["inflight"] == 9
    policy, state, members = parse_policy("queue:9,min=1,max=10,upwindow=0,downwindow=0"), ScaleState(), Members()
    unmarked, unmarked_members = ScaleState(), Members()
    for second in range(0, 241, 15):
        now_s = 1000.0 + second
        replicas = look(members, now_s, staying, staying, leaving)
        assert [replica.phase for replica in replicas] == [Phase.SERVING, Phase.SERVING, Phase.DRAINING]
        decision, state = decide(policy, Fleet(now_s, 2, replicas=replicas), state)
        assert (decision.desired, decision.inflight, decision.counts.draining) == (2, 18, 1)
        counted, unmarked = decide(
            policy, Fleet(now_s, 2, replicas=look(unmarked_members, now_s, staying, staying, staying)), unmarked
        )
        assert counted.desired == 3, "without the mark its load is load, and that is what the test is about"


def look(members: Members, now_s: float, *readings: dict[str, object]) -> tuple[Replica, ...]:
    """One look at replicas that answer so."""
    sightings = [sighting_of_reading(f"r{number}", reading) for number, reading in enumerate(readings)]
    return members.take(sightings, now_s, expected=2)
