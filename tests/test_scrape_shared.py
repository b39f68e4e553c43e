"""One read at a time, its answer shared: over threads, with a driven clock, and counted by a real server."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from infscale.errors import SourceError
from infscale.scrape import Page, Target, fetch
from infscale.scrape_shared import SharedRead
from tests.raw_server import Call, raw_server


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Reads:
    """A read that waits until it is let go, and counts."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = threading.Event()
        self.go = threading.Event()
        self.error: BaseException | None = None

    def __call__(self) -> int:
        self.count += 1
        self.begun.set()
        assert self.go.wait(20)
        if self.error is not None:
            raise self.error
        return self.count


def test_an_answer_is_shared_for_the_interval():
    """A young answer is given again; at the interval's end there is a new read."""
    clock, reads = Clock(), Reads()
    reads.go.set()
    shared = SharedRead(reads, clock)

    assert shared.get(1.0, 5.0) == 1
    clock.now_s += 0.999
    assert shared.get(1.0, 5.0) == 1
    clock.now_s += 0.001
    assert shared.get(1.0, 5.0) == 2


def test_the_age_counts_from_the_end_of_the_read():
    """A slow read does not lead to reads without a pause."""
    clock = Clock()

    def slow() -> float:
        clock.now_s += 5.0
        return clock.now_s

    shared = SharedRead(slow, clock)

    assert shared.get(1.0, 5.0) == 105.0
    clock.now_s += 0.5
    assert shared.get(1.0, 5.0) == 105.0


def test_a_caller_may_ask_for_a_younger_answer():
    """An age of 0 always reads anew, a large one does not."""
    clock, reads = Clock(), Reads()
    reads.go.set()
    shared = SharedRead(reads, clock)

    assert [shared.get(1.0, 5.0), shared.get(0, 5.0), shared.get(1.0, 5.0), shared.get(0, 5.0)] == [1, 2, 2, 3]
    clock.now_s += 50
    assert shared.get(60, 5.0) == 3


def test_callers_share_the_read_under_way():
    """Thirty callers at once make one read, also those that ask for a fresh one."""
    reads = Reads()
    shared = SharedRead(reads)
    with ThreadPoolExecutor(31) as pool:
        first = pool.submit(shared.get, 1.0, 5.0)
        assert reads.begun.wait(10)
        others = [pool.submit(shared.get, 0 if n % 2 else 1.0, 20) for n in range(30)]
        until_waiting(shared, 30)
        reads.go.set()

        assert {future.result(20) for future in (first, *others)} == {1}
    assert reads.count == 1


def until_waiting(shared: SharedRead[int], callers: int) -> None:
    """Returns when that many callers wait for the read under way."""
    flight = shared._flight
    assert flight is not None
    for _ in range(2000):
        if len(flight.done._cond._waiters) == callers:  # type: ignore[attr-defined]
            return
        time.sleep(0.005)
    raise AssertionError("the callers do not wait")


def test_a_late_read_gives_the_last_answer():
    """A caller waits for another's read no longer than it says, and then gets the last known answer."""
    clock, reads = Clock(), Reads()
    reads.go.set()
    shared = SharedRead(reads, clock)
    shared.get(1.0, 5.0)
    reads.go.clear()
    reads.begun.clear()
    clock.now_s += 10
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shared.get, 1.0, 5.0)
        assert reads.begun.wait(10)

        assert shared.get(1.0, 0.02) == 1

        reads.go.set()
        assert first.result(10) == 2


def test_a_late_read_without_an_answer_is_an_error_that_says_so():
    """Nothing known and no time left: a SourceError, and the read goes on for its own caller."""
    reads = Reads()
    shared = SharedRead(reads)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shared.get, 1.0, 5.0)
        assert reads.begun.wait(10)

        with pytest.raises(SourceError, match=r"no answer within 0\.02 s"):
            shared.get(1.0, 0.02)

        reads.go.set()
        assert first.result(10) == 1


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt("broken")])
def test_an_exception_wakes_everybody_and_the_next_call_reads_again(error):
    """The reader gets its exception, who waited a SourceError, and nobody waits for ever."""
    reads = Reads()
    reads.error = error
    shared = SharedRead(reads)
    caught: list[BaseException] = []

    def first() -> None:
        try:
            shared.get(1.0, 5.0)
        except BaseException as raised:
            caught.append(raised)

    reader = threading.Thread(target=first)
    reader.start()
    assert reads.begun.wait(10)
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(shared.get, 1.0, 20) for _ in range(3)]
        until_waiting(shared, 3)
        reads.go.set()
        for other in others:
            with pytest.raises(SourceError, match="the read that was shared failed: broken"):
                other.result(20)
    reader.join(10)
    reads.error = None

    assert caught == [error]
    assert shared.get(1.0, 5.0) == 2


def test_the_last_answer_survives_an_exception():
    """A read that raised does not take the known answer away."""
    clock, reads = Clock(), Reads()
    reads.go.set()
    shared = SharedRead(reads, clock)
    shared.get(1.0, 5.0)
    reads.error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        shared.get(0, 5.0)

    assert shared.get(1.0, 5.0) == 1


def test_one_request_reaches_the_engine_for_many_readers():
    """Counted by a server: twenty readers of one engine at once are one request."""

    def answer(call: Call) -> None:
        call.hang(0.3)
        call.page(b"a 1\n")

    with raw_server(answer) as server, ThreadPoolExecutor(20) as pool:
        target = Target(server.url(), timeout_s=20)
        shared = SharedRead(lambda: fetch(target))

        answers = list(pool.map(lambda _: shared.get(30.0, 20), range(20)))

    assert {answer.body for answer in answers if isinstance(answer, Page)} == {b"a 1\n"}
    assert len(answers) == 20
    assert len(server.calls) == 1
