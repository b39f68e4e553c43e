"""The drain's rules 1 to 8: its clock, its deadline, and what it does in which order."""

from __future__ import annotations

import inspect
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infscale.cli import run as infscale
from infscale.drain.connections import Clients
from infscale.drain.options import DrainOptions
from infscale.drain.run import drain
from infscale.drain.timeline import DEADLINE, Done, Read, Timeline, Wait
from infscale.drain.verdict import BUSY, Verdict
from infscale.engines import PROFILES
from infscale.errors import UsageError
from infscale.scrape import Page, ScrapeFailure

from ..k8s.manifests import BUILDS, build, engine_pods, grace_faults, pods
from ..raw_server import raw_server
from .driven import Clock, run
from .matrix import BUSY as BUSY_PAGE
from .matrix import BY_NAME, IDLE, Row, hang, serving

URL = "http://127.0.0.1:8000/metrics"
ROOT = Path(__file__).parent.parent.parent


def options(**given: object) -> DrainOptions:
    """Options that were checked."""
    made = DrainOptions(URL, **given)  # type: ignore[arg-type]
    made.check()
    return made


def test_rule_00_nothing_is_read_while_requests_settle() -> None:
    """0 to 5 s (settle): nothing is read and the engine is not touched, not even if its port refuses."""
    clock = Clock()
    with raw_server(serving(IDLE)) as server:
        run(server.url(), clock=clock)
    assert clock.slept_s[0] == 5.0
    assert clock.reads_at_s[0] == 5.0


def test_rule_00_wait_between_reads_is_a_second_or_what_is_left() -> None:
    """One read, then a wait of min(1 s, time left to G-5), then the next; a busy engine is held to G-5."""
    timeline = Timeline(options(grace_s=15).schedule)
    busy = Verdict(BUSY)
    assert timeline.next(8.0, busy) == Wait(1.0)
    assert timeline.next(9.75, busy) == Wait(0.25)
    assert timeline.next(10.0, busy) == Done(DEADLINE)


def test_rule_00_no_read_starts_at_or_after_the_deadline() -> None:
    """G-5: no read starts at or after this instant; a read that ends after it has no wait after it."""
    timeline = Timeline(options(grace_s=15).schedule)
    assert isinstance(timeline.next(9.999), Read)
    assert timeline.next(10.0) == Done(DEADLINE)
    assert timeline.next(11.5, Verdict(BUSY)) == Done(DEADLINE)


@pytest.mark.parametrize("grace_s", [15, 30, 3600])
def test_rule_00_last_read_ends_before_the_return(grace_s: float) -> None:
    """G-3: the hook has returned: the last read has a total budget of 2 s, less what the return itself needs."""
    timeline = Timeline(options(grace_s=grace_s).schedule)
    assert timeline.next(6.0) == Read(2.0)
    for at_s in (grace_s - 5.001, grace_s - 6, grace_s - 5.5):
        step = timeline.next(at_s)
        assert isinstance(step, Read)
        assert step.budget_s <= 2.0
        assert at_s + step.budget_s <= grace_s - 3.1 + 1e-9, "with a tenth of a second for the report"


def test_rule_01_monotonic_clock_from_the_start() -> None:
    """A monotonic clock, started when the hook starts."""
    clock = Clock()
    clock.now_s = 5e6  # the clock's origin is of no matter, and neither is the wall clock
    with raw_server(serving(IDLE)) as server:
        report = drain(DrainOptions(server.url()), clock=clock, sleep=clock.sleep, connections=lambda: None)
    assert report.seconds == 6.0
    values = iter([clock.now_s - 2.0])  # a hook that began 2 s ago: settling takes the other 3
    clock.slept_s.clear()
    with raw_server(serving(IDLE)) as server:
        told = DrainOptions(server.url())
        late = drain(told, clock=lambda: next(values, clock.now_s), sleep=clock.sleep, connections=lambda: None)
    assert (late.seconds, clock.slept_s) == (6.0, [3.0, 1.0])
    assert inspect.signature(drain).parameters["clock"].default is time.monotonic


@pytest.mark.parametrize("grace_s", [15, 30, 3600])
def test_rule_02_idle_engine_costs_two_reads(grace_s: float) -> None:
    """An idle engine costs exactly two reads and about 6 s, whatever G is (15, 30, 3600)."""
    with raw_server(serving(IDLE)) as server:
        report = run(server.url(), grace_s=grace_s)
        assert len(server.calls) == 2
    assert (report.outcome, report.reads, report.seconds) == ("idle", 2, 6.0)


