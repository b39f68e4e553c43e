"""What the layer remembers between two evaluations: the HPA's state, and what differences and averages need.

Every part is bounded whatever the fleet does: what is kept per replica goes with the replica, the rest has a fixed most
of entries. `core.memory_json` writes and reads it, `core.layer` makes the next one of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from infscale.core.quantiles import percentile
from infscale.core.replicas import Buckets
from infscale.core.state import Log, Recommendation, ScaleEvent, State

MOST_COLD_STARTS = 50
FEWEST_COLD_STARTS = 3
MOST_LOG_ENTRIES = 256
MOST_READS = 10_000
_AUTO_QUANTILE = 0.9

_Timed = TypeVar("_Timed", Recommendation, ScaleEvent, "Mark", "Sample")


@dataclass(frozen=True, slots=True)
class Mark:
    """A replica's token counters at one read.

    Attributes:
        time_s: when, Unix seconds.
        generation_tokens, prompt_tokens: the engine's counters.
        waiting: whether it had waiting requests at this read and at all reads since the mark before.
    """

    time_s: float
    generation_tokens: float
    prompt_tokens: float
    waiting: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """The counters of one replica: marks over the last minute, the latest read last, and its TTFT histograms."""

    marks: tuple[Mark, ...] = ()
    ttft: tuple[Buckets, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured demand (held requests included) at an instant, where no replica was silent."""

    time_s: float
    requests: float


@dataclass(frozen=True, slots=True)
class Read:
    """What one source's counters were when a command read them; None where the source has none.

    Attributes:
        time_s: when, Unix seconds.
        cpu_s: CPU seconds used by the engine's process.
        prompt_tokens, generation_tokens: the engine's counters.
    """

    time_s: float
    cpu_s: float | None
    prompt_tokens: float | None
    generation_tokens: float | None


@dataclass(frozen=True, slots=True)
class ScaleState:
    """The memory of the layer.

    Attributes:
        hpa: the memory of the HPA layer that decides.
        plain: the log of what a plain HPA would have proposed; None where it never was asked, or decides itself.
        evaluated_s: when the last evaluation was; None before the first.
        last_activity_s: when the workload last had a request or may have had one; None where that is unknown.
        samples: past demand by metric, for the lookahead.
        replicas: counters by replica name; only what the policy needs, only of replicas that are there.
        starting: the names of the replicas that were starting, for their cold start.
        cold_starts_s: the last measured cold starts.
        learned: tokens per second that replicas carried while they had waiting requests.
        reads: counters by source, at most MOST_READS; `infscale.reads` makes and uses them, the core hands them on.
    """

    hpa: State = field(default_factory=State)
    plain: Log | None = None
    evaluated_s: float | None = None
    last_activity_s: float | None = None
    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    replicas: Mapping[str, Memory] = field(default_factory=dict)
    starting: tuple[str, ...] = ()
    cold_starts_s: tuple[float, ...] = ()
    learned: tuple[float, ...] = ()
    reads: Mapping[str, Read] = field(default_factory=dict)

    @property
    def cold_start_s(self) -> float:
        """The 90th percentile of the measured cold starts; 0 until three were seen."""
        if len(self.cold_starts_s) < FEWEST_COLD_STARTS:
            return 0.0
        return percentile(self.cold_starts_s, _AUTO_QUANTILE)

    @property
    def shadow(self) -> State:
        """What a plain HPA would remember: a log of its own, and the changes that were really made."""
        return replace(self.hpa, recommendations=self.plain)


AT_ONCE = ScaleState(hpa=State(recommendations=()), plain=())
"""The memory of a single decision without a history (`infscale decide` without `--state`): no window holds the count.

`ScaleState()` is the beginning of a history: the first decision logs the present count, which holds scale-down for one
window, as the controller does when it starts.
"""


def without_future(state: ScaleState, now_s: float) -> tuple[ScaleState, int]:
    """The state without times after `now_s`, and how many entries that dropped: for a state read from a file.

    A state whose whole log is dropped begins anew with the present count, which holds scale-down for one window.
    """
    before = _times(state)
    kept = _with_times(state, now_s, drop=True)
    if kept.hpa.recommendations == () and state.hpa.recommendations:
        kept = replace(kept, hpa=replace(kept.hpa, recommendations=None))
    if kept.plain == () and state.plain:
        kept = replace(kept, plain=None)
    return kept, before - _times(kept)


def not_after(state: ScaleState, now_s: float) -> ScaleState:
    """The state with times after `now_s` set to it: for a clock that went backwards in a running process.

    Nothing is forgotten: a proposal holds the count for one window from now, a change counts for one period from now.
    """
    if state.evaluated_s is not None and state.evaluated_s <= now_s:
        return state  # all that is remembered is from that evaluation or before
    return _with_times(state, now_s, drop=False)


def compact(log: Log | None) -> Log | None:
    """A log that grew long without what can no longer count: an entry between a later one as large and one as small.

    The later ones leave every window after it, so neither the largest nor the smallest of any window changes. A log of
    an evaluation each second over the longest window (an hour) stays as short as there are different counts.
    """
    if log is None or len(log) <= MOST_LOG_ENTRIES:
        return log
    kept: list[Recommendation] = []
    largest, smallest = -math.inf, math.inf
    for entry in sorted(log, key=lambda entry: entry.time_s, reverse=True):
        if entry.replicas > largest or entry.replicas < smallest:
            kept.append(entry)
        largest, smallest = max(largest, entry.replicas), min(smallest, entry.replicas)
    return tuple(reversed(kept))


def _with_times(state: ScaleState, now_s: float, *, drop: bool) -> ScaleState:
    def entries(timed: tuple[_Timed, ...]) -> tuple[_Timed, ...]:
        """A log without what lies after `now_s`, or with it set to `now_s`."""
        if drop:
            return tuple(entry for entry in timed if entry.time_s <= now_s)
        return tuple(entry if entry.time_s <= now_s else replace(entry, time_s=now_s) for entry in timed)

    def instant(time_s: float | None) -> float | None:
        """The same for one time."""
        return time_s if time_s is None or time_s <= now_s else (None if drop else now_s)

    hpa, log = state.hpa, state.hpa.recommendations
    return replace(
        state,
        hpa=replace(
            hpa,
            recommendations=None if log is None else entries(log),
            scale_up_events=entries(hpa.scale_up_events),
            scale_down_events=entries(hpa.scale_down_events),
        ),
        plain=None if state.plain is None else entries(state.plain),
        evaluated_s=instant(state.evaluated_s),
        last_activity_s=instant(state.last_activity_s),
        samples={name: entries(samples) for name, samples in state.samples.items()},
        # A rate over a clock that jumped would be none: counters of another time begin anew.
        replicas={
            name: replace(memory, marks=tuple(mark for mark in memory.marks if mark.time_s <= now_s))
            for name, memory in state.replicas.items()
        },
        reads={name: read for name, read in state.reads.items() if read.time_s <= now_s},
    )


def _times(state: ScaleState) -> int:
    """How many entries with a time the state holds."""
    return (
        sum(len(timed) for timed in (state.hpa.recommendations or (), state.plain or ()))
        + sum(len(timed) for timed in (state.hpa.scale_up_events, state.hpa.scale_down_events))
        + sum(time_s is not None for time_s in (state.evaluated_s, state.last_activity_s))
        + sum(map(len, chain(state.samples.values(), (memory.marks for memory in state.replicas.values()))))
        + len(state.reads)
    )
