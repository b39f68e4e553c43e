"""The demo's replicas as a workload: what the recommender's Evaluator looks at, and what it scales.

In a cluster the Kubernetes API is both, with its Pods and its scale subresource. Looked at are the sidecars, over HTTP,
by the code that every source with an address for each replica has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from infscale.core.replicas import Fleet
from infscale.core.scale_decision import ScaleDecision
from infscale.errors import SourceError
from infscale.fleet.members import Members
from infscale.fleet.source import FleetSettings, WorkloadName
from infscale.fleet.survey import Survey
from infscale_sim.demo.replicas import Replicas

_TIMEOUT_S = 2.0


class Workload:
    """An `infscale.fleet.source.Source` and an `infscale.evaluator.Applier`.

    Args:
        replicas: scaled and looked at.
        count: how many there are.
        loop: on which the replicas live; the evaluator has a thread of its own.
        tell: takes a line of news.

    Attributes:
        count: how many are asked for.
        seen: the last look; None before the first.
    """

    def __init__(
        self, replicas: Replicas, count: int, loop: asyncio.AbstractEventLoop, tell: Callable[[str], None]
    ) -> None:
        self.seen: Fleet | None = None
        self._replicas, self.count, self._loop, self._tell = replicas, count, loop, tell
        # The list is the truth, as the API's is: who is listed no more is gone, and not silent.
        self._survey = Survey(FleetSettings(timeout_s=_TIMEOUT_S), members=Members(lost_s=0.0))

    @property
    def workload(self) -> WorkloadName:
        """See `Source`."""
        return WorkloadName("demo", "stand-in")

    def observe(self, now_s: float) -> Fleet:
        """See `Source`."""
        places = self._replicas.places()
        try:
            replicas = self._survey.take(places, now_s, self._survey.deadline(), expected=self.count)
        except SourceError as error:
            return Fleet(now_s, self.count, replicas=self._survey.missed(), failure=str(error))
        ready = sum(bool(place.url) and not place.leaving for place in places)
        staying = sum(not place.leaving for place in places)
        self.seen = Fleet(now_s, self.count, status_replicas=staying, ready_replicas=ready, replicas=replicas)
        return self.seen

    def names(self) -> tuple[str, ...]:
        """See `Source`: one evaluator stands beside them."""
        return ()

    def close(self) -> None:
        """See `Source`."""
        self._survey.close()

    def apply(self, decision: ScaleDecision, now_s: float) -> str:
        """See `Applier`."""
        if decision.desired is None or decision.desired == self.count:
            return ""
        why = next((step.words for step in reversed(decision.steps) if step.after != step.before), decision.reason)
        self._loop.call_soon_threadsafe(self._scale, decision.desired, f"{self.count} -> {decision.desired}: {why}")
        self.count = decision.desired
        return ""

    def stop(self) -> None:
        """See `Applier`: there is no other writer."""

    def _scale(self, wanted: int, words: str) -> None:
        self._tell(words)
        self._replicas.scale(wanted)
