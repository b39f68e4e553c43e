"""The alerts: promtool's tests of each, what the tests must hold, what every alert must have, and mutants of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from tests.rules.alerts_checks import labels
from tests.rules.alerts_checks.alert import (
    ALERT_FILES,
    RUNBOOK_BASE,
    RUNBOOKS,
    TESTS,
    Alert,
    alerts,
    checks,
    load_tests,
    recorded,
    seconds,
)
from tests.rules.alerts_checks.mutants import mutants
from tests.rules.expressions import children, groups
from tests.rules.promtool import promtool

ALERTS = alerts()
EACH = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)

_A_SHARE = "a share is never just the threshold: it is a quotient of rates"
SURVIVORS = {
    name: {f"line {line}: > for >=": _A_SHARE for line in (1, 3, 5)}
    for name in ("InfscaleTtftBurnFast", "InfscaleTtftBurnSlow")
}
"""Mutants that are no different from the alert: by alert, what is changed and why nothing can show it."""

GRID_S = 15
"""The usual scrape interval. Prometheus 2 counts a sample that is exactly as old as the range, 3 does not."""


def test_every_alert_has_its_tests_and_no_test_is_without_one():
    """The files of tests/rules/alerts are those of the alerts, by name."""
    assert sorted(path.name for path in TESTS.iterdir()) == sorted(f"{alert.name}.yaml" for alert in ALERTS)
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)


def test_lint():
    """Promtool finds nothing in the files of alerts, not even a lint."""
    found = promtool("check", "rules", "--lint=all", "--lint-fatal", *ALERT_FILES)

    assert found.returncode == 0, found.stdout


def test_promtool():
    """The tests of all alerts succeed, by promtool."""
    found = promtool("test", "rules", *sorted(TESTS.glob("*.yaml")))

    assert found.returncode == 0, found.stdout[-4000:]


@EACH
def test_scraped_twice_and_mutants(alert: Alert, tmp_path: Path):
    """Over series that two jobs scraped the same comes out; and each small wrong change of the alert is noticed there.

    A comparison, a threshold, a duration, the severity: one at a time. All run at once, as further alerts of one file.
    """
    made = dict(mutants(alert))
    names = {f"{alert.name}Mutant{number}": what for number, what in enumerate(made)}
    rules = [{**made[what], "alert": name} for name, what in names.items()]
    changed = tmp_path / "mutants.yaml"
    changed.write_text(json.dumps({"groups": [{"name": "mutants", "rules": [*rules, alert.rule]}]}))
    content = load_tests(alert.tests)
    content["rule_files"] = [path for path in content["rule_files"] if path != str(alert.file)] + [str(changed)]
    content["group_eval_order"][-1] = "mutants"
    for group in content["tests"]:
        group["input_series"] += [again(given) for given in group["input_series"] if not is_recorded(given)]
        group["alert_rule_test"] = [
            {**check, "alertname": name} for check in group["alert_rule_test"] for name in (alert.name, *names)
        ]
    path = tmp_path / "tests.yaml"
    path.write_text(json.dumps(content))

    output = promtool("test", "rules", path).stdout

    noticed = set(re.findall(r"alertname: (\S+), time:", output))
    assert "FAILED" in output
    assert alert.name not in noticed
    assert {names[name] for name in names.keys() - noticed} == SURVIVORS.get(alert.name, {}).keys()


def is_recorded(given: dict[str, str]) -> bool:
    """Whether a series is one that a rule makes: of those there is one."""
    return ":" in given["series"].partition("{")[0]


def again(given: dict[str, str]) -> dict[str, str]:
    """The series as a second job has it."""
    name = given["series"].rstrip("}").rstrip()
    named = re.sub(r'job="([^"]*)"', r'job="again-\1"', name)
    return {**given, "series": f"{named}}}" if named != name else f'{name}, job="infscale-again"}}'}


@EACH
def test_the_tests_have_all_kinds(alert: Alert):
    """Not yet, firing with labels and annotations, resolved, and a false positive with a comment."""
    content = load_tests(alert.tests)
    fires = [group for group in content["tests"] if group["name"].startswith("fires")]
    silent = [group for group in content["tests"] if group["name"].startswith("does not fire")]
    assert len(fires) + len(silent) == len(content["tests"])

    kinds = set()
    for group in fires:
        instants = list(checks(group))
        firing = [at for at, expected in instants if expected]
        kinds |= {"firing"} if firing else set()
        kinds |= {"not yet"} if any(at < firing[0] and not expected for at, expected in instants) else set()
        kinds |= {"resolved"} if any(at > firing[-1] and not expected for at, expected in instants) else set()
        for _, expected in instants:
            for one in expected:
                assert one["exp_labels"]["severity"] == alert.rule["labels"]["severity"]
                assert set(one["exp_annotations"]) == {"summary", "description", "runbook_url"}

    assert kinds == {"not yet", "firing", "resolved"}
    assert silent
    text = alert.tests.read_text(encoding="utf-8")
    for group in silent:
        assert not any(expected for _, expected in checks(group)), group["name"]
        assert re.search(rf"\n  # .+\n  - name: '{re.escape(group['name'])}'", text), f"no comment: {group['name']}"


@EACH
def test_every_alert_is_complete(alert: Alert):
    """Name, `for`, severity, and the three annotations; the summary is one sentence without values."""
    rule = alert.rule
    annotations = rule["annotations"]

    assert re.fullmatch(r"Infscale([A-Z][a-z]+)+", alert.name)
    assert seconds(rule["for"]) >= 60
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert re.fullmatch(r"[A-Z][^{}.]*\.", annotations["summary"])
    assert "$labels." in annotations["description"]
    assert "$value" not in re.sub(
        r"\{\{ \$value \| humanize(Duration|Percentage)? \}\}", "", annotations["description"]
    )
    assert annotations["runbook_url"] == f"{RUNBOOK_BASE}{alert.name}.md"


@EACH
def test_every_alert_compares(alert: Alert):
    """An alert without a condition fires for ever: each side of an `or` compares, or says that something is absent."""
    assert all(is_condition(side) for side in sides(promql.parse(alert.expr)))


def sides(expression: promql.Expr) -> list[promql.Expr]:
    """What an `or` at the top joins."""
    if isinstance(expression, promql.ParenExpr):
        return sides(expression.expr)
    if isinstance(expression, promql.BinaryExpr) and str(expression.op) == "or":
        return sides(expression.lhs) + sides(expression.rhs)
    return [expression]


def is_condition(expression: promql.Expr) -> bool:
    """Whether an expression has a result in some states of the world only."""
    if isinstance(expression, promql.Call) and expression.func.name == "absent":
        return True
    if isinstance(expression, promql.BinaryExpr) and str(expression.op) in labels.COMPARISONS:
        return True
    return any(is_condition(child) for child in children(expression))


@EACH
def test_labels_of_templates_survive_the_expression(alert: Alert):
    """A label that a template names is one of the result; one that only some results have stands behind `with`."""
    tree = promql.parse(alert.expr)
    some, all_ = labels.ever(tree), labels.always(tree)
    assert some is not None
    assert all_ is not None
    description = alert.rule["annotations"]["description"]
    values = " ".join(alert.rule["labels"].values())
    unguarded = re.sub(r"\{\{ with .*?\{\{ end \}\}", "", description, flags=re.DOTALL)

    assert used(description) | used(values) <= some
    assert used(unguarded) <= all_


def used(template: str) -> set[str]:
    """The labels that a template names."""
    return set(re.findall(r"\$labels\.(\w+)", template))


@pytest.mark.parametrize("path", ALERT_FILES, ids=lambda path: path.stem)
def test_every_metric_exists(path: Path):
    """Each series of the alerts is in the catalogue, recorded by a rule, or listed as another's."""
    known = set(labels.own()) | set(labels.FOREIGN) | set(recorded())
    names = {found.name for rule in rules_of(path) for found in labels.selectors(promql.parse(rule["expr"]))}

    assert names - known == set()


