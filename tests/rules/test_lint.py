"""What every recording rule keeps to: names, ranges, levels, double scrapes, and functions that both versions have."""

from __future__ import annotations

import re

import promql_parser as promql
import pytest

from infscale.metrics.contract import COUNTER
from tests.rules.expressions import (
    EVERYTHING,
    FOREIGN,
    LEVELS,
    Rule,
    catalogue,
    groups,
    is_condition,
    levels_of,
    of_workloads,
    rules_of,
    walk,
)
from tests.rules.promtool import promtool, recording_files
from tools.prometheus_rule import rule_files

RULES = [rule for path in recording_files() for rule in rules_of(path)]
EACH = pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.record}{''.join(rule.labels.get('phase', ''))}")
CATALOGUE = catalogue()
RECORDED = {rule.record for rule in RULES}
SET_BY_USER = "workload:infscale_target_inflight_requests:set"

FUNCTIONS = {
    *("ceil", "histogram_quantile", "label_replace", "last_over_time", "max_over_time", "rate", "round"),
    *("sum_over_time", "time", "timestamp", "vector"),
}
"""Those in use. Prometheus 2.42 and 3 both have them, and without a flag."""


def selectors(rule: Rule):
    """What a rule reads, with what stands around it."""
    return [(part, above) for part, above in walk(rule.expr) if isinstance(part, promql.VectorSelector)]


def test_promtool_finds_nothing() -> None:
    """No error and no lint in any rule file, alerts included."""
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", *rule_files())
    assert done.returncode == 0, done.stdout


def test_each_series_is_recorded_once() -> None:
    """Two rules that record one series would take turns."""
    keys = [(rule.record, tuple(sorted(rule.labels.items()))) for rule in RULES]
    assert len(set(keys)) == len(keys)


def test_groups_have_an_interval_and_a_name_of_their_own() -> None:
    """The down window and the replica-minutes count on it; the HPA looks every 15 s."""
    found = [group for path in recording_files() for group in groups(path)]
    assert {group["name"]: group["interval"] for group in found} == {
        "infscale-targets": "15s",
        "infscale-workload": "15s",
        "infscale-fleet": "15s",
        "infscale-cost": "1m",
        "infscale-latency": "30s",
    }


@EACH
def test_names_exist(rule: Rule) -> None:
    """A rule reads what the catalogue or a rule before it has, or what Prometheus and kube-state-metrics have."""
    before = RECORDED if rule.file != "workload.yaml" else set(before_of(rule)) | {SET_BY_USER}
    known = set(CATALOGUE) | FOREIGN | before
    assert {part.name for part, _ in selectors(rule)} <= known


def before_of(rule: Rule) -> list[str]:
    """What the group of a rule records before it: only that is of the same instant."""
    group = [other for other in RULES if other.group == rule.group]
    return [other.record for other in group[: group.index(rule)]]


@EACH
def test_record_names(rule: Rule) -> None:
    """level:metric:operations, without the `_total` of a counter that is rated; or the recommender's own name."""
    if rule.record == "infscale_workload_demand_requests":
        return
    assert re.fullmatch(r"[a-z_]+:[a-z_]+:[a-z0-9_]+", rule.record)
    level, metric, _ = rule.record.split(":")
    assert level in LEVELS
    assert not metric.endswith("_total")


@EACH
def test_the_level_is_what_comes_out(rule: Rule) -> None:
    """The labels of the result are those that the name promises, on every side of an `or`."""
    level = LEVELS.get(rule.record.split(":")[0], LEVELS["workload"])
    found = [labels | set(rule.labels) for labels in levels_of(rule.expr)]
    if rule.record == "target:up:age_seconds":
        assert found == []
    else:
        assert found
        assert set(found) == {level}
        assert EVERYTHING not in found


@EACH
def test_counters_are_rated_and_nothing_else(rule: Rule) -> None:
    """A raw counter says nothing; the layout of a histogram is read off its buckets."""
    for part, above in selectors(rule):
        functions = [parent.func.name for parent in above if isinstance(parent, promql.Call)]
        rated = bool(functions) and functions[-1] == "rate"
        if CATALOGUE.get(part.name) == COUNTER:
            layout = rule.record.endswith("_bucket:layout") and functions[-1] == "last_over_time"
            assert rated or layout, part.name
        else:
            assert not rated, part.name


