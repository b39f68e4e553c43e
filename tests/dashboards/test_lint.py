"""The rules of Grafana's dashboard-linter (github.com/grafana/dashboard-linter, docs/index.md), one test each.

`EXCEPTIONS` names the rules that are kept in another form, and why.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from infscale.metrics.catalogue import METRICS
from infscale.metrics.contract import COUNTER, HISTOGRAM
from tests.dashboards.history import recording_rules
from tests.dashboards.panels import Query, dashboards, expanded, panels, queries
from tools.dashboards.builder import metrics_in

DASHBOARDS = dashboards()
QUERIES = [query for each in DASHBOARDS for query in queries(each)]
UIDS = {each["uid"] for each in DASHBOARDS}

SCOPE = "a workload and its Pods are what is looked at; job and instance are how they are scraped"
EXCEPTIONS: dict[str, str] = {
    "template-job-rule": f"`namespace` in its place: {SCOPE}",
    "template-instance-rule": f"`workload`, and `pod` on Replica and Drain, in its place: {SCOPE}",
    "target-job-rule": f"a matcher of the namespace in its place: {SCOPE}",
    "target-instance-rule": f"a matcher of the workload in its place: {SCOPE}",
}
"""Rules that are kept with other names, and why; the tests of these rules below check the names in their place."""

WITHOUT_ALL = {
    ("infscale-decision", "namespace"): "one workload is looked at",
    ("infscale-decision", "workload"): "one workload is looked at",
}
"""Variables of which one value is chosen."""

UNITS = {"short", "none", "s", "percentunit", "reqps", "count:tok/s", "count:min"}

NAMESPACES = ('namespace=~"$namespace"', 'workload_namespace=~"$namespace"')
WORKLOADS = ('workload=~"$workload"',)

every = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each["uid"])


def variables(name: str) -> list[tuple[str, dict[str, Any]]]:
    """The variable of that name of each dashboard that has it, with the dashboard's uid."""
    return [
        (each["uid"], variable)
        for each in DASHBOARDS
        for variable in each["templating"]["list"]
        if variable["name"] == name
    ]


def all_panels() -> Iterable[tuple[str, dict[str, Any]]]:
    """Every panel with the uid of its dashboard."""
    return [(each["uid"], panel) for each in DASHBOARDS for panel in panels(each)]


def all_selectors(expr: str) -> list[Any]:
    """The vector selectors of a query."""
    found: list[Any] = []

    def walk(node: Any, around: tuple[str, ...]) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append((node, around))
        elif isinstance(node, promql_parser.MatrixSelector):
            found.append((node.vector_selector, around))
        elif isinstance(node, promql_parser.Call):
            for argument in node.args:
                walk(argument, (*around, node.func.name))
        elif isinstance(node, promql_parser.BinaryExpr):
            walk(node.lhs, around)
            walk(node.rhs, around)
        elif hasattr(node, "expr"):
            walk(node.expr, around)

    walk(promql_parser.parse(expr), ())
    return found


def test_template_datasource_rule():
    """A variable chooses the data source, called `datasource`, with the label that people know."""
    assert {uid for uid, _ in variables("datasource")} == UIDS
    for _, variable in variables("datasource"):
        assert variable["type"] == "datasource"
        assert variable["query"] == "prometheus"
        assert variable["label"] == "Data source"


@pytest.mark.parametrize(
    ("rule", "names"), [("template-job-rule", ["namespace"]), ("template-instance-rule", ["workload", "pod"])]
)
def test_template_job_and_instance_rules(rule: str, names: list[str]):
    """What stands in their place is a query of the chosen data source with a label; several may be chosen, or all."""
    assert EXCEPTIONS[rule]
    for name in names:
        for uid, variable in variables(name):
            assert variable["type"] == "query"
            assert variable["datasource"]["uid"] == "${datasource}"
            assert variable["label"] == name.capitalize()
            one = (uid, name) in WITHOUT_ALL
            assert variable["multi"] is variable["includeAll"] is not one


def test_variables_of_which_one_is_chosen_are_those_in_the_table():
    """No other variable lets choose only one."""
    single = {
        (each["uid"], variable["name"])
        for each in DASHBOARDS
        for variable in each["templating"]["list"]
        if variable["type"] == "query" and not variable["multi"]
    }
    assert single == set(WITHOUT_ALL)


def test_template_label_promql_rule():
    """What is asked for the values of a variable is PromQL with a metric in it, never all series of the server."""
    for each in DASHBOARDS:
        for variable in each["templating"]["list"][1:]:
            asked = re.fullmatch(r"(?:label_values\((.+), \w+\)|query_result\((.+)\))", variable["query"]["query"])
            assert asked, variable["query"]
            promql_parser.parse(expanded(asked[1] or asked[2]))


def test_template_on_time_change_reload_rule():
    """Values are asked for again when the time changes."""
    for each in DASHBOARDS:
        assert all(variable["refresh"] == 2 for variable in each["templating"]["list"][1:])


def test_panel_datasource_rule():
    """Each panel and each query uses the chosen data source."""
    for _, panel in all_panels():
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panel_title_description_rule():
    """Each panel has a title and a description; the description names the metrics."""
    for _, panel in all_panels():
        assert panel["title"]
        assert panel["description"][0].isupper()
        for target in panel["targets"]:
            for metric in metrics_in(target["expr"]):
                assert f"`{metric}`" in panel["description"], panel["title"]


