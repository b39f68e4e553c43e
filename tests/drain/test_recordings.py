"""Recorded runs of real engines, fed to the drain as reads: it never takes an engine that works for idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from infscale.drain.verdict import IDLE, Verdict, confirms, judge
from infscale.reading import Reading
from infscale.recording import Line, Recording
from infscale.scrape import Page, ScrapeFailure

from ..recorded import RUNS

# run: pairs of idle reads that end a drain, from line to next line; engines without load for a while have many
ENDING = {"llamacpp-b11434-parallel4": 50, "vllm-0.32.0-single": 50}


def reads(recording: Recording) -> list[tuple[Line, Verdict]]:
    """The verdict on each line of a run."""
    found: list[tuple[Line, Verdict]] = []
    before: Reading | None = None
    for line in recording.lines:
        answer: Page | ScrapeFailure = ScrapeFailure(line.failure, line.failure, line.failure != "refused", 0.1)
        if line.status:
            answer = Page(line.status, "text/plain", recording.page(line), 0.01)
        verdict = judge(answer, source=recording.name, before=before)
        before = verdict.reading or before
        found.append((line, verdict))
    return found


def check_run(folder: Path) -> None:
    """Hold every pair of reads up to about a second apart against the clients' count."""
    recording = Recording.load(folder)
    lines = reads(recording)
    ending = 0
    for apart in range(1, max(1, round(1 / recording.gap_s)) + 1):
        for (first, one), (second, other) in zip(lines, lines[apart:], strict=False):
            if one.kind == other.kind == IDLE and confirms(one, other):
                assert not first.inflight, (first.number, second.number)
                assert not second.inflight, (first.number, second.number)
                ending += 1
    assert ending >= ENDING.get(folder.name, 0)


@pytest.mark.parametrize("folder", RUNS, ids=[run.name for run in RUNS])
def test_two_idle_reads_never_while_clients_wait(folder: Path) -> None:
    """Two consecutive idle reads with equal counters never happen while the recorded client count is above 0."""
    check_run(folder)


def test_two_idle_reads_never_while_clients_wait_in_further_runs(recording: Path) -> None:
    """The runs of --recordings DIR."""
    check_run(recording)
