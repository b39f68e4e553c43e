"""The pool of workers: as many threads as are needed, up to the limit."""

from __future__ import annotations

import threading

from infscale.web.workers import Workers
from tests.web.rig import eventually


def test_two_items_for_one_idle_thread():
    """An item never waits behind a busy thread while the limit allows another."""
    meet = threading.Barrier(2)
    met: list[int] = []

    def work(item: int) -> None:
        if item:
            meet.wait(10)
            met.append(item)

    for _ in range(20):
        workers: Workers[int] = Workers(work, 2, "test-two")
        workers.submit(0)
        workers.submit(1)
        workers.submit(2)
        assert eventually(lambda: len(met) == 2)
        met.clear()
        workers.close()


def test_limit_and_end():
    """No more threads than the limit; what is queued is done before they end."""
    gate, done = threading.Event(), []

    def work(item: int) -> None:
        gate.wait(10)
        done.append(item)

    workers: Workers[int] = Workers(work, 3, "test-limit")
    for item in range(10):
        workers.submit(item)
    assert workers.backlog
    assert sum(thread.name.startswith("test-limit") for thread in threading.enumerate()) == 3
    workers.close()
    gate.set()
    assert eventually(lambda: len(done) == 10)
    assert eventually(lambda: not any(thread.name.startswith("test-limit") for thread in threading.enumerate()))
