"""The words of the metric contract: what a metric and a label of ours are.

The rows stand in `catalogue_replica`, `catalogue_drain`, `catalogue_workload` and `catalogue_activator`; `catalogue`
puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

REPLICA = "replica"
DRAIN = "drain"
WORKLOAD = "workload"
ACTIVATOR = "activator"
RELOAD = "reload"
OWN = "own"
GROUPS = {
    REPLICA: "Per replica, from the sidecar beside its engine",
    DRAIN: "Per replica, about its drains",
    WORKLOAD: "Per workload, from the recommender or a sidecar with a fleet source",
    ACTIVATOR: "From the activator",
    RELOAD: "About the configuration, from the sidecar and the recommender",
    OWN: "About the process itself",
}
"""Each group of metrics and its heading; the order is that of the page."""

STABLE, EXPERIMENTAL, DEPRECATED = "stable", "experimental", "deprecated"


@dataclass(frozen=True)
class Label:
    """A label of our metrics: its name, what its values are, and those values where they are a closed list."""

    name: str
    meaning: str
    values: tuple[str, ...] = ()


VERSION = Label("version", "a version; empty where it is not known")


@dataclass(frozen=True)
class Metric:
    """One metric of the contract.

    Attributes:
        name: as it stands in the text format: counters with `_total`, histograms without `_bucket`.
        type: `gauge`, `counter` or `histogram`.
        help: unit and meaning; for a translated engine metric also what it is made from.
        labels: in the order in which code gives their values.
        group: one of GROUPS.
        stability: `stable` (a change is announced a minor version ahead), `experimental` or `deprecated`.
        since: the version of infscale that has it first.
    """

    name: str
    type: str
    help: str
    labels: tuple[Label, ...] = ()
    group: str = REPLICA
    stability: str = STABLE
    since: str = "0.1.0"

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels, in order."""
        return tuple(label.name for label in self.labels)