@EACH
def test_rates_are_summed_and_sums_are_not_rated(rule: Rule) -> None:
    """An aggregation inside a rate would take a restart of one replica for one of all: rate first, and no subquery."""
    for part, above in walk(rule.expr):
        assert not isinstance(part, promql.SubqueryExpr)
        if isinstance(part, promql.AggregateExpr):
            assert "rate" not in [parent.func.name for parent in above if isinstance(parent, promql.Call)]


@EACH
def test_ranges_are_off_the_grid(rule: Rule) -> None:
    """One second more or less than a multiple of 15 s: Prometheus 2 and 3 take the same samples. No offsets, no @."""
    for part, _ in walk(rule.expr):
        if isinstance(part, promql.MatrixSelector):
            assert part.range.total_seconds() % 15 in (1, 14)
        if isinstance(part, promql.VectorSelector):
            assert part.offset is None
            assert part.at is None


@EACH
def test_a_replica_scraped_twice_counts_once(rule: Rule) -> None:
    """What is nearest around a raw series takes the largest of each Pod (or workload), or asks whether there is one."""
    for part, above in selectors(rule):
        around = [parent for parent in above if isinstance(parent, promql.AggregateExpr)]
        if ":" in part.name or is_condition(part, above) or rule.record == "target:up:age_seconds":
            continue
        assert around, part.name
        assert str(around[-1].op) in ("max", "group"), part.name
        assert around[-1].modifier is not None
        labels = set(around[-1].modifier.labels)
        if rule.record != "workload:infscale_kv_cache_usage_ratio:max" and part.name not in of_workloads() | FOREIGN:
            assert labels >= {"namespace", "workload", "pod"}, part.name


@EACH
def test_sidecars_are_selected_by_their_label(rule: Rule) -> None:
    """A target without the label `workload` belongs to nobody; on a workload's own series it is there anyhow."""
    for part, _ in selectors(rule):
        if part.name in set(CATALOGUE) - of_workloads() | {"up"}:
            assert 'workload!=""' in str(part.matchers), part.name


@EACH
def test_functions_are_in_both_versions(rule: Rule) -> None:
    """Only the functions above, and no label that Prometheus renames or Grafana's variables would hide."""
    used = {part.func.name for part, _ in walk(rule.expr) if isinstance(part, promql.Call)}
    assert used <= FUNCTIONS


@EACH
def test_nothing_is_made_up(rule: Rule) -> None:
    """No `vector(0)` and no absent(): what is not known is not recorded."""
    text = str(rule.expr)
    assert "absent" not in text
    assert "vector(" not in text or rule.record == SET_BY_USER


def test_the_lint_finds_what_it_is_for() -> None:
    """Each check fails on a rule that is wrong in its way."""

    def rule(record: str, expr: str) -> Rule:
        return Rule("x.yaml", "g", record, promql.parse(expr), {})

    for check, wrong in (
        (test_names_exist, rule("workload:a:sum", "infscale_inflight")),
        (test_record_names, rule("workload:infscale_prompt_tokens_total:rate5m", "up")),
        (test_the_level_is_what_comes_out, rule("workload:a:sum", "sum by (workload) (up)")),
        (test_the_level_is_what_comes_out, rule("workload:a:sum", "workload:a:max or pod:infscale_phase:group")),
        (test_counters_are_rated_and_nothing_else, rule("workload:a:sum", "infscale_prompt_tokens_total")),
        (test_counters_are_rated_and_nothing_else, rule("workload:a:rate5m", "rate(infscale_running_requests[5m1s])")),
        (test_rates_are_summed_and_sums_are_not_rated, rule("workload:a:rate5m", "rate(sum(up)[5m:15s])")),
        (test_ranges_are_off_the_grid, rule("workload:a:rate5m", "rate(infscale_prompt_tokens_total[5m])")),
        (test_a_replica_scraped_twice_counts_once, rule("workload:a:sum", "sum(infscale_inflight_requests)")),
        (test_sidecars_are_selected_by_their_label, rule("workload:a:max", "infscale_up")),
        (test_functions_are_in_both_versions, rule("workload:a:max", "deriv(up[5m1s])")),
        (test_nothing_is_made_up, rule("workload:a:max", "up or vector(0)")),
    ):
        with pytest.raises(AssertionError):
            check(wrong)
