"""Write docs/metrics.md from the metric catalogue: `python tools/metrics_table.py`. A test holds the page to it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "exporter"))

from infscale.metrics import catalogue, catalogue_drain, catalogue_replica, catalogue_workload  # noqa: E402
from infscale.metrics.contract import GROUPS, Metric  # noqa: E402

PAGE = ROOT / "docs" / "metrics.md"

INTRODUCTION = """\
# Metrics

<!-- Made by tools/metrics_table.py from exporter/infscale/metrics/catalogue*.py; change it there. -->

Every metric that infscale publishes at `/metrics`, in the Prometheus text format (0.0.4) or in OpenMetrics (1.0.0), as
the scraper's `Accept` header asks. A *stable* metric changes its name, type, labels or unit only after a minor version
that has both the old and the new one; an *experimental* one may change with any minor version.

- **Absent is not 0.** What is not known has no sample: no NaN, no made-up 0. A queue that vanished is absent, and
  `infscale_up` and `infscale_engine_state` say why.
- **No target labels.** Namespace, Pod and workload come from the scrape. Join on them: `on (namespace, pod)`.
- **What is about a workload says so itself**, in `workload_namespace` and `workload`, whoever publishes it and however
  many do: `max by (workload_namespace, workload) (infscale_recommended_replicas)`. A recommender that hangs still shows
  its last values; `time() - infscale_evaluation_timestamp_seconds < 60` leaves them out.
- **Sum so that a replica counts once**, also when two jobs scrape it:
  `sum(max by (namespace, pod, model_name) (infscale_inflight_requests))`.
- **Counters of the engine are passed through**: they start again at 0 with the engine, as `rate()` expects.
- **Histograms keep the engine's own buckets.** Those of different engines and versions do not fit together: take a
  quantile for each `engine` and show the worst. `--no-collector.histograms` leaves them out.
- **No `_created` series and no sample timestamps.** The engine is read when a scrape asks, at most once in
  `--engine.min-interval`; `infscale_reading_timestamp_seconds` says when the values shown were read.

Beside these, a page has the `process_*` and `python_*` metrics of the Prometheus client library about infscale's own
process, at most a second old; `process_*` only where there is a `/proc` (not on macOS).
"""


def page() -> str:
    """The whole page, in Markdown."""
    parts = [INTRODUCTION]
    for group, heading in GROUPS.items():
        metrics = catalogue.in_group(group)
        if metrics:
            rows = ([f"`{m.name}`", m.type, labels(m), m.help, m.stability, m.since] for m in metrics)
            parts += [f"## {heading}\n", table(["metric", "type", "labels", "meaning", "stability", "since"], rows)]
    used = dict.fromkeys(label for metric in catalogue.METRICS for label in metric.labels)
    rows = ([f"`{label.name}`", label.meaning] for label in sorted(used, key=lambda label: label.name))
    parts += ["## Labels\n", table(["label", "meaning"], rows)]
    states = ([f"`{state}`", when, shown] for state, (when, shown) in catalogue_replica.STATE_MEANINGS.items())
    parts += ["## States of a replica\n", table(["state", "when", "values shown"], states)]
    parts += ["## Reasons of a failed read\n", meanings("reason", catalogue_replica.FAILURE_MEANINGS)]
    parts += ["## Outcomes of a drain\n", meanings("outcome", catalogue_drain.DRAIN_MEANINGS)]
    parts += ["## Replicas of a workload, counted\n", meanings("state", catalogue_workload.COUNT_MEANINGS)]
    parts += ["## Replicas of a workload, paid for\n", meanings("state", catalogue_workload.PAID_MEANINGS)]
    parts += ["## Reasons of a decision\n", meanings("reason", catalogue_workload.REASON_MEANINGS)]
    return "\n".join(parts)


def labels(metric: Metric) -> str:
    """The labels of a metric, for a cell."""
    return ", ".join(f"`{name}`" for name in metric.label_names)


def meanings(label: str, values: Mapping[str, str]) -> str:
    """A table of the values of a label."""
    return table([label, "meaning"], ([f"`{value}`", meaning] for value, meaning in values.items()))


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(f"wrote {PAGE.relative_to(ROOT)}: {len(catalogue.METRICS)} metrics")
