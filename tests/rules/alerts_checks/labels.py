"""Which labels the result of a PromQL expression has, from its syntax tree and the metrics' own labels."""

from __future__ import annotations

import promql_parser as promql

from infscale.metrics.catalogue import METRICS
from tests.rules.alerts_checks.alert import recorded
from tests.rules.expressions import children

TARGET = frozenset({"namespace", "pod", "workload", "job", "instance"})
"""What the scrape adds."""

_HPA = frozenset({"namespace", "horizontalpodautoscaler"})
FOREIGN = {
    "up": TARGET,
    "kube_deployment_spec_replicas": frozenset({"namespace", "deployment"}),
    "kube_deployment_status_replicas": frozenset({"namespace", "deployment"}),
    "kube_statefulset_replicas": frozenset({"namespace", "statefulset"}),
    "kube_statefulset_status_replicas": frozenset({"namespace", "statefulset"}),
    "kube_horizontalpodautoscaler_info": _HPA | {"scaletargetref_kind", "scaletargetref_name"},
    "kube_horizontalpodautoscaler_spec_max_replicas": _HPA,
    "kube_horizontalpodautoscaler_spec_min_replicas": _HPA,
    "kube_horizontalpodautoscaler_spec_target_metric": _HPA | {"metric_name", "metric_target_type"},
    "kube_horizontalpodautoscaler_status_condition": _HPA | {"condition", "status"},
    "kube_horizontalpodautoscaler_status_current_replicas": _HPA,
    "kube_horizontalpodautoscaler_status_desired_replicas": _HPA,
    "kube_scaledobject_status_condition": frozenset({"namespace", "scaledobject", "target", "condition"}),
    "keda_scaled_object_errors_total": frozenset({"namespace", "exported_namespace", "scaledObject"}),
}
"""Metrics that are not ours, with their labels: kube-state-metrics' internal/store/horizontalpodautoscaler.go, KEDA's
pkg/metricscollector/prommetrics.go, and the configuration in docs/runbooks/InfscaleScaledObjectNotReady.md."""

_WORKLOAD = frozenset({"workload_namespace", "workload"})
LEVELS = {
    "pod": frozenset({"namespace", "workload", "pod"}),
    "workload": _WORKLOAD,
    "workload_hpa": _WORKLOAD | {"horizontalpodautoscaler"},
    "workload_layout_le": _WORKLOAD | {"engine", "layout", "le"},
}
"""What the part of a recorded name before its first colon says of the labels; those that the rule sets come to them."""

COMPARISONS = {"==", "!=", ">", "<", ">=", "<="}

Labels = frozenset[str]


def own() -> dict[str, Labels]:
    """The series of the catalogue by name, with their labels and the target's."""
    found: dict[str, Labels] = {}
    for metric in METRICS:
        labels = frozenset(metric.label_names) | TARGET
        if metric.type == "histogram":
            found |= {f"{metric.name}_sum": labels, f"{metric.name}_count": labels}
            found[f"{metric.name}_bucket"] = labels | {"le"}
        else:
            found[metric.name] = labels
    return found


_OWN = own()


def selectors(expression: promql.Expr) -> list[promql.VectorSelector]:
    """Every selector of an expression."""
    if isinstance(expression, promql.VectorSelector):
        return [expression]
    return [found for child in children(expression) for found in selectors(child)]


def always(expression: promql.Expr) -> Labels | None:
    """The labels that every series of the result can have; of an `or`, what both sides have. None of a scalar."""
    return _labels(expression, either=False)


def ever(expression: promql.Expr) -> Labels | None:
    """The labels that some series of the result can have; of an `or`, what one side has. None of a scalar."""
    return _labels(expression, either=True)


def _labels(expression: promql.Expr, *, either: bool) -> Labels | None:
    if isinstance(expression, promql.VectorSelector):
        return _of_metric(str(expression.name))
    if isinstance(expression, promql.MatrixSelector):
        return _of_metric(str(expression.vector_selector.name))
    if isinstance(expression, promql.Call):
        return _of_call(expression, either=either)
    if isinstance(expression, promql.AggregateExpr):
        inner = _labels(expression.expr, either=either) or frozenset()
        if expression.modifier is None:
            return frozenset()
        named = frozenset(expression.modifier.labels)
        return inner & named if expression.modifier.type == promql.AggModifierType.By else inner - named
    if isinstance(expression, promql.BinaryExpr):
        return _of_binary(expression, either=either)
    inside = children(expression)
    return _labels(inside[0], either=either) if inside else None


def _of_metric(name: str) -> Labels:
    if name in _OWN:
        return _OWN[name]
    if name in FOREIGN:
        return FOREIGN[name]
    return LEVELS[name.partition(":")[0]] | frozenset(recorded()[name][0].get("labels", {}))


def _of_call(call: promql.Call, *, either: bool) -> Labels | None:
    name = call.func.name
    if name in {"absent", "vector"}:
        return frozenset()
    if name == "label_replace":
        return (_labels(call.args[0], either=either) or frozenset()) | {call.args[1].val}
    return next((found for arg in call.args if (found := _labels(arg, either=either)) is not None), None)


def _of_binary(binary: promql.BinaryExpr, *, either: bool) -> Labels | None:
    left, right = _labels(binary.lhs, either=either), _labels(binary.rhs, either=either)
    operator = str(binary.op)
    if left is None or right is None:
        return right if left is None else left
    if operator == "or":
        return left | right if either else left & right
    if operator in {"and", "unless"}:
        return left
    modifier = binary.modifier
    if modifier is None or modifier.matching is None:
        return left
    if modifier.card == promql.VectorMatchCardinality.ManyToOne:
        return left
    matched = frozenset(modifier.matching.labels)
    return left & matched