def test_recorded_names_tell_the_labels():
    """The level, before the first colon, of each name that the alerts' own rules record: the labels of the series."""
    for rule in (rule for path in ALERT_FILES for rule in rules_of(path) if "record" in rule):
        assert labels.always(promql.parse(rule["expr"])) == labels.LEVELS[rule["record"].partition(":")[0]], rule[
            "record"
        ]


@pytest.mark.parametrize("path", ALERT_FILES, ids=lambda path: path.stem)
def test_ranges_are_off_the_grid(path: Path):
    """Prometheus 2 and 3 take the same samples of a range that is no multiple of the scrape interval."""
    found = [
        text
        for rule in rules_of(path)
        for text in re.findall(r"\[(\w+)(?::\w+)?\]", rule["expr"])
        if seconds(text) % GRID_S == 0
    ]

    assert found == []


def rules_of(path: Path) -> list[dict[str, Any]]:
    """The rules of a file."""
    return [rule for group in groups(path) for rule in group["rules"]]


def test_the_files_are_short():
    """A person reads a file of alerts at once."""
    assert [path.name for path in ALERT_FILES if len(path.read_text(encoding="utf-8").splitlines()) > 300] == []


@EACH
def test_the_runbook_is_of_this_alert(alert: Alert):
    """It exists, names the alert in its title, and has the same four parts as the others."""
    text = alert.runbook.read_text(encoding="utf-8")

    assert text.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "What it means",
        "How to look",
        "What to do",
        "What it is not",
    ]
    assert f"Severity `{alert.rule['labels']['severity']}`, after `{alert.rule['for']}`" in text
    assert f"`rules/{alert.file.name}`" in text


@EACH
def test_queries_of_the_runbook_work(alert: Alert):
    """Each query is PromQL over series that there are; commands that need a cluster say so on the line before."""
    text = alert.runbook.read_text(encoding="utf-8")
    queries = re.findall(r"^ *```promql\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    known = set(labels.own()) | set(labels.FOREIGN) | set(recorded())

    assert {found.name for query in queries for found in labels.selectors(promql.parse(query))} <= known
    for name in re.findall(r"`(\w+:\w+:\w+)`", text):
        assert name in known, name
    assert queries or "```sh" in text
    lines = text.splitlines()
    assert all(
        lines[at - 1].strip() == "<!-- needs a cluster -->" for at, line in enumerate(lines) if line.strip() == "```sh"
    )


def test_no_runbook_is_without_an_alert():
    """The pages are those of the alerts, and the index has each of them once."""
    names = {alert.name for alert in ALERTS}
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \|", index, re.MULTILINE)

    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == names
    assert sorted(rows) == sorted((alert.name, alert.name, alert.rule["labels"]["severity"]) for alert in ALERTS)
