"""Callers of one drain: joined, bounded, and never let go sooner than a drain of their own would let them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from infscale.drain import waiting
from infscale.drain.options import Schedule
from infscale.drain.report import DrainReport
from infscale.drain.waiting import MAX_CALLERS, TooManyError, WaitingRoom
from tests.sidecar_process import LONG_S

SCHEDULE = Schedule(settled_s=5.0, last_read_s=25.0, return_s=27.0)
"""Of a grace period of 30 s."""


class Rig:
    """A room on a driven clock; each drain waits until the test ends it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.began: list[float] = []
        self.answers: list[DrainReport | None] = []
        self.turned_away: list[str] = []
        self._end = threading.Semaphore(0)
        self._outcomes: list[str] = []
        self._threads: list[threading.Thread] = []
        self.room = WaitingRoom(self._run, SCHEDULE, lambda: self.now_s)

    def _run(self, start_s: float) -> DrainReport:
        thread = threading.current_thread()
        assert (thread.name, thread.daemon) == ("drain", True), "a process that is told to stop does not wait for it"
        self.began.append(start_s)
        assert self._end.acquire(timeout=LONG_S)
        outcome = self._outcomes.pop(0)
        if outcome == "raise":
            raise ValueError("a fault of ours")
        return DrainReport(outcome, seconds=self.now_s - start_s)

    def call(self, at_s: float, client: str = "10.0.0.1") -> None:
        """A caller arrives, and waits by the time this comes back; that may be in another's place."""
        self.now_s = at_s
        before = self.places
        thread = threading.Thread(target=self._wait, args=(client,))
        self._threads.append(thread)
        thread.start()
        until(lambda: (self.places != before and len(self.began) > 0) or not thread.is_alive())
        assert thread.is_alive(), "it came back at once"

    def _wait(self, client: str) -> None:
        try:
            self.answers.append(self.room.wait(client))
        except TooManyError:
            self.turned_away.append(client)

    def end(self, at_s: float, outcome: str) -> None:
        """The drain that runs ends; the next runs, or none, by the time this comes back."""
        self.now_s = at_s
        began = len(self.began)
        self._outcomes.append(outcome)
        self._end.release()
        until(lambda: len(self.began) > began or not self.room.running)

    @property
    def waiting(self) -> int:
        """How many callers have not been answered."""
        return self.places.total()

    @property
    def places(self) -> Counter[str]:
        """How many callers of each address have not been answered."""
        with self.room._lock:
            return Counter(caller.client for caller in self.room._callers)

    def join(self) -> list[DrainReport | None]:
        """Every answer, once all have one."""
        for thread in self._threads:
            thread.join(LONG_S)
        return self.answers


def until(check: Callable[[], bool]) -> None:
    """Wait until it is true."""
    end = time.monotonic() + LONG_S
    while not check():
        assert time.monotonic() < end
        time.sleep(0.002)


def outcomes(rig: Rig) -> list[str]:
    """What each caller was told, in the order of the answers."""
    return [answer.outcome for answer in rig.join() if answer is not None]


def test_a_second_call_joins_the_drain_that_runs() -> None:
    """Rule 20: hooks that start together share one drain, and its report."""
    rig = Rig()
    assert rig.room.running is False
    rig.call(100.0)
    rig.call(102.0)
    assert rig.room.running is True
    rig.end(106.0, "idle")
    first, second = rig.join()
    assert first is second
    assert rig.began == [100.0]


def test_callers_are_bounded() -> None:
    """Rule 20: the 17th is turned away while 16 wait, and taken again afterwards."""
    rig = Rig()
    for _ in range(MAX_CALLERS):
        rig.call(100.0)
    with pytest.raises(TooManyError):
        rig.room.wait("10.0.0.1")
    rig.end(106.0, "idle")
    assert outcomes(rig) == ["idle"] * 16
    rig.call(200.0)
    rig.end(206.0, "idle")
    assert rig.began == [100.0, 200.0]
    assert outcomes(rig) == ["idle"] * 17


def test_nobody_who_takes_all_places_keeps_kubelet_out() -> None:
    """Sixteen calls of one address: kubelet gets the place of the last of them, and only that one is turned away."""
    rig = Rig()
    for _ in range(MAX_CALLERS):
        rig.call(100.0, "10.0.0.7")
    rig.call(101.0, "10.0.0.1")
    until(lambda: rig.turned_away == ["10.0.0.7"])
    with pytest.raises(TooManyError):
        rig.room.wait("10.0.0.7")
    rig.end(106.0, "idle")
    assert outcomes(rig) == ["idle"] * MAX_CALLERS
    assert rig.turned_away == ["10.0.0.7"]


