"""Recording rules as data: their syntax trees, what they read and which labels come out.

Used by test_lint, and `groups` and `children` for the alerts, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from infscale.metrics.catalogue import METRICS
from infscale.metrics.contract import COUNTER, HISTOGRAM

FOREIGN = {
    "up",
    "kube_deployment_spec_replicas",
    "kube_deployment_status_replicas",
    "kube_statefulset_replicas",
    "kube_statefulset_status_replicas",
}
"""What Prometheus itself and kube-state-metrics have; all of them gauges."""

WORKLOAD_LABELS = frozenset({"workload_namespace", "workload"})
POD_LABELS = frozenset({"namespace", "workload", "pod"})
LEVELS = {
    "workload": WORKLOAD_LABELS,
    "workload_phase": WORKLOAD_LABELS | {"phase"},
    "workload_state": WORKLOAD_LABELS | {"state"},
    "workload_layout_le": WORKLOAD_LABELS | {"engine", "layout", "le"},
    "pod": POD_LABELS | {"phase"},
    "pod_engine_model": POD_LABELS | {"engine", "model_name"},
    "target": POD_LABELS | {"job", "instance"},
}
"""The labels of a recorded series, by the part of its name before the first colon."""

EVERYTHING = frozenset({"*"})
"""The labels of a raw series: more than a rule may leave standing."""


@dataclass(frozen=True)
class Rule:
    """One recording rule and where it stands."""

    file: str
    group: str
    record: str
    expr: promql.Expr
    labels: dict[str, str]


def groups(path: Path) -> list[dict[str, Any]]:
    """The groups of a rule file."""
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return found


def rules_of(path: Path) -> Iterator[Rule]:
    """The recording rules of a file."""
    for group in groups(path):
        for rule in group["rules"]:
            yield Rule(path.name, group["name"], rule["record"], promql.parse(rule["expr"]), rule.get("labels", {}))


def catalogue() -> dict[str, str]:
    """Every series that infscale publishes and its type; the buckets of a histogram count up."""
    found = {}
    for metric in METRICS:
        if metric.type == HISTOGRAM:
            found.update({f"{metric.name}_{end}": COUNTER for end in ("bucket", "sum", "count")})
        else:
            found[metric.name] = metric.type
    return found


def of_workloads() -> set[str]:
    """The names of what is published about workloads, by whoever."""
    return {
        f"{metric.name}{'_bucket' if metric.type == HISTOGRAM else ''}"
        for metric in METRICS
        if "workload_namespace" in metric.label_names
    }


Around = tuple[promql.Expr, ...]
"""What stands around a part of an expression, outermost first."""


def walk(expr: promql.Expr, above: Around = ()) -> Iterator[tuple[promql.Expr, Around]]:
    """Every part of an expression, with all that stands around it."""
    yield expr, above
    for child in children(expr):
        yield from walk(child, (*above, expr))


def children(expr: promql.Expr) -> list[promql.Expr]:
    """The parts of an expression, one step down."""
    if isinstance(expr, promql.Call):
        return list(expr.args)
    if isinstance(expr, promql.BinaryExpr):
        return [expr.lhs, expr.rhs]
    if isinstance(expr, promql.AggregateExpr):
        return [expr.expr, *([expr.param] if expr.param is not None else [])]
    if isinstance(expr, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        return [expr.expr]
    if isinstance(expr, promql.MatrixSelector):
        return [expr.vector_selector]
    assert isinstance(expr, promql.VectorSelector | promql.NumberLiteral | promql.StringLiteral), type(expr)
    return []


def levels_of(expr: promql.Expr) -> list[frozenset[str]]:
    """The labels of the series that come out, an entry for each side of an `or`; EVERYTHING where not said."""
    if isinstance(expr, promql.ParenExpr):
        return levels_of(expr.expr)
    if isinstance(expr, promql.AggregateExpr):
        named = frozenset(expr.modifier.labels) if expr.modifier is not None else frozenset[str]()
        return [named | {expr.param.val} if isinstance(expr.param, promql.StringLiteral) else named]
    if isinstance(expr, promql.VectorSelector):
        level = (expr.name or "").split(":")
        return [LEVELS[level[0]] if len(level) > 1 else WORKLOAD_LABELS if is_by_rule(expr) else EVERYTHING]
    if isinstance(expr, promql.BinaryExpr):
        if str(expr.op) == "or":
            return levels_of(expr.lhs) + levels_of(expr.rhs)
        return levels_of(expr.rhs if isinstance(expr.lhs, promql.NumberLiteral) else expr.lhs)
    if isinstance(expr, promql.Call) and expr.func.name == "histogram_quantile":
        return [labels - {"le"} for labels in levels_of(expr.args[1])]
    if isinstance(expr, promql.Call) and expr.func.name == "vector":
        return [frozenset()]
    if isinstance(expr, promql.Call) and expr.args:
        return levels_of(expr.args[0])
    if isinstance(expr, promql.MatrixSelector):
        return levels_of(expr.vector_selector)
    return []


def is_by_rule(selector: promql.VectorSelector) -> bool:
    """Whether a rule records what is selected under the name of the recommender's own series."""
    return selector.name == "infscale_workload_demand_requests" and not selector.matchers.matchers


def is_condition(part: promql.Expr, above: Around) -> bool:
    """Whether a part only says which series of something else stand: on the right of `and` or `unless`."""
    chain = [str(one) for one in (*above, part)]
    for parent, below in zip(reversed(above), reversed(chain), strict=False):
        if isinstance(parent, promql.AggregateExpr):
            return False
        if isinstance(parent, promql.BinaryExpr) and str(parent.op) in ("and", "unless") and str(parent.rhs) == below:
            return True
    return False
