"""Several engines in one Pod, drained as one: all of them idle at the same time, and one report.

Called by the sidecar's `/drain` (`infscale.drain.endpoint`); with one engine it adds nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from infscale.drain.report import MAX_NOTE_CHARACTERS, DrainReport
from infscale.drain.timeline import DEADLINE, GONE, INTERVAL_S, READ_S, STALE
from infscale.drain.verdict import HTTP, IDLE, REFUSED, TLS
from infscale.reading import FRESH

log = logging.getLogger(__name__)

WORST_FIRST = (DEADLINE, STALE, HTTP, TLS, GONE, REFUSED, IDLE, FRESH)
"""Of several engines the first of these that one ended with is the Pod's outcome: first what may cut requests."""

SPREAD_S = INTERVAL_S + READ_S
"""Idle reads that lie no further apart are of the same time: a wait and the longest read."""


def drain_together(drains: Sequence[Callable[[], DrainReport]], clock: Callable[[], float]) -> tuple[DrainReport, ...]:
    """Drain every engine; one that was idle long before the last one is looked at again.

    A client that keeps its connection open may send one engine a new request while another is still working.

    Args:
        drains: one for each engine; called again it goes on with the same deadline.
        clock: monotonic seconds.

    Returns:
        The report of each engine, in their order.
    """
    reports: dict[int, DrainReport] = {}
    ended_s: dict[int, float] = {}

    def run(index: int) -> None:
        """Drain one engine; a second look at it adds to the first."""
        report = drains[index]()
        ended_s[index] = clock()
        before = reports.get(index)
        reports[index] = report if before is None else _later(before, report)

    waiting = list(range(len(drains)))
    while waiting:
        _at_once(run, waiting)
        if any(report.outcome == DEADLINE for report in reports.values()):
            break
        latest_s = max(ended_s.values())
        idle = [index for index, report in reports.items() if report.outcome in (IDLE, FRESH)]
        waiting = [index for index in idle if latest_s - ended_s[index] > SPREAD_S]
    return tuple(reports[index] for index in sorted(reports))


def combined(reports: Sequence[DrainReport]) -> DrainReport:
    """One report of several engines: the worst outcome, the longest time, and the sums of what was counted."""
    if len(reports) == 1:
        return reports[0]
    inflight = [report.inflight for report in reports if report.inflight is not None]
    connections = [report.connections for report in reports if report.connections is not None]
    notes = [f"engine {number}: {report.note}" for number, report in enumerate(reports, 1) if report.note]
    return DrainReport(
        outcome=min((report.outcome for report in reports), key=WORST_FIRST.index),
        seconds=max(report.seconds for report in reports),
        reads=sum(report.reads for report in reports),
        busy_reads=sum(report.busy_reads for report in reports),
        timeouts=sum(report.timeouts for report in reports),
        missing=sum(report.missing for report in reports),
        unusable=sum(report.unusable for report in reports),
        inflight=sum(inflight) if inflight else None,
        connections=sum(connections) if connections else None,
        grace_s=reports[0].grace_s,
        deadline_s=reports[0].deadline_s,
        engine=",".join(dict.fromkeys(report.engine for report in reports if report.engine)),
        restarted=any(report.restarted for report in reports),
        note="; ".join(notes)[:MAX_NOTE_CHARACTERS],
    )


def _later(before: DrainReport, report: DrainReport) -> DrainReport:
    """The second look at one engine: its end, and the counts of both."""
    both = combined([before, report])
    return DrainReport(
        **{
            **vars(both),
            "outcome": report.outcome,
            "inflight": report.inflight,
            "connections": report.connections,
            "note": report.note or before.note,
        }
    )


def _at_once(run: Callable[[int], None], indices: Sequence[int]) -> None:
    """Run on a daemon thread each, so that a process that was told to stop need not wait for an engine.

    Raises:
        RuntimeError: one of them raised; the log has it.
    """
    failed: list[int] = []

    def guarded(index: int) -> None:
        """A drain that fails is logged, and the others go on."""
        try:
            run(index)
        except Exception:
            log.exception("drain failed", extra={"engine": index + 1})
            failed.append(index)

    threads = [threading.Thread(target=guarded, args=(i,), name=f"drain-{i + 1}", daemon=True) for i in indices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(f"the drain of {len(failed)} engine(s) failed")
