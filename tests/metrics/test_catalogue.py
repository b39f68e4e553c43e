"""The contract as data, and the page of the documentation that is made from it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from infscale.metrics import catalogue, contract
from infscale.metrics.catalogue_replica import FAILURE_MEANINGS, STATE_MEANINGS
from infscale.reading import FAILURES, STATES

ROOT = Path(__file__).parents[2]
UNITS = {"seconds", "ratio", "requests", "tokens", "replicas", "decisions", "resets", "failures"}
UNITS |= {"info", "up", "state", "reason", "draining", "drains", "cut", "limit", "successful"}


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_names_follow_prometheus(metric):
    """Prefix, case, unit last, `_total` for counters alone, and a help text that is one line."""
    last = metric.name.removesuffix("_total").rpartition("_")[2]

    assert re.fullmatch(r"infscale(_[a-z]+)+", metric.name)
    assert last in UNITS
    assert metric.name.endswith("_total") == (metric.type == contract.COUNTER)
    assert re.fullmatch(r"[A-Z0-9][^\n]*\.", metric.help)
    assert metric.group in contract.GROUPS
    assert metric.stability in (contract.STABLE, contract.EXPERIMENTAL, contract.DEPRECATED)


def test_no_name_twice():
    """One name, one row; groups follow one another on the page."""
    names = [metric.name for metric in catalogue.METRICS]
    groups = [metric.group for metric in catalogue.METRICS]

    assert len(names) == len(set(names))
    assert groups == sorted(groups, key=list(contract.GROUPS).index)


def test_labels_of_the_scrape_are_not_ours():
    """Namespace and Pod come from the scrape, and `workload` too but for what is about a workload itself."""
    for metric in catalogue.METRICS:
        names = set(metric.label_names)

        assert not names & {"namespace", "pod", "node", "instance", "job", "le", "quantile", "type"}
        workload = (
            {"workload_namespace", "workload"} if metric.group in (contract.WORKLOAD, contract.ACTIVATOR) else set()
        )
        assert names & {"workload_namespace", "workload"} == workload


def test_states_and_failures_are_the_readings():
    """The catalogue explains each state and failure that a read can have, and no other."""
    assert list(STATES) == list(STATE_MEANINGS)
    assert list(FAILURES) == list(FAILURE_MEANINGS)


def test_the_documented_table_is_the_catalogue():
    """docs/metrics.md is what the catalogue makes of it; `python tools/metrics_table.py` writes it anew."""
    made = runpy.run_path(str(ROOT / "tools" / "metrics_table.py"))["page"]()

    assert made == (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
