"""Demand: what the replicas that should answer have said, and what is assumed of those that did not.

`look` sorts a fleet once, `demand_of` sums one metric over it. A hole never lowers the count and alone never raises it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeGuard

from infscale.core.replicas import Fleet, Phase, Replica
from infscale.core.scale_decision import Counts
from infscale.core.scaling import MetricName

STALE = "stale"
"""The engine's state in which its values no longer move: nothing scales down on it."""

COUNT_LIMIT = 2.0**53
"""From here on a value is no count, as in `infscale.reading`: a sum over any fleet stays finite."""

Read = Callable[[Replica], float | None]

REQUESTS: dict[MetricName, Read] = {
    MetricName.QUEUE: attrgetter("inflight"),
    MetricName.WAITING: attrgetter("waiting"),
    MetricName.RUNNING: attrgetter("running"),
}
"""The metrics that are sums of requests, with the value of a replica."""

_WITH_HELD = (MetricName.QUEUE, MetricName.WAITING)


@dataclass(frozen=True, slots=True)
class View:
    """A fleet as a decision sees it.

    Attributes:
        serving: the expected replicas that gave a value; none where the source could not be read.
        expected: how many should: serving and silent ones.
        counts: replicas by phase.
        starting, draining: the replicas in these phases.
        stale: the names of serving replicas whose values no longer move.
        held: requests held before the workload; 0 without an activator.
        held_unknown: whether an activator is there and did not answer.
        failure: why the source could not be read; else empty.
    """

    serving: tuple[Replica, ...]
    expected: int
    counts: Counts
    starting: tuple[Replica, ...]
    draining: tuple[Replica, ...]
    stale: tuple[str, ...]
    held: float
    held_unknown: bool
    failure: str

    @property
    def at_zero(self) -> bool:
        """Whether, at a count of 0, the requests are 0: nothing should answer, and who holds requests has said so."""
        return self.expected == 0 and not self.held_unknown and not self.failure


@dataclass(frozen=True, slots=True)
class Demand:
    """The requests of one metric.

    Attributes:
        metric: which of them.
        known: the sum over the expected replicas that gave a value.
        given: how many did.
        expected: how many should.
        target: requests per replica.
        held: requests held before the workload, where the metric counts them.
    """

    metric: MetricName
    known: float
    given: int
    expected: int
    target: float
    held: float

    @property
    def missing(self) -> int:
        """How many replicas gave no value."""
        return self.expected - self.given

    @property
    def measured(self) -> float:
        """What was measured: known and held requests."""
        return self.known + self.held

    @property
    def total(self) -> float:
        """With silent replicas filled in and held requests added."""
        return fill(self.known, self.missing, self.target, self.expected) + self.held


def look(fleet: Fleet) -> View:
    """Sort the replicas by phase. Values of a source that failed are those of before, and are not counted."""
    by_phase: dict[Phase, list[Replica]] = {phase: [] for phase in Phase}
    for replica in fleet.replicas:
        by_phase[replica.phase].append(replica)
    counts = Counts(**{phase.value: len(replicas) for phase, replicas in by_phase.items()})
    serving = tuple(by_phase[Phase.SERVING]) if not fleet.failure else ()
    held = fleet.held.requests if fleet.held is not None else 0.0
    if not usable(held):
        held = None
    return View(
        serving=serving,
        expected=counts.serving + counts.silent,
        counts=counts,
        starting=tuple(by_phase[Phase.STARTING]),
        draining=tuple(by_phase[Phase.DRAINING]),
        stale=tuple([replica.name for replica in serving if replica.state == STALE]),
        held=held or 0.0,
        held_unknown=held is None,
        failure=fleet.failure,
    )


def demand_of(metric: MetricName, target: float, view: View) -> Demand:
    """The demand in one of the request metrics; a serving replica that does not tell it is a hole like a silent one.

    A target beyond every count is one of COUNT_LIMIT.
    """
    values = values_of(view.serving, REQUESTS[metric])
    held = view.held if metric in _WITH_HELD else 0.0
    return Demand(metric, math.fsum(values), len(values), view.expected, min(target, COUNT_LIMIT), held)


def fill(known: float, missing: int, target: float, expected: int) -> float:
    """`known`, with each missing replica counted as just at its target, up to all expected ones at theirs.

    Where the others alone ask for more than that, they alone count: a hole is never a reason to add a replica.
    """
    return max(known, min(known + target * missing, target * expected))


def values_of(replicas: Iterable[Replica], read: Read) -> list[float]:
    """The values that replicas gave, as far as they are `usable`."""
    # Written out: this runs for each of 1,000 replicas.
    return [value for value in map(read, replicas) if value is not None and 0.0 <= value < COUNT_LIMIT]


def usable(value: float | None) -> TypeGuard[float]:
    """Whether it is a value at all: not None, NaN, negative, infinite or as large."""
    return value is not None and 0.0 <= value < COUNT_LIMIT
