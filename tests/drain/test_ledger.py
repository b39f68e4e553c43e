"""The books of a Pod's drains: what is logged, and for how long the engines that were left busy are looked after."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import threading
from collections.abc import Callable

import pytest

from infscale.drain.ledger import Beside, Ledger, Left
from infscale.drain.options import DrainOptions
from infscale.drain.report import DrainReport
from infscale.metrics.drains import DrainCounters
from infscale.reading import ModelReading, ReadFailure, Reading
from tests.drain.test_connections import client
from tests.drain.test_waiting import until

REFUSED = ReadFailure("unreachable", "refused", "nothing listens")
NOBODY = "http://127.0.0.1:9/metrics"
"""An engine's port at which nobody listens and to which nobody is connected."""


def reading(inflight: float, tokens: float = 500) -> Reading:
    """A page with requests in flight."""
    counters = (("generation_tokens_total", tokens),)
    return Reading("vllm", "ok", (ModelReading("m", inflight, 0.0, inflight),), counters=counters)


class Books:
    """A ledger on a driven clock, and an engine with 9 requests in flight that ends at a given second.

    Attributes:
        looks: reads of the engine so far, each a second apart.
    """

    def __init__(
        self,
        ends_s: float = 0.0,
        hold: threading.Event | None = None,
        url: str = NOBODY,
        sleep: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self.counters, self.looks, self._ends_s, self._hold = DrainCounters(), 0, ends_s, hold
        self.ledger = Ledger(self.counters, clock=lambda: float(self.looks), sleep=sleep)
        self.left = Left(Beside(DrainOptions(url), (), lambda: None, self._read), 9.0)

    def _read(self, timeout_s: float) -> Reading | ReadFailure:
        assert timeout_s == 0.5
        if self._hold is not None:
            self._hold.wait(30)
        self.looks += 1
        return reading(9.0) if self.looks <= self._ends_s else REFUSED

    def ended(self, report: DrainReport, *left: Left) -> None:
        """A drain ends; back when all that was left is looked after."""
        self.ledger.ended(report, "exec", left or (self.left,))
        if self._hold is None:
            until(lambda: not any(thread.name == "drain-cut" for thread in threading.enumerate()))

    def cut(self, outcome: str = "deadline") -> float:
        """How many requests are counted as cut."""
        return dict(self.counters.totals().cut)[outcome]


BUSY = DrainReport("deadline", seconds=25.0, reads=20, inflight=9, grace_s=30.0, deadline_s=25.0, engine="vllm")


def test_who_is_cut_counts_under_the_drains_outcome(caplog: pytest.LogCaptureFixture) -> None:
    """The engine ended with what it had: the metric and a warning say how many, and of which drain."""
    for outcome in ("deadline", "stale", "http", "tls"):
        books = Books()
        books.ended(DrainReport(outcome, grace_s=30, deadline_s=25, inflight=9))
        assert (books.cut(outcome), sum(dict(books.counters.totals().cut).values())) == (9, 9)
    cut = [record for record in caplog.records if record.message == "requests cut"]
    assert [(line.outcome, line.requests, line.url) for line in cut][-1] == ("tls", 9, NOBODY)  # type: ignore[attr-defined]
    assert {line.levelno for line in cut} == {logging.WARNING}


@pytest.mark.parametrize("outcome", ["idle", "fresh", "refused", "gone"])
def test_nobody_is_looked_after_who_had_nothing_in_flight(outcome: str) -> None:
    """An engine that was idle, or had gone by itself, is not read again."""
    books = Books()
    books.ended(DrainReport(outcome, inflight=9, grace_s=30, deadline_s=25))
    books.ended(DrainReport("deadline", inflight=0, grace_s=30, deadline_s=25))
    assert (books.looks, books.cut(outcome)) == (0, 0)


def test_whose_requests_nobody_could_count_is_looked_after() -> None:
    """A drain that never measured anything may have left requests all the same."""
    books = Books()
    books.ended(DrainReport("deadline", inflight=None, grace_s=30, deadline_s=25))
    assert books.looks == 1


@pytest.mark.parametrize(
    ("grace_s", "deadline_s", "last_s"),
    [(30, 25, 9), (45, 25, 24), (15, 25, 4), (3600, 25, 124)],
    ids=["reserve of 5 s", "of 20 s", "none", "longer than any"],
)
def test_an_engine_is_looked_after_until_its_kill(grace_s: float, deadline_s: float, last_s: int) -> None:
    """Until 5 s after the grace period's end, at most 125 s; an engine that ends later was not ended by this delete."""
    report = DrainReport("deadline", inflight=9, grace_s=grace_s, deadline_s=deadline_s)
    in_time, later = Books(ends_s=last_s), Books(ends_s=last_s + 1)
    in_time.ended(report)
    later.ended(report)
    assert (in_time.cut(), later.cut()) == (9, 0)


def test_a_restart_since_the_drains_last_read_is_an_end() -> None:
    """Another process answers at the first look already: what the drain saw last was cut."""
    books = Books(ends_s=1)
    books.ended(BUSY, Left(books.left.engine, 7.0, reading(7.0, tokens=900)))
    assert (books.looks, books.cut()) == (1, 7)


def test_an_engine_that_closed_its_port_and_serves_on() -> None:
    """Its last client is served to its end, long before the kill: nobody was cut, though the port has been closed."""
    with contextlib.ExitStack() as served, socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        served.enter_context(client(port))
        connection = served.enter_context(listening.accept()[0])
        listening.close()
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                served.close()
                assert connection.fileno() == -1

        books = Books(url=f"http://127.0.0.1:{port}/metrics", sleep=sleep)
        books.ended(DrainReport("deadline", inflight=9, grace_s=60, deadline_s=25))
    assert (books.looks, slept, books.cut()) == (4, [0.5] * 3, 0)


def test_each_engine_of_the_pod_is_looked_after() -> None:
    """The sums are over all of them."""
    books = Books()
    books.ended(BUSY, books.left, books.left)
    assert books.cut() == 18


def test_the_engines_that_are_looked_after_are_few(caplog: pytest.LogCaptureFixture) -> None:
    """However many reports say that they were left busy: 64 at a time, and the log says that one more is not."""
    hold = threading.Event()
    books = Books(hold=hold)
    books.ended(BUSY, *[books.left] * 64)
    assert not any("not looked after" in record.message for record in caplog.records)
    books.ended(BUSY)
    looking = [thread.daemon for thread in threading.enumerate() if thread.name == "drain-cut"]
    assert looking == [True] * 64, "a process that is told to stop does not wait for them"
    hold.set()
    until(lambda: books.cut() == 9 * 64)
    (line,) = [record for record in caplog.records if record.message == "not looked after: too many drains at once"]
    assert (line.levelno, line.url) == (logging.WARNING, NOBODY)  # type: ignore[attr-defined]
    until(lambda: not any(thread.name == "drain-cut" for thread in threading.enumerate()))
    books.ended(BUSY)
    until(lambda: books.cut() == 9 * 65)


def logged(caplog: pytest.LogCaptureFixture, write: Callable[[Ledger], object]) -> dict[str, object]:
    """What the ledger adds to its one line, beside the fields of every line."""
    caplog.set_level(logging.INFO, "infscale.drain.ledger")
    caplog.clear()
    write(Ledger(DrainCounters()))
    (record,) = [each for each in caplog.records if each.name == "infscale.drain.ledger"]
    usual = vars(logging.makeLogRecord({})).keys()
    return {
        "level": record.levelname,
        **{name: value for name, value in vars(record).items() if name not in usual and name != "message"},
    }


def test_a_drain_is_a_line_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Who asked, by which form, and the whole report but for what is not known; a warning where somebody may be cut."""
    asked = logged(caplog, lambda ledger: ledger.began("httpGet", "10.0.0.1"))
    assert asked == {"level": "INFO", "form": "httpGet", "client": "10.0.0.1"}
    ended = logged(caplog, lambda ledger: ledger.ended(DrainReport("idle", 6.0, reads=2, inflight=0), "exec", []))
    assert ended["level"] == "INFO"
    assert (ended["form"], ended["outcome"], ended["seconds"], ended["inflight"]) == ("exec", "idle", 6.0, 0)
    assert {"connections", "note", "engine"} & ended.keys() == set()
    for outcome, level in (("fresh", "INFO"), ("deadline", "WARNING"), ("refused", "WARNING"), ("gone", "WARNING")):
        end = functools.partial(Ledger.ended, report=DrainReport(outcome), form="exec", left=[])
        assert logged(caplog, end)["level"] == level
