"""The collector of a workload: the half of the contract about its decisions, from a view and its counters.

The recommender gives one to `render.Renderer`; a sidecar with a fleet source gives it beside its `ReplicaCollector`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Metric as Family

from infscale.metrics.catalogue import in_group
from infscale.metrics.catalogue_workload import COUNT_MEANINGS, REASON_MEANINGS
from infscale.metrics.contract import WORKLOAD
from infscale.metrics.families import Families
from infscale.metrics.workload import WorkloadView
from infscale.metrics.workload_counters import Totals, WorkloadCounters


@dataclass(frozen=True)
class WorkloadSnapshot:
    """What one page is made of."""

    view: WorkloadView
    totals: Totals

    def same_as(self, other: WorkloadSnapshot | None) -> bool:
        """Whether both make the same page."""
        return self == other


class WorkloadCollector:
    """The families of one workload, built anew at each collect.

    Args:
        view: the workload as last evaluated. It only hands out a value: no read, no evaluation.
        counters: what adds up over the evaluations.
    """

    def __init__(self, view: Callable[[], WorkloadView], counters: WorkloadCounters) -> None:
        self._view, self._counters = view, counters

    def snapshot(self) -> WorkloadSnapshot:
        """The view and the totals of this instant."""
        return WorkloadSnapshot(self._view(), self._counters.totals())

    def families(self, snapshot: WorkloadSnapshot) -> list[Family]:
        """The families of a snapshot, in the catalogue's order, without those that have no sample."""
        families = Families(in_group(WORKLOAD))
        _add_view(families, snapshot.view)
        _add_totals(families, snapshot.totals, (snapshot.view.namespace, snapshot.view.name))
        return families.built()

    def collect(self) -> list[Family]:
        """The families of this instant."""
        return self.families(self.snapshot())

    def describe(self) -> list[Family]:
        """Every family without samples."""
        return Families(in_group(WORKLOAD)).empty()


def _add_view(families: Families, view: WorkloadView) -> None:
    """The last evaluation; nothing of it before the first."""
    names = view.namespace, view.name
    families.add("infscale_recommended_replicas", view.recommended, *names)
    families.add("infscale_hpa_recommended_replicas", view.hpa_recommended, *names)
    families.add("infscale_workload_inflight_requests", view.inflight, *names)
    families.add("infscale_workload_demand_requests", view.demand, *names)
    families.add("infscale_target_inflight_requests", view.target, *names)
    for state in COUNT_MEANINGS:
        families.add("infscale_replicas", getattr(view.replicas, state), *names, state)
    if view.reason:
        for reason in REASON_MEANINGS:
            families.add("infscale_decision_reason", float(reason == view.reason), *names, reason)
    families.add("infscale_lookahead_demand_requests", view.lookahead_demand, *names)
    families.add("infscale_coverage_ratio", view.coverage, *names)
    families.add("infscale_evaluation_timestamp_seconds", view.evaluated_at_s, *names)


def _add_totals(families: Families, totals: Totals, names: tuple[str, str]) -> None:
    """What added up since the start; there from the start, at 0."""
    for (direction, reason), count in totals.decisions:
        families.add("infscale_decisions_total", count, *names, direction, reason)
    families.add_histogram("infscale_cold_start_seconds", totals.cold_start_buckets, totals.cold_start_sum_s, *names)
    for state, seconds in totals.replica_seconds:
        families.add("infscale_replica_seconds_total", seconds, *names, state)
    families.add("infscale_state_resets_total", totals.state_resets, *names)