def test_rule_03_idle_reads_must_be_consecutive() -> None:
    """Busy, idle, busy, idle, idle is five reads."""
    with raw_server(serving(BUSY_PAGE, IDLE, BUSY_PAGE, IDLE, IDLE)) as server:
        report = run(server.url())
    assert (report.outcome, report.reads, report.busy_reads, report.seconds) == ("idle", 5, 2, 9.0)


def test_rule_04_endless_body_is_cut_off() -> None:
    """An endless body ends at the size limit, long before the read's time is over."""
    row = BY_NAME["endless"]
    assert row.answer is not None
    clock = Clock()
    with raw_server(row.answer) as server:
        row.check(run(server.url(), clock=clock, grace_s=15), 15)


def test_rule_04_page_that_takes_long_to_parse_does_not_delay_the_return() -> None:
    """The budget holds for parsing too: a page that cannot be parsed in time is busy, and is not waited for."""
    line = 'vllm:num_requests_running{a="\\n"} 0\t\n'  # legal, and the slow way to write it
    body = (line * (900_000 // len(line)) + "vllm:num_requests_waiting 0\n").encode()
    clock = Clock()

    def fetch(_target: object, *, timeout_s: float) -> Page:
        clock.now_s += timeout_s - 0.05
        return Page(200, "text/plain", body, timeout_s - 0.05)

    told = DrainOptions(URL, grace_s=15, max_grace_s=11)
    seen: list[Verdict] = []
    report = drain(
        told,
        clock=clock,
        sleep=clock.sleep,
        fetch=fetch,
        connections=lambda: Clients(3),
        on_read=lambda note: seen.append(note.verdict),
    )
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "parse"] == [True], "nor the exit"
    assert (report.outcome, report.reads, report.timeouts) == ("deadline", 1, 1)
    why = f"127.0.0.1:8000: a page of {len(body)} bytes, which could not be parsed in time"
    assert seen == [Verdict(BUSY, why, fault="timeout", clients=Clients(3), answered=True)]
    for thread in threading.enumerate():  # the abandoned parse may still run; the next test shall have the processor
        if thread.name == "parse":
            thread.join(30)


def test_rule_04_read_that_took_all_of_its_time_says_what_it_waited_for() -> None:
    """A failure needs no parsing: its own message stands in the report, however late it came."""
    clock = Clock()
    report = drain(
        DrainOptions(URL, grace_s=15),
        clock=clock,
        sleep=clock.sleep,
        fetch=lambda _target, *, timeout_s: ScrapeFailure("timeout", "timed out after 2 s", True, timeout_s + 0.01),
        connections=lambda: None,
    )
    assert (report.outcome, report.timeouts, report.note) == ("deadline", 5, "timed out after 2 s")


def test_rule_05_deadline_comes_from_the_grace_period_in_one_place() -> None:
    """The deadline is derived from G in one place: no other module of the drain knows the numbers."""
    schedule = options(grace_s=120, exit_reserve_s=20).schedule
    assert (schedule.settled_s, schedule.last_read_s, schedule.return_s) == (5.0, 100.0, 102.0)
    folder = ROOT / "exporter" / "infscale" / "drain"
    pure = [folder / f"{name}.py" for name in ("timeline", "verdict", "run", "report", "connections")]
    assert [path.name for path in pure if re.search(r"grace_s\s*[-+]|exit_reserve", path.read_text())] == []


@pytest.mark.parametrize("name", BUILDS)
def test_rule_05_manifests_give_one_grace_period(name: str) -> None:
    """`--grace` is rendered from the same value as the Pod's field, so that they cannot disagree."""
    assert [fault for whose, _, spec in pods(build(name)) for fault in grace_faults(whose, spec)] == []


def test_rule_05_another_grace_period_is_noticed() -> None:
    """The rule above bites: the Pod's field, moved by a second, disagrees with sidecar, hook and hook writer."""
    ((whose, _, spec, _, _),) = engine_pods(build("examples/vllm"))
    assert list(grace_faults(whose, spec)) == []
    moved = {**spec, "terminationGracePeriodSeconds": spec["terminationGracePeriodSeconds"] + 1}
    assert sorted(fault.split()[1] for fault in grace_faults(whose, moved)) == [
        "engine:",
        "infscale-hook:",
        "infscale:",
    ]


@pytest.mark.parametrize(
    ("given", "effective_s"),
    [
        ({"grace_s": 120}, 120),
        ({"grace_s": 120, "max_grace_s": 60}, 60),
        ({"grace_s": 120, "max_grace_s": 600}, 120),
    ],
)
def test_rule_06_effective_grace_is_the_smallest(given: dict[str, Any], effective_s: float) -> None:
    """The effective grace is the smaller of the configured one and `--max-grace`."""
    with raw_server(serving(BUSY_PAGE)) as server:
        report = run(server.url(), **given)
    assert (report.grace_s, report.deadline_s, report.seconds) == (effective_s, effective_s - 5, effective_s - 5)


@pytest.mark.parametrize(("max_grace_s", "seconds"), [(7.0, 2.0), (3.0, 0.0), (0.5, 0.0)])
def test_rule_06_a_limit_below_the_settle_time(max_grace_s: float, seconds: float) -> None:
    """A node that allows 7 s leaves no time to read: the drain returns as its reserve begins and says so."""
    clock = Clock()
    report = run(URL, clock=clock, max_grace_s=max_grace_s)
    assert (report.outcome, report.reads, report.seconds) == ("deadline", 0, seconds)
    assert "no time" in report.note


def test_rule_07_exit_status_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    """Always exit 0: a non-zero exit adds an event and changes nothing; the outcome is reported otherwise."""
    rows = [BY_NAME[name] for name in ("idle", "hangs", "refuses", "HTTP 500", "NaN")]

    def status(row: Row) -> int:
        with row.serve() as url:
            return infscale(["drain", "--engine-url", url, "--grace", "15", "--dry-run", "--format", "json"])

    with ThreadPoolExecutor(len(rows)) as pool:
        assert list(pool.map(status, rows)) == [0] * len(rows)
    assert capsys.readouterr().out.count('"outcome"') == len(rows)


def test_an_engine_that_nobody_knows_is_told_with_those_that_are() -> None:
    """Whoever misspells an engine sees how it is spelt."""
    with pytest.raises(UsageError, match=r"^unknown engine 'vlm'; known are .*sglang.*, vllm$"):
        options(engine="vlm").profile()
    assert options(engine="vllm").profile() is PROFILES["vllm"]
    with pytest.raises(UsageError, match=r"^unknown engine 'vllm'; known are sglang$"):
        options(engine="vllm").profile((PROFILES["sglang"],))
    assert options().profile() is None


def test_rule_08_exit_reserve_moves_the_deadline() -> None:
    """SGLang prefill and decode engines need about 20 s after SIGTERM: `--exit-reserve 20`, and G of at least 45."""
    with raw_server(hang) as server:
        report = run(server.url(), never_answers=True, grace_s=45, exit_reserve_s=20)
    assert report.outcome == "deadline"
    assert report.deadline_s == 25.0
    assert 25.0 <= report.seconds <= 27.0


def test_rule_08_grace_period_that_leaves_no_time_is_refused() -> None:
    """G < R + 10 is refused, with both numbers in the message."""
    options(grace_s=30, exit_reserve_s=20)
    with pytest.raises(UsageError, match=r"--grace is 29 s and --exit-reserve 20 s.*at least 30 s"):
        options(grace_s=29, exit_reserve_s=20)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"grace_s": 14.9}, "--grace is 14.9 s: expected 15 to 3600"),
        ({"grace_s": 3601}, "--grace is 3601 s: expected 15 to 3600"),
        ({"grace_s": float("nan")}, "--grace is nan s: expected 15 to 3600"),
        ({"exit_reserve_s": -1}, "--exit-reserve is -1 s: expected 0 or more"),
        ({"exit_reserve_s": float("nan")}, "--exit-reserve is nan s: expected 0 or more"),
        ({"max_grace_s": 0}, "--max-grace is 0 s: expected more than 0"),
        ({"stale_after_s": float("inf")}, "--drain-stale-after is inf s: expected more than 0"),
        ({"on_http_error": "ignore"}, "--on-http-error is 'ignore': expected connections or return"),
        ({"leader_url": "ftp://leader/metrics"}, "URL 'ftp://leader/metrics' has a scheme that cannot be read"),
    ],
)
def test_options_that_cannot_be_used_are_refused(given: dict[str, object], said: str) -> None:
    """Each is told in one line with its flag."""
    with pytest.raises(UsageError, match="^" + re.escape(said)) as caught:
        options(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [{"grace_s": 15, "exit_reserve_s": 0.5}, {"grace_s": 3600}, {"stale_after_s": 0.5}])
def test_options_at_their_bounds_are_taken(given: dict[str, object]) -> None:
    """The bounds themselves can be used."""
    options(**given)


def test_an_engine_that_needs_no_time_to_exit() -> None:
    """Without an exit reserve the last read may begin just before the grace period ends, and none outlasts it."""
    schedule = options(exit_reserve_s=0).schedule
    assert (schedule.settled_s, schedule.last_read_s, schedule.return_s) == (5.0, 30.0, 30.0)
    timeline = Timeline(schedule)
    assert timeline.next(29.5) == Read(pytest.approx(0.4))  # type: ignore[arg-type]
    assert timeline.next(29.9) == Done(DEADLINE)
