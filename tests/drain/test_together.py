"""Several engines in one Pod: all of them idle at the same time, one report."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from infscale.drain.report import MAX_NOTE_CHARACTERS, DrainReport
from infscale.drain.timeline import OUTCOMES
from infscale.drain.together import WORST_FIRST, combined, drain_together

IDLE = DrainReport("idle", 6.0, reads=2, inflight=0, connections=1, grace_s=30, deadline_s=25, engine="vllm")


class Engine:
    """An engine whose drains end at given seconds of a common clock, with given outcomes."""

    def __init__(self, clock: Clock, *ends: tuple[float, str]) -> None:
        self.clock, self.ends, self.drains = clock, list(ends), 0

    def drain(self) -> DrainReport:
        """The next drain."""
        end_s, outcome = self.ends[self.drains]
        self.drains += 1
        self.clock.reach(end_s)
        return DrainReport(outcome, end_s, reads=2, inflight=3 if outcome == "deadline" else 0)


class Clock:
    """Seconds that the threads reach one after the other."""

    def __init__(self, *instants: float) -> None:
        self._instants, self._changed, self._local = list(instants), threading.Condition(), threading.local()

    def reach(self, at_s: float) -> None:
        """Wait until it is so late."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._instants[0] == at_s, 10)
            self._local.now_s = at_s

    def __call__(self) -> float:
        """The second that this thread has reached; the next one's turn comes."""
        with self._changed:
            self._instants.pop(0)
            self._changed.notify_all()
        return float(self._local.now_s)


def test_one_engine_is_its_own_report() -> None:
    """With one engine nothing is added."""
    assert drain_together([lambda: IDLE], time.monotonic) == (IDLE,)
    assert combined([IDLE]) is IDLE


def test_all_must_be_idle_at_the_same_time() -> None:
    """The first engine was idle at 6 s, the second at 40 s: the first is looked at again, and its answer holds."""
    clock = Clock(6.0, 40.0, 41.0)
    first, second = Engine(clock, (6.0, "idle"), (41.0, "idle")), Engine(clock, (40.0, "idle"))
    reports = drain_together([first.drain, second.drain], clock)
    assert (first.drains, second.drains) == (2, 1)
    assert [report.outcome for report in reports] == ["idle", "idle"]
    assert combined(reports).reads == 6


def test_the_second_look_is_the_end_of_an_engine() -> None:
    """Its outcome, what is in flight and connected are those of the second look; what was counted is of both."""
    clock = Clock(6.0, 20.0, 25.0)
    looks = [
        DrainReport("idle", 6.0, reads=2, inflight=0, connections=4, missing=1, note="first"),
        DrainReport("deadline", 25.0, reads=5, busy_reads=5, inflight=3, connections=2, restarted=True),
    ]

    def first() -> DrainReport:
        report = looks.pop(0)
        clock.reach(report.seconds)
        return report

    reports = drain_together([first, Engine(clock, (20.0, "idle")).drain], clock)
    assert reports[0] == DrainReport(
        "deadline", 25.0, 7, 5, missing=1, inflight=3, connections=2, restarted=True, note="first"
    )


def test_a_client_that_came_back_to_the_first_engine_is_waited_for() -> None:
    """The first engine is busy again when the second is done: then the second is looked at again, too."""
    clock = Clock(6.0, 40.0, 60.0, 61.0)
    first = Engine(clock, (6.0, "idle"), (60.0, "idle"))
    second = Engine(clock, (40.0, "idle"), (61.0, "idle"))
    reports = drain_together([first.drain, second.drain], clock)
    assert (first.drains, second.drains) == (2, 2)
    assert combined(reports).outcome == "idle"


def test_the_deadline_of_one_is_the_end_of_all() -> None:
    """When the time is up nobody is looked at again."""
    clock = Clock(6.0, 25.0)
    first, second = Engine(clock, (6.0, "idle")), Engine(clock, (25.0, "deadline"))
    report = combined(drain_together([first.drain, second.drain], clock))
    assert (first.drains, second.drains) == (1, 1)
    assert (report.outcome, report.inflight, report.seconds) == ("deadline", 3, 25.0)


