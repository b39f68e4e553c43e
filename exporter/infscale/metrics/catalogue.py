"""The metric contract as data: every name, type, help text and label that Prometheus, rules and dashboards may rely on.

`families` builds what is exposed from it, `tools/metrics_table.py` writes docs/metrics.md from it, and tests hold both
against it. A metric is added as a row, beside those of its group; a name changes only with a deprecation: for one minor
version both are there.

Naming follows Prometheus' own guides (practices/naming, instrumenting/writing_exporters): base units, plural counts,
`_total` for counters alone, and no label for what the scrape knows (namespace, pod; `workload` only where the metric is
about a workload and not about the target).
"""

from __future__ import annotations

from infscale.metrics.catalogue_activator import ACTIVATOR_METRICS
from infscale.metrics.catalogue_drain import DRAIN_METRICS
from infscale.metrics.catalogue_replica import REPLICA_METRICS
from infscale.metrics.catalogue_workload import WORKLOAD_METRICS
from infscale.metrics.contract import GAUGE, OWN, RELOAD, VERSION, Metric

METRICS = (
    *REPLICA_METRICS,
    *DRAIN_METRICS,
    *WORKLOAD_METRICS,
    *ACTIVATOR_METRICS,
    Metric(
        "infscale_config_last_reload_successful",
        GAUGE,
        "1 if the configuration could be used when it was last read (at the start, or on SIGHUP), else 0.",
        group=RELOAD,
    ),
    Metric(
        "infscale_config_last_reload_success_timestamp_seconds",
        GAUGE,
        "When the configuration in force was read, in seconds since the Unix epoch.",
        group=RELOAD,
    ),
    Metric(
        "infscale_build_info",
        GAUGE,
        "Always 1; the labels tell the version of infscale.",
        (VERSION,),
        group=OWN,
    ),
)
"""Every metric, in the order of the page."""


def in_group(group: str) -> tuple[Metric, ...]:
    """The metrics of one of `contract.GROUPS`, in the order of the page."""
    return tuple(metric for metric in METRICS if metric.group == group)
