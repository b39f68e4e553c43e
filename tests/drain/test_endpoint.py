"""`/drain` and `/drain/report` on a listener, and what a drain does to metrics, readings and decisions."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import logging
import select
import threading
import time
from collections.abc import Callable, Iterator
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
from infscale.drain.waiting import MAX_CALLERS
from infscale.engines.custom import profile_from_mapping
from infscale.engines.profile import Profile
from infscale.fleet.members import Members
from infscale.fleet.peer import sighting_of_reading
from infscale.metrics.collectors import Settings
from infscale.metrics.drains import DrainCollector, DrainCounters
from infscale.reading import ReadFailure, Reading
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

    def caller(self, address: str) -> http.client.HTTPConnection:
        """One that asks for a drain from this address, and whose answer is not read yet."""
        caller = http.client.HTTPConnection("127.0.0.1", self._listener.port, LONG_S, source_address=(address, 0))
        caller.request("GET", "/drain")
        return caller

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
    asked, line = [record for record in caplog.records if record.name == "infscale.drain.ledger"]
    assert (asked.message, asked.form, asked.client) == ("drain asked for", "httpGet", "127.0.0.1")  # type: ignore[attr-defined]
    assert (line.message, line.outcome, line.form, line.reads) == ("drain ended", "idle", "httpGet", 2)  # type: ignore[attr-defined]


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


def test_whoever_holds_all_places_does_not_keep_kubelet_out(caplog: pytest.LogCaptureFixture) -> None:
    """Sixteen calls from one address wait for a busy engine: a call from another address waits for it, too.

    The log has whoever is turned away: the one that came too late, and the one that lost its place.
    """
    busy = threading.Event()
    busy.set()
    with (
        RawServer(lambda call: call.page(BUSY if busy.is_set() else IDLE)) as engine,
        pod(engine) as it,
        contextlib.ExitStack() as stack,
    ):
        others = [stack.enter_context(contextlib.closing(it.caller("127.0.0.2"))) for _ in range(MAX_CALLERS)]
        until(lambda: len(it.endpoint._room._callers) == MAX_CALLERS)
        with contextlib.closing(it.caller("127.0.0.2")) as one_more:
            answer = one_more.getresponse()
            assert (answer.status, answer.read()) == (503, b"16 callers wait for the drain already\n")
            assert dict(answer.headers)["Retry-After"] == "1"
        kubelet = stack.enter_context(contextlib.closing(it.caller("127.0.0.1")))
        until(lambda: any(other.sock and select.select([other.sock], [], [], 0)[0] for other in others))
        busy.clear()
        answer = kubelet.getresponse()
        assert (answer.status, DrainReport.from_json(answer.read()).outcome) == (200, "idle")
        assert sorted(other.getresponse().status for other in others) == [200] * (MAX_CALLERS - 1) + [503]
    refused = [record.client for record in caplog.records if record.message.startswith("drain refused")]  # type: ignore[attr-defined]
    assert refused == ["127.0.0.2", "127.0.0.2"]


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
        restart = "no Pod-termination mark: a restart of the container, the Pod stays"
        assert it.drain().note == restart
        engine.close()
        assert it.drain().note.startswith(f"{restart}; 127.0.0.1:{engine.port}: ")
        it.mark.set()
        assert it.drain().note.startswith(f"127.0.0.1:{engine.port}: ")


def test_a_fault_of_ours_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    """A drain that fails lets kubelet go with 500 at once, and the log has why."""

    def broken() -> Profile:
        raise ValueError("a fault of ours")

    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        it.endpoint._engines = tuple(replace(beside, profile=broken) for beside in it.endpoint._engines)
        answer = it.router.dispatch(Request("GET", "/drain"))
    assert (answer.status, answer.body) == (500, b"the drain failed; the log of this process says more\n")
    assert "a fault of ours" in caplog.text


def test_engines_of_a_reload_are_looked_for() -> None:
    """A profile that came with a new configuration file holds for the drains that begin from then on."""
    own = profile_from_mapping({"name": "mine", "prefix": "mine", "running": "busy", "waiting": "queue"})
    with RawServer(lambda call: call.page(b"mine:busy 0\nmine:queue 0\n")) as engine, pod(engine) as it:
        it.endpoint.look_for((own,))
        report = it.drain()
    assert (report.outcome, report.engine) == ("idle", "mine")


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
        answer = it.post(json.dumps({"event": "started", "engine": "", "grace_s": 30}).encode())
        assert (answer.status_code, answer.text) == (200, "taken\n")
        assert it.ended("fresh") == 0
        answer = it.post(json.dumps({**told, "of_the_future": [1]}).encode())
        assert (answer.status_code, answer.text) == (200, "taken\n")
        assert it.ended("fresh") == 1
        assert it.value("infscale_drain_duration_seconds_sum", "fresh") == pytest.approx(6.2)
    asked, ended = [record for record in caplog.records if record.name == "infscale.drain.ledger"]
    assert (asked.form, asked.client, ended.form) == ("exec", "127.0.0.1", "exec")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"x" * MAX_REPORT_BYTES, 400),
        (b"x" * (MAX_REPORT_BYTES + 1), 413),
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
        assert answer.text.startswith(
            "/drain/report: " if status == 400 else f"a report of {len(body)} bytes: expected"
        )
        assert it.counters.totals() == DrainCounters().totals()


@pytest.mark.parametrize(("client", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.0.0.7", 403), ("", 403)])
def test_reports_come_from_this_pod(client: str, status: int) -> None:
    """The port is open to the network: nobody out there writes this Pod's metrics."""
    body = DrainReport("idle").to_json().encode()
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        answer = it.router.dispatch(Request("POST", "/drain/report", body=body, client=client))
        assert answer.status == status
        assert it.ended("idle") == (status == 200)
    if status == 403:
        assert answer.body == b"reports are taken from this Pod alone: post to 127.0.0.1\n"


