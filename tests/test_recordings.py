"""Whole runs of real engines, read one by one over HTTP: the sidecar's in flight is the page's, and the clients' count.

Two runs are shipped; `--recordings DIR` adds further ones.
"""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from infscale.recording import Line, Recording
from infscale.replay import Replay
from infscale.scrape import Target
from infscale.sidecar import Engine, EngineSettings
from infscale.watch import View

from .recorded import RUNS

# run: (scrapes on which in flight was the clients' count when this was written, scrapes with a page)
AGREED = {
    "llamacpp-b11434-parallel4": (193, 205),
    "llamacpp-b11434-term-long": (77, 83),
    "vllm-0.32.0-single": (190, 197),
    "vllm-0.32.0-single-shutdown-timeout30": (182, 189),
    "vllm-0.32.0-dp2": (144, 161),
}
GAUGES = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "llamacpp": ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}


def read_one_by_one(recording: Recording) -> Iterator[tuple[Line, View]]:
    """Every answered line of a run with what the sidecar's engine shows for it; refused reads between are not given."""
    ticks = count(1_800_000_000)
    with Replay(recording, step=True, speed=1000) as replay:
        settings = EngineSettings(min_interval_s=0)
        engine = Engine(Target(replay.url, timeout_s=10), settings, wall_clock=lambda: float(next(ticks)))
        answered = 0
        while not replay.wait(0):
            view = engine.view()
            if replay.gets > answered and replay.line is not None:
                answered = replay.gets
                yield replay.line, view


def page_inflight(text: str, kind: str) -> float:
    """What the page itself says, added up by hand: ranks and engines summed, priorities' parts left out."""
    total = 0.0
    for name in GAUGES[kind]:
        for labels, value in re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE):
            if 'priority="' not in labels or 'priority=""' in labels:
                total += float(value)
    return total


def check_run(folder: Path) -> None:
    """Hold every scrape of a run against its page, and the run against its clients' count."""
    recording = Recording.load(folder)
    kind = folder.name.partition("-")[0]
    read = agreed = 0
    for line, view in read_one_by_one(recording):
        if line.status != 200:
            continue
        if "disable-log-stats" in folder.name:
            assert view.state == "stats_disabled"
            assert view.reading is None
            continue
        read += 1
        assert view.reading is not None, (line.number, view)
        assert view.reading.inflight == page_inflight(recording.page(line).decode(), kind), line.number
        agreed += view.reading.inflight in (line.inflight, line.inflight_after)
    if folder.name in AGREED:
        least, scrapes = AGREED[folder.name]
        assert read == scrapes
        assert agreed >= least


@pytest.mark.parametrize("folder", RUNS, ids=[run.name for run in RUNS])
def test_shipped_run_reads_as_it_was(folder: Path) -> None:
    """The shipped runs, from their first scrape to their last."""
    check_run(folder)


def test_further_run_reads_as_it_was(recording: Path) -> None:
    """The runs of --recordings DIR."""
    check_run(recording)


def test_failures_of_a_run_are_states_and_never_0() -> None:
    """While the engine loads and after it is gone, no value is shown: not one 0."""
    folder = next(run for run in RUNS if run.name.startswith("vllm"))
    recording = Recording.load(folder)
    seen = set()
    with Replay(recording, speed=200) as replay:
        engine = Engine(Target(replay.url), EngineSettings(min_interval_s=0))
        while not replay.wait(0.01):
            view = engine.view()
            seen.add((view.state, view.reading is None))
        last = engine.view()
    assert ("loading", True) in seen
    assert ("ok", False) in seen
    assert (last.state, last.reading) == ("unreachable", None)
    assert not {state for state, silent in seen if not silent} & {"loading", "unreachable"}
