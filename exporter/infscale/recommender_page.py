"""The recommender's landing page: how many replicas, why, and what happened before, for the person on call.

The sidecar with a fleet source shows the same sections on its own page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from infscale import __version__
from infscale.metrics.catalogue_workload import REASON_MEANINGS
from infscale.metrics.workload import WorkloadView
from infscale.recommender_answers import MAX_AGE_S, Entry, History, not_current
from infscale.web.landing import Link, Section, State, landing_page

REFRESH_S = 5
NAMES_SHOWN = 20
"""Of silent replicas; `/api/v1/recommendation` has all of them."""

_UNEASY = ("no_samples", "partial_samples", "disabled")
_NOT_KNOWN = "not known"


def recommender_page(view: WorkloadView, history: History, now_s: float, *, max_age_s: float = MAX_AGE_S) -> bytes:
    """The page as UTF-8 HTML.

    Args:
        view: the workload as last evaluated.
        history: its last decisions.
        now_s: Unix seconds.
        max_age_s: see MAX_AGE_S.
    """
    workload = "/".join(part for part in (view.namespace, view.name) if part)
    return landing_page(
        f"infscale recommender {workload}".rstrip(),
        __version__,
        state=decision_state(view, now_s, max_age_s),
        facts=_facts(view),
        sections=decision_sections(view, history.entries()),
        links=(
            Link("/metrics", "/metrics", "what Prometheus scrapes"),
            Link("/api/v1/recommendation", "/api/v1/recommendation", "this page as JSON"),
            Link("/api/v1/load", "/api/v1/load", "the load alone, for KEDA's metrics-api trigger"),
        ),
        refresh_s=REFRESH_S,
    )


def decision_state(view: WorkloadView, now_s: float, max_age_s: float = MAX_AGE_S) -> State:
    """The decision, and why in words: bad where nothing may act on it, a warning where it stands on holes."""
    error = not_current(view, now_s, max_age_s)
    if error:
        return State("no recommendation", error, "bad")
    why = f"{view.reason}: {REASON_MEANINGS[view.reason]}" if view.reason else ""
    reason = "; ".join(text for text in (why, view.message) if text)
    if view.recommended is None:
        return State("no recommendation", reason, "bad")
    if view.reason == "error":
        tone = "bad"
    else:
        tone = "warn" if view.reason in _UNEASY or view.replicas.silent or view.message else "good"
    return State(_change(view.current, view.recommended), reason, tone)


def decision_sections(view: WorkloadView, entries: Sequence[Entry]) -> list[Section]:
    """What explains the decision: its steps, the replicas, the decisions before; a section without rows is left out."""
    decision = [] if view.evaluated_at_s is None else [("evaluated at", f"{_date(view.evaluated_at_s)} UTC")]
    decision += [(f"step {number}", words) for number, words in enumerate(view.steps, start=1)]
    replicas = [
        (state, f"{count}{_silent(view) if state == 'silent' else ''}")
        for state, count in asdict(view.replicas).items()
        if count is not None
    ]
    sections = (
        Section("Decision", decision),
        Section("Replicas", replicas),
        Section("Last decisions", [(_when(entry), _what(entry)) for entry in entries]),
    )
    return [section for section in sections if section.rows]


def _facts(view: WorkloadView) -> list[tuple[str, str]]:
    facts = [
        ("desired", _number(view.recommended)),
        ("current", _number(view.current)),
        ("in flight", _number(view.inflight)),
        ("demand", _number(view.demand)),
    ]
    further = {"target": view.target, "projected": view.lookahead_demand, "plain HPA": view.hpa_recommended}
    facts += [(name, _number(value)) for name, value in further.items() if value is not None]
    if view.held is None or view.held > 0:
        facts.append(("held", _number(view.held)))
    if view.coverage is not None:
        facts.append(("coverage", f"{view.coverage:.0%}"))
    return facts


def _silent(view: WorkloadView) -> str:
    """The names of the silent replicas, after their count."""
    names = view.silent_names[:NAMES_SHOWN]
    more = len(view.silent_names) - len(names)
    return (": " if names else "") + ", ".join(names) + (f" and {more} more" if more else "")


def _when(entry: Entry) -> str:
    since = f"{_date(entry.since_s)} UTC"
    return since if entry.times == 1 else f"{since} to {_date(entry.until_s)} UTC, {entry.times} times"


def _what(entry: Entry) -> str:
    """`3 -> 5 (up; metric): ` and the steps."""
    why = "; ".join(text for text in (entry.direction, entry.reason) if text)
    return f"{_change(entry.current, entry.desired)} ({why})" + (f": {'; '.join(entry.steps)}" if entry.steps else "")


def _change(current: int | None, desired: int | None) -> str:
    """`3 -> 5`."""
    return f"{_number(current)} -> {_number(desired)}"


def _number(value: float | None) -> str:
    return _NOT_KNOWN if value is None else f"{round(value, 2):.12g}"


def _date(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S}"
