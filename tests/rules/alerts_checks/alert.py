"""The alerts of rules/alerts-*.yaml and their promtool tests, read as data. Used by tests/rules/test_alerts.py."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rules.expressions import groups
from tools.prometheus_rule import rule_files

ROOT = Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests" / "rules" / "alerts"
RUNBOOKS = ROOT / "docs" / "runbooks"
RUNBOOK_BASE = "docs/runbooks/"
"""What every runbook_url begins with; whoever publishes the pages replaces it."""

ALERT_FILES = [path for path in rule_files() if path.name.startswith("alerts-")]


@dataclass(frozen=True)
class Alert:
    """One alert: its rule as it stands in the file, and where its tests are."""

    name: str
    rule: dict[str, Any]
    file: Path

    @property
    def expr(self) -> str:
        """Its expression."""
        return str(self.rule["expr"])

    @property
    def tests(self) -> Path:
        """Its promtool tests."""
        return TESTS / f"{self.name}.yaml"

    @property
    def runbook(self) -> Path:
        """The page for the person on call."""
        return RUNBOOKS / f"{self.name}.md"


def alerts() -> list[Alert]:
    """Every alert, in the order of the files."""
    return [
        Alert(rule["alert"], rule, path)
        for path in ALERT_FILES
        for group in groups(path)
        for rule in group["rules"]
        if "alert" in rule
    ]


@functools.cache
def recorded() -> dict[str, list[dict[str, Any]]]:
    """The recording rules of all files, by the name that they record."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in rule_files():
        for group in groups(path):
            for rule in group["rules"]:
                if "record" in rule:
                    found.setdefault(rule["record"], []).append(rule)
    return found


def load_tests(path: Path) -> dict[str, Any]:
    """A promtool test file with its rule files as absolute paths, so that a changed copy may stand elsewhere."""
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    content["rule_files"] = [str((path.parent / name).resolve()) for name in content["rule_files"]]
    return content


def checks(group: dict[str, Any]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The instants of a group of tests in order: (seconds, alerts that must fire then)."""
    found = ((seconds(check["eval_time"]), check.get("exp_alerts", [])) for check in group["alert_rule_test"])
    return iter(sorted(found, key=lambda check: check[0]))


def seconds(duration: str) -> int:
    """A duration as Prometheus writes it."""
    factors = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    return sum(int(number) * factors[unit] for number, unit in re.findall(r"(\d+)([smhd])", duration))