@pytest.mark.parametrize("client", ["127.0.0.1", "10.0.0.7"])
def test_who_is_not_in_this_pod_learns_the_outcome_alone(client: str) -> None:
    """What the engine is and how busy it was is told to this Pod, and to the sidecar's log."""
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        told = json.loads(it.router.dispatch(Request("GET", "/drain", client=client)).body)
    assert told["outcome"] == "idle"
    assert (told.keys() == {"outcome"}) == (client == "10.0.0.7")
    assert ("engine" in told) == (client == "127.0.0.1")


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


def test_requests_cut_are_those_of_the_engine_that_ended() -> None:
    """Two engines, one busy at the deadline: the sidecar sees that one end, and counts what it had."""
    one, two = RawServer(lambda call: call.page(IDLE)), RawServer(lambda call: call.page(BUSY))
    with one, two, pod(one, two, grace_s=6.0) as it:
        report = it.drain()
        assert (report.outcome, report.inflight) == ("deadline", 9)
        one.close()
        two.close()
        until(lambda: it.cut() == 9)


def test_an_engine_that_restarts_after_the_drain_cut_its_requests() -> None:
    """The drain's last page is remembered: another process answers at the first look already."""
    restarted = threading.Event()

    def answer(call: Call) -> None:
        call.page(BUSY + b"process_start_time_seconds %d\n" % (1_700_000_900 if restarted.is_set() else 1_700_000_000))

    with RawServer(answer) as engine, pod(engine, grace_s=6.0) as it:
        engine_read = it.endpoint._engines[0].read

        def read(timeout_s: float) -> Reading | ReadFailure:
            restarted.set()
            return engine_read(timeout_s)

        it.endpoint._engines = (replace(it.endpoint._engines[0], read=read),)
        assert it.drain().inflight == 9
        until(lambda: it.cut() == 9)


@pytest.mark.parametrize(("engines", "inflight", "cut"), [(1, 4, 4), (1, None, 0), (2, 4, 0)])
def test_a_report_of_an_engine_that_is_gone_already(engines: int, inflight: int | None, cut: int) -> None:
    """What the hook saw last was cut; of several engines a report does not say which one it is about."""
    waiter = Waiter(*[[REFUSED]] * engines)
    report = DrainReport("deadline", inflight=inflight, grace_s=30, deadline_s=25)
    waiter.tell(report.to_json().encode())
    until(lambda: waiter.looks == engines and not any(t.name == "drain-cut" for t in threading.enumerate()))
    assert dict(waiter.counters.totals().cut)["deadline"] == cut


def test_a_drain_that_goes_on_for_a_later_caller_counts_from_its_arrival() -> None:
    """A caller that came 100 s ago has no time left in a grace period of 15 s: the engine is not read for it again."""
    with RawServer(lambda call: call.page(IDLE)) as engine, pod(engine) as it:
        report = it.endpoint._drain(time.monotonic() - 100.0)
    assert (report.outcome, report.reads) == ("deadline", 0)
    assert 100 <= report.seconds < 200


