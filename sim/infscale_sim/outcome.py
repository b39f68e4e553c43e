"""What came of a run: each request's times and fate, each replica's span, and what the scaler did when.

`infscale_sim.cluster` fills a `Run`; `infscale_sim.metrics` counts it, reports draw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from infscale_sim.book import NEVER


class Fate(IntEnum):
    """What became of a request that a replica was not left to finish."""

    SERVED = 0  # or still on its way at the horizon: its times tell
    REJECTED = 1  # no room at the activator, or in any replica
    TIMED_OUT = 2  # at the activator
    CUT = 3  # on a replica whose grace period ended


class Moment(NamedTuple):
    """One look of the scaler.

    Attributes:
        time_s: when.
        replicas, desired: replicas that are not leaving, and how many the scaler wants.
        ready, starting, draining: replicas before the change.
        inflight: requests on ready replicas.
        held: requests at the activator.
        reason, words: why the count is what it is; words only where it changed.
    """

    time_s: float
    replicas: int
    desired: int
    ready: int
    starting: int
    draining: int
    inflight: int
    held: int
    reason: str
    words: str


@dataclass(slots=True)
class Span:
    """A replica's life: when it was asked for, ready, told to leave, and gone; NEVER where it was not."""

    created_s: float
    ready_s: float
    left_s: float = NEVER
    ended_s: float = NEVER


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        horizon_s: its end.
        first_s, done_s: by request, when its first and its last token came; later than the horizon: not in this run.
        fate: by request, a `Fate`.
        moments: the scaler's looks, at least every sync period, and every change.
        spans: every replica that ever was, by age; those that were there at the end, end at the horizon.
        peak_replicas, scale_events: the largest count, and how often it changed.
    """

    horizon_s: float
    first_s: Sequence[float]
    done_s: Sequence[float]
    fate: bytearray
    moments: list[Moment]
    spans: list[Span]
    peak_replicas: int
    scale_events: int

    @property
    def replica_minutes(self) -> float:
        """From the decision to the end of the drain, over all replicas."""
        return sum(span.ended_s - span.created_s for span in self.spans) / 60