def test_the_second_look_ends_at_the_deadline() -> None:
    """The first engine is busy when it is looked at again, up to the end: that is the outcome."""
    clock = Clock(6.0, 20.0, 25.0)
    first, second = Engine(clock, (6.0, "idle"), (25.0, "deadline")), Engine(clock, (20.0, "idle"))
    report = combined(drain_together([first.drain, second.drain], clock))
    assert (report.outcome, report.inflight) == ("deadline", 3)


def test_idle_within_a_read_of_each_other_is_at_the_same_time() -> None:
    """Two engines that were idle from the start cost two reads each."""
    clock = Clock(6.0, 6.5)
    engines = [Engine(clock, (6.0, "idle")), Engine(clock, (6.5, "idle"))]
    drain_together([engine.drain for engine in engines], clock)
    assert [engine.drains for engine in engines] == [1, 1]
    clock = Clock(6.0, 9.0)
    engines = [Engine(clock, (6.0, "idle")), Engine(clock, (9.0, "fresh"))]
    drain_together([engine.drain for engine in engines], clock)
    assert [engine.drains for engine in engines] == [1, 1], "a wait and the longest read apart"


def test_the_worst_outcome_is_the_pods() -> None:
    """Every outcome has its place, `deadline` first and `fresh` last."""
    assert set(WORST_FIRST) == set(OUTCOMES)
    for index, outcome in enumerate(WORST_FIRST[:-1]):
        better = DrainReport(WORST_FIRST[index + 1])
        assert combined([better, DrainReport(outcome), better]).outcome == outcome


def test_counts_add_up_and_notes_say_which_engine() -> None:
    """Sums of what was counted, the longest time, and None only where nobody knows."""
    hung = DrainReport("deadline", 25.0, reads=9, busy_reads=9, timeouts=9, engine="llama.cpp", note="timed out")
    report = combined([IDLE, hung])
    assert (report.seconds, report.reads, report.busy_reads, report.timeouts) == (25.0, 11, 9, 9)
    assert (report.inflight, report.connections) == (0, 1)
    assert (report.engine, report.note) == ("vllm,llama.cpp", "engine 2: timed out")
    assert combined([hung, hung]).inflight is None
    long = DrainReport("http", note="x" * MAX_NOTE_CHARACTERS)
    assert len(combined([long, long]).note) == MAX_NOTE_CHARACTERS
    assert combined([IDLE, DrainReport("idle", restarted=True)]).restarted


def test_one_report_of_two() -> None:
    """Every field: sums, the longest time, and what is the Pod's."""
    both = DrainReport(
        "idle",
        seconds=7.0,
        reads=3,
        busy_reads=1,
        timeouts=1,
        missing=2,
        unusable=4,
        inflight=0,
        connections=5,
        grace_s=30,
        deadline_s=25,
        engine="vllm",
        note="it is",
    )
    assert combined([both, replace(both, seconds=6.0, grace_s=31, deadline_s=26)]) == DrainReport(
        "idle", 7.0, 6, 2, 2, 4, 8, 0, 10, 30, 25, "vllm", note="engine 1: it is; engine 2: it is"
    )
    blind = replace(both, connections=None, inflight=None)
    assert (combined([blind, blind]).connections, combined([blind, both]).connections) == (None, 5)


def test_nothing_holds_a_process_that_is_told_to_stop() -> None:
    """Drains run on threads that end with the process, each with its engine's number in its name."""
    seen: list[tuple[str, bool]] = []

    def drain() -> DrainReport:
        seen.append((threading.current_thread().name, threading.current_thread().daemon))
        return IDLE

    drain_together([drain, drain], time.monotonic)
    assert sorted(seen) == [("drain-1", True), ("drain-2", True)]


def test_a_fault_of_ours_is_no_hang(caplog: pytest.LogCaptureFixture) -> None:
    """A drain that raises ends all, and the log has it, with the engine's number."""

    def broken() -> DrainReport:
        raise ValueError("a fault of ours")

    with pytest.raises(RuntimeError, match=r"1 engine\(s\)"):
        drain_together([lambda: IDLE, broken], time.monotonic)
    assert "a fault of ours" in caplog.text
    (line,) = caplog.records
    assert (line.message, line.engine) == ("drain failed", 2)  # type: ignore[attr-defined]