REFUSED = ReadFailure("unreachable", "refused", "nothing listens")
HANGS = ReadFailure("saturated", "timeout", "busy")


class Waiter:
    """The sidecar's own hook on a driven clock, beside engines that are found so at each of its looks.

    Attributes:
        now_s: seconds since the mark was set.
        at: what happens when a second has come.
    """

    def __init__(self, *engines: list[ReadFailure], grace_s: float = 30.0, marked_s: float = 0.0) -> None:
        self.now_s, self.looks = -marked_s, 0
        self.at: dict[float, Callable[[], object]] = {}
        mark = TerminationMark(lambda: self.now_s)
        mark.set()
        self.now_s = 0.0
        options = DrainOptions("http://127.0.0.1:9/metrics", grace_s=grace_s)
        beside = [Beside(options, (), lambda: None, functools.partial(self._read, list(found))) for found in engines]
        self.counters = DrainCounters()
        self.endpoint = DrainEndpoint(beside, mark, self.counters, clock=lambda: self.now_s, sleep=self._sleep)
        self.router = Router()
        self.endpoint.add_routes(self.router)

    def _read(self, found: list[ReadFailure], timeout_s: float) -> ReadFailure:
        assert timeout_s in (2.0, 0.5), "of a look, and of one after the drain"
        self.looks += 1
        return found.pop(0) if len(found) > 1 else found[0]

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds
        self.at.pop(self.now_s, lambda: None)()

    def tell(self, body: bytes) -> None:
        """An exec hook posts."""
        assert self.router.dispatch(Request("POST", "/drain/report", body=body, client="127.0.0.1")).status == 200


@pytest.mark.parametrize(
    ("looks", "left_s", "why"),
    [
        ([[REFUSED]], 3.0, "engine left"),
        ([[HANGS, REFUSED]], 4.0, "engine left"),
        ([[REFUSED, HANGS, REFUSED]], 5.0, "engine left"),
        ([[REFUSED, HANGS, HANGS, REFUSED, HANGS]], 27.0, "time is up"),
        ([[REFUSED], [HANGS, HANGS, REFUSED]], 5.0, "engine left"),
        ([[HANGS]], 27.0, "time is up"),
    ],
)
def test_the_sidecars_own_hook_waits_for_the_engine(looks: list[list[ReadFailure]], left_s: float, why: str) -> None:
    """Without native sidecars: it comes back once each engine refused twice in a row, at the latest at G-3.

    It does not look in the first 2 s: the engine's own hook may be that much later.
    """
    waiter = Waiter(*looks)
    assert (waiter.endpoint.wait_until_left(), waiter.now_s) == (why, left_s)


@pytest.mark.parametrize(
    ("marked_s", "left_s", "looks"), [(2.0, 1.0, 2), (1.9, 3.0, 2), (26.75, 0.25, 1), (27.0, 0.0, 0)]
)
def test_the_sidecars_own_hook_counts_from_the_mark(marked_s: float, left_s: float, looks: int) -> None:
    """Whoever asks later does not wait longer."""
    waiter = Waiter([REFUSED], marked_s=marked_s)
    waiter.endpoint.wait_until_left()
    assert (waiter.now_s, waiter.looks) == (left_s, looks)


def test_the_sidecars_own_hook_stays_while_the_engines_hook_is_at_work() -> None:
    """An exec hook says when it starts and when it has ended; one that was killed is waited for up to its deadline."""
    waiter = Waiter([REFUSED])
    waiter.tell(json.dumps({"event": "started"}).encode())
    waiter.at[10.0] = lambda: waiter.tell(DrainReport("gone", grace_s=15, deadline_s=10).to_json().encode())
    assert (waiter.endpoint.wait_until_left(), waiter.now_s) == ("engine left", 11.0)
    waiter = Waiter([REFUSED], grace_s=60.0, marked_s=10.0)
    waiter.at[5.0] = lambda: waiter.tell(json.dumps({"event": "started"}).encode())
    waiter.tell(json.dumps({"event": "started"}).encode())
    assert (waiter.endpoint.wait_until_left(), waiter.now_s) == ("time is up", 47.0)


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
