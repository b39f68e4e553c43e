"""Every saved input of every target: only the documented faults, within the bounds of CPU time and memory."""

from __future__ import annotations

import logging
import time

import pytest

from tests.fuzz import bounds, corpus
from tests.fuzz.targets import TARGETS

MOST_CORPUS_BYTES = 1 << 20
"""Of all saved inputs together, as files."""


@pytest.fixture(autouse=True)
def _quiet():
    """Nothing is logged about inputs that are meant to be wrong."""
    logging.getLogger("infscale").setLevel(logging.CRITICAL + 1)


@pytest.mark.parametrize("name", TARGETS)
def test_saved_inputs(name):
    """Each input is read or refused as documented, within 100 ms and a bounded memory."""
    target = TARGETS[name]
    inputs = corpus.saved(name)
    assert inputs
    for data in inputs:
        cost = bounds.cost_of(target.run, data)
        assert cost.cpu_s < bounds.MOST_S, data
        assert target.waits or cost.clock_s < bounds.MOST_S, data
    for data in largest(inputs):
        assert bounds.peak_of(target.run, data) < bounds.MEMORY_BYTES, data


def largest(inputs: list[bytes]) -> list[bytes]:
    """The ten longest inputs, and ten spread over the others: tracing memory takes ten times as long."""
    return [*inputs[-10:], *inputs[: -10 : max(1, len(inputs) // 10)]]


def test_the_bounds_are_kept():
    """What takes CPU time, waits, or takes memory, is noticed."""

    def busy(_: bytes) -> None:
        end_s = time.process_time() + 1.2 * bounds.MOST_S
        while time.process_time() < end_s:
            pass

    assert bounds.cost_of(busy, b"").cpu_s >= bounds.MOST_S
    assert bounds.cost_of(lambda _: time.sleep(1.2 * bounds.MOST_S), b"").clock_s >= bounds.MOST_S
    assert bounds.peak_of(lambda _: bytearray(bounds.MEMORY_BYTES), b"") >= bounds.MEMORY_BYTES


def test_the_corpus_is_small():
    """It is a part of the repository; and every file of it has its target."""
    files = list(corpus.FOLDER.glob("*.json"))
    assert sum(path.stat().st_size for path in files) < MOST_CORPUS_BYTES
    assert {path.stem for path in files} == set(TARGETS)
