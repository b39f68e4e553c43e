"""What the recommender answers as JSON, and the last decisions that it remembers for it.

The routes `/api/v1/recommendation` and `/api/v1/load` give the answers out, with `status_of` as their status. KEDA's
metrics-api trigger reads plain numbers of them (`valueLocation: 'desired'`, `'demand'`, `'inflight'`). What is not
known is null there, which KEDA takes for an error in every version (pkg/scalers/metrics_api_scaler.go: "valueLocation
must point to value of type number"); on a 0 it would act.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any

from infscale.metrics.workload import WorkloadView, direction

MAX_AGE_S = 60.0
"""An older evaluation is not answered: the loop behind it hangs. Four evaluations of 15 s, as in KEDA's queries."""

HISTORY_LENGTH = 50


@dataclass(frozen=True)
class Entry:
    """A decision that was made once, or several times in a row.

    Attributes:
        since_s, until_s: when it was first and last made, Unix seconds.
        times: how often.
        current: replicas that the workload asked for; None: not read.
        desired: replicas recommended; None: no recommendation.
        reason: see WorkloadView.
        steps: those of the last time.
    """

    since_s: float
    until_s: float
    times: int
    current: int | None
    desired: int | None
    reason: str
    steps: tuple[str, ...]

    @property
    def direction(self) -> str:
        """`up`, `down` or `none`."""
        return direction(self.current, self.desired)

    def same_decision(self, other: Entry) -> bool:
        """Whether both say the same; their steps may have other numbers."""
        return (self.current, self.desired, self.reason) == (other.current, other.desired, other.reason)


class History:
    """The last decisions. Safe to use from many threads.

    An evaluation that decides the same as the one before adds to its entry: a quiet night is one line, and what
    happened before it is still there.
    """

    def __init__(self, maxlen: int = HISTORY_LENGTH) -> None:
        self._lock = threading.Lock()
        self._entries: deque[Entry] = deque(maxlen=maxlen)

    def add(self, view: WorkloadView) -> None:
        """Remember an evaluation; one without a time is none."""
        if view.evaluated_at_s is None:
            return
        now_s = view.evaluated_at_s
        entry = Entry(now_s, now_s, 1, view.current, view.recommended, view.reason, view.steps)
        with self._lock:
            if self._entries and entry.same_decision(self._entries[-1]):
                last = self._entries.pop()
                entry = replace(entry, since_s=last.since_s, times=last.times + 1)
            self._entries.append(entry)

    def entries(self) -> tuple[Entry, ...]:
        """The decisions, the last one first."""
        with self._lock:
            return tuple(reversed(self._entries))


def recommendation(
    view: WorkloadView, history: History, now_s: float, *, max_age_s: float = MAX_AGE_S
) -> dict[str, Any]:
    """What `/api/v1/recommendation` answers: `desired` is a whole number, or null with an `error` beside it.

    Args:
        view: the workload as last evaluated.
        history: its last decisions.
        now_s: Unix seconds.
        max_age_s: see MAX_AGE_S.
    """
    error = not_current(view, now_s, max_age_s)
    if not error and view.recommended is None:
        error = view.message or "no replicas are recommended: the workload's own replica count was not read"
    answer = {
        "workload_namespace": view.namespace,
        "workload": view.name,
        "desired": None if error else view.recommended,
        "current": view.current,
        "direction": "none" if error else view.direction,
        "reason": view.reason or None,
        "message": view.message,
        "steps": list(view.steps),
        "hpa": None if error else view.hpa_recommended,
        "inflight": _number(view.inflight),
        "demand": _number(view.demand),
        "lookahead_demand": _number(view.lookahead_demand),
        "target": _number(view.target),
        "coverage": _number(view.coverage),
        "replicas": asdict(view.replicas),
        "silent": list(view.silent_names),
        "evaluated_at": view.evaluated_at_s,
        "history": [_entry(entry) for entry in history.entries()],
    }
    return {"error": error, **answer} if error else answer


def load(view: WorkloadView, now_s: float, *, max_age_s: float = MAX_AGE_S) -> dict[str, Any]:
    """What `/api/v1/load` answers: `inflight` and `demand`, each null where it alone is not known; an `error` if both.

    Args:
        view: the workload as last evaluated.
        now_s: Unix seconds.
        max_age_s: see MAX_AGE_S.
    """
    error = not_current(view, now_s, max_age_s)
    inflight, demand = _number(view.inflight), _number(view.demand)
    if not error and inflight is None and demand is None:
        error = view.message or "no load is known: no replica gave a value"
    if error:
        return {"error": error, "inflight": None, "demand": None}
    return {"inflight": inflight, "demand": demand}


def status_of(answer: dict[str, Any]) -> int:
    """The HTTP status of an answer: 503 with an error, so that nothing acts on it; else 200."""
    return 503 if "error" in answer else 200


def not_current(view: WorkloadView, now_s: float, max_age_s: float = MAX_AGE_S) -> str:
    """Why a view is not to be acted upon, in one line; empty if it is."""
    if view.evaluated_at_s is None:
        return view.message or "the policy was not evaluated yet: ask again in a moment"
    age_s = now_s - view.evaluated_at_s
    if age_s > max_age_s:
        return (
            f"the last evaluation was {age_s:.0f} s ago, expected at most {max_age_s:g} s: the evaluation hangs;"
            " see the log, and restart this process"
        )
    return ""


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "time": entry.since_s,
        "until": entry.until_s,
        "times": entry.times,
        "current": entry.current,
        "desired": entry.desired,
        "direction": entry.direction,
        "reason": entry.reason or None,
        "steps": list(entry.steps),
    }


def _number(value: float | None) -> float | None:
    """The number, or None where JSON has none for it."""
    return value if value is not None and math.isfinite(value) else None