def test_panel_units_rule():
    """Each panel has a unit that Grafana knows."""
    for _, panel in all_panels():
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]


def test_panel_no_targets_rule():
    """Each panel asks for something; refIds are unique."""
    for _, panel in all_panels():
        ids = [target["refId"] for target in panel["targets"]]
        assert ids
        assert len(set(ids)) == len(ids)


def test_target_logql_rules():
    """There is no query in another language: all parse as PromQL (target-logql-rule, target-logql-auto-rule)."""
    assert {part["type"] for _, panel in all_panels() for part in (t["datasource"] for t in panel["targets"])} == {
        "prometheus"
    }


@every
def test_target_promql_rule(dashboard: dict[str, Any]):
    """Each query parses with its variables put in."""
    for query in queries(dashboard):
        promql_parser.parse(expanded(query.expr))


def test_queries_pass_promtool(tmp_path: Path):
    """Prometheus' own tool takes every query and annotation, as rules of a file."""
    annotations = [each["annotations"]["list"][0]["expr"] for each in DASHBOARDS]
    exprs = [expanded(expr) for expr in (*(query.expr for query in QUERIES), *annotations)]
    rules = [{"record": f"panel:query:{number}", "expr": expr} for number, expr in enumerate(exprs)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", "--lint=none", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@every
def test_target_rate_interval_rule(dashboard: dict[str, Any]):
    """No fixed range: Grafana's rate interval, or the time shown where a number sums it up."""
    for query in queries(dashboard):
        assert set(re.findall(r"\[([^\]]+)\]", query.expr)) <= {"$__rate_interval", "$__range"}, query
        for interval in re.findall(r"\bi?rate\([^\[]*\[([^\]]+)\]", query.expr):
            assert interval == "$__rate_interval", query


@pytest.mark.parametrize(("rule", "matchers"), [("target-job-rule", NAMESPACES), ("target-instance-rule", WORKLOADS)])
def test_target_job_and_instance_rules(rule: str, matchers: tuple[str, ...]):
    """Each selector has the matchers of the variables in their place, of the label that its series have."""
    assert EXCEPTIONS[rule]
    for query in QUERIES:
        for metric in metrics_in(query.expr):
            for inside in re.findall(rf"(?<![\w:]){re.escape(metric)}\{{([^}}]*)\}}", query.expr):
                parts = inside.split(", ")
                assert sum(matcher in parts for matcher in matchers) == 1, f"{query}: {metric}"
                if rule == "target-job-rule":
                    own = "workload_namespace" if metric in ABOUT_A_WORKLOAD else "namespace"
                    assert f'{own}=~"$namespace"' in parts, f"{query}: {metric}"
        assert not re.search(r"\bor vector\(0\)", query.expr)


@every
def test_target_counter_agg_rule(dashboard: dict[str, Any]):
    """A counter, or a histogram's buckets, stand under a rate or an increase and nowhere bare."""
    counters = {metric.name for metric in METRICS if metric.type == COUNTER}
    counters |= {f"{m.name}{part}" for m in METRICS if m.type == HISTOGRAM for part in ("_bucket", "_count", "_sum")}
    for query in queries(dashboard):
        for selector, around in all_selectors(expanded(query.expr)):
            assert selector.name not in counters or set(around[-1:]) & {"rate", "increase"}, f"{query}: {selector.name}"


def test_uneditable_dashboard():
    """A provisioned dashboard is changed where it is made, and not by hand."""
    assert not any(each["editable"] for each in DASHBOARDS)


# Beyond the linter.

ABOUT_A_WORKLOAD = {rule.record for rule in recording_rules() if not rule.record.startswith("pod")} | {
    metric.name + part
    for metric in METRICS
    if "workload_namespace" in metric.label_names
    for part in ("", "_bucket", "_count", "_sum")
}
"""Series that say themselves which workload they are about."""


@every
def test_every_metric_is_one_that_is_published_or_recorded(dashboard: dict[str, Any]):
    """Each name stands in the metric catalogue or in the rules."""
    published = {m.name + part for m in METRICS for part in ("", "_bucket", "_count", "_sum")}
    recorded = {rule.record for rule in recording_rules()}
    for query in queries(dashboard):
        names = {selector.name for selector, _ in all_selectors(expanded(query.expr))}
        assert names, query
        assert names <= published | recorded, query


def test_a_label_is_only_asked_of_what_has_it():
    """`model_name` and `pod` are matched only on series of replicas."""
    for query in QUERIES:
        for metric in ABOUT_A_WORKLOAD:
            for inside in re.findall(rf"(?<![\w:]){re.escape(metric)}\{{([^}}]*)\}}", query.expr):
                assert not {"model_name", "pod"} & set(re.findall(r"\w+(?=[=!])", inside)), f"{query}: {metric}"


def quantile_of(query: Query) -> str:
    """The quantile that a query computes or reads, as `p95`; empty where it is none."""
    computed = re.search(r"histogram_quantile\((0\.\d+)", query.expr)
    if computed:
        return f"p{float(computed[1]) * 100:g}"
    recorded = re.search(r":p(\d+)_", query.expr)
    return f"p{recorded[1]}" if recorded else ""


@every
def test_what_is_called_a_quantile_is_that_quantile(dashboard: dict[str, Any]):
    """The text of the legend, or the panel's title, names the quantile of the query and no other."""
    for query in queries(dashboard):
        told = set(re.findall(r"\bp\d+\b", f"{query.panel} {query.legend}"))
        assert told == {quantile_of(query)} - {""}, query