def test_a_place_is_kept_against_however_many_calls_of_others() -> None:
    """Addresses share the places: who has more than another gives way, down to the same number, and one is kept."""
    rig = Rig()
    for client in ["kubelet"] * 2 + ["a"] * 14:
        rig.call(100.0, client)
    for taken in range(1, 8):
        rig.call(100.0, "b")
        assert rig.places == {"kubelet": 2, "a": 14 - taken, "b": taken}
    for client in ("a", "b"):
        with pytest.raises(TooManyError):
            rig.room.wait(client)
    rig.end(106.0, "idle")
    assert outcomes(rig) == ["idle"] * MAX_CALLERS
    assert rig.turned_away == ["a"] * 7


def test_whoever_asked_before_does_not_shorten_the_settle_time() -> None:
    """Somebody asked 4 s before the delete: requests still land after it, so the reads go on for the hook."""
    rig = Rig()
    rig.call(100.0)
    rig.call(104.0)
    rig.end(106.0, "idle")
    assert rig.began == [100.0, 104.0]
    assert rig.waiting == 1
    rig.end(109.0, "idle")
    assert rig.began == [100.0, 104.0]
    assert outcomes(rig) == ["idle", "idle"]


def test_a_caller_is_held_until_its_own_two_reads_could_have_been_made() -> None:
    """Idle 5.9 s after it came is too early, 6 s after it is not."""
    for ended_s, began in ((109.9, [100.0, 104.0]), (110.0, [100.0])):
        rig = Rig()
        rig.call(100.0)
        rig.call(104.0)
        rig.end(ended_s, "idle")
        assert rig.began == began
        if rig.waiting:
            rig.end(ended_s, "idle")
        assert outcomes(rig) == ["idle", "idle"]


def test_a_caller_is_held_until_its_own_deadline() -> None:
    """The first one's reads took long: what ended at the second's very deadline is good enough for it."""
    rig = Rig()
    rig.call(100.0)
    rig.call(103.0)
    rig.end(128.0, "deadline")
    assert outcomes(rig) == ["deadline", "deadline"]
    assert rig.began == [100.0]


def test_a_drain_that_never_ends_lets_its_callers_go() -> None:
    """It never has to: 10 s after the instant at which a drain has returned for certain."""
    end = threading.Event()

    def run(start_s: float) -> DrainReport:
        end.wait(LONG_S)
        return DrainReport("idle")

    room = WaitingRoom(run, Schedule(0.0, 0.0, 0.2 - waiting._LATE_S), time.monotonic)
    began_s = time.monotonic()
    assert room.wait("10.0.0.1") is None
    assert time.monotonic() - began_s >= 0.2
    assert not end.is_set()
    end.set()
    until(lambda: not room.running)


def test_whoever_asked_before_does_not_take_the_grace_period_away() -> None:
    """Somebody asked 20 s before the delete and ran into its deadline: the hook is held to its own."""
    rig = Rig()
    rig.call(100.0)
    rig.call(120.0)
    rig.end(125.0, "deadline")
    assert rig.began == [100.0, 120.0]
    rig.end(145.0, "deadline")
    assert outcomes(rig) == ["deadline", "deadline"]


def test_idle_long_after_its_own_settle_time_is_idle() -> None:
    """A busy engine that becomes idle ends the wait of everybody whose requests had time to land."""
    rig = Rig()
    rig.call(100.0)
    rig.call(110.0)
    rig.end(118.0, "idle")
    assert outcomes(rig) == ["idle", "idle"]
    assert rig.began == [100.0]


def test_the_next_drain_has_the_clock_of_who_waited_longest() -> None:
    """Nobody is held beyond his own deadline by those who came later."""
    rig = Rig()
    for at_s in (100.0, 112.0, 118.0):
        rig.call(at_s)
    rig.end(125.0, "deadline")
    assert rig.began[1:] == [112.0]
    rig.end(137.0, "deadline")
    assert rig.began[1:] == [112.0, 118.0]
    rig.end(143.0, "deadline")
    assert outcomes(rig) == ["deadline"] * 3


def test_a_drain_that_fails_is_told_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours answers who waits, and does not end draining."""
    rig = Rig()
    rig.call(100.0)
    rig.call(100.0)
    rig.end(101.0, "raise")
    assert rig.join() == [None, None]
    assert [record.message for record in caplog.records if record.exc_info] == ["drain failed"]
    rig.call(110.0)
    rig.end(116.0, "idle")
    assert outcomes(rig) == ["idle"]
