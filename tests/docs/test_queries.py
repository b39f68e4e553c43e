"""The queries of the pages: each is PromQL, and asks for series that infscale publishes or its rules record."""

from __future__ import annotations

import re

import promql_parser
import pytest

from infscale.metrics.catalogue import METRICS
from tests.docs.fences import fences, pages
from tests.k8s.manifests import load
from tools.prometheus_rule import rule_files

QUERIES = [fence for page in pages() for fence in fences(page) if fence.language == "promql"]
TEXTS = [fence for page in pages() for fence in fences(page) if fence.language in ("promql", "sh", "console")]

_SERIES = re.compile(r"(?<![\w/.-])(?:[a-z_]+:)?infscale_[a-z_]+(?::\w+)?(?=[{\[) '\"]|$)", re.MULTILINE)


def known() -> set[str]:
    """Every series that a query may ask for."""
    published = {metric.name for metric in METRICS}
    parts = {f"{name}_{part}" for name in published for part in ("bucket", "sum", "count")}
    rules = [
        rule
        for path in rule_files()
        for file in load(path.read_text(encoding="utf-8"))
        for group in file["groups"]
        for rule in group["rules"]
    ]
    return published | parts | {rule["record"] for rule in rules if "record" in rule}


@pytest.mark.parametrize("fence", QUERIES, ids=lambda fence: fence.place)
def test_query_is_promql(fence):
    """A fence of PromQL parses."""
    promql_parser.parse(fence.text)


@pytest.mark.parametrize("page", sorted({fence.page for fence in TEXTS}))
def test_series_are_there(page):
    """A series in a query or a command is published or recorded."""
    asked = {name for fence in TEXTS if fence.page == page for name in _SERIES.findall(fence.text)}
    assert sorted(asked - known()) == []
