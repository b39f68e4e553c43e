"""docs/reference/rules.md: recorded series and alerts, from rules/*.yaml and the tables of rules/README.md."""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

from tools.prometheus_rule import RULES, rule_files
from tools.reference_pages.markdown import NONE, code, head, table

INTRODUCTION = """\
The recording rules and alerts of [rules](../../rules/README.md). The first part of a recorded name says which labels
the series has. An alert that has `workload_namespace` has `namespace` too, for routing.
"""


def page() -> str:
    """Recorded series and alerts."""
    parts = [head("Rules", "rules/*.yaml and the tables of rules/README.md", INTRODUCTION)]
    says = recorded_meanings()
    alerts = []
    for path in rule_files():
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        rules = [(group.get("interval", NONE), rule) for group in groups for rule in group["rules"]]
        names = dict.fromkeys((rule["record"], interval) for interval, rule in rules if "record" in rule)
        if names:
            rows = ([code(name), code(*labels_of(name)), interval, says[name]] for name, interval in names)
            parts += [f"## {path.name}\n", table(["series", "labels", "every", "meaning"], rows)]
        alerts += [rule for _, rule in rules if "alert" in rule]
    rows = (
        [code(a["alert"]), a["labels"]["severity"], a["for"], a["annotations"]["summary"], runbook(a)] for a in alerts
    )
    parts += ["## Alerts\n", table(["alert", "severity", "for", "it says", "runbook"], rows)]
    return "\n".join(parts)


def runbook(alert: Mapping[str, dict[str, str]]) -> str:
    """The link to an alert's page."""
    page = alert["annotations"]["runbook_url"].removeprefix("docs/")
    return f"[what to do](../{page})"


def labels_of(name: str) -> list[str]:
    """The labels of a recorded series: what its level, the part before the first colon, stands for."""
    level = name.partition(":")[0] if ":" in name else "workload"
    own = {"workload": ["workload_namespace", "workload"], "pod": ["namespace", "workload", "pod"]}
    own |= {"target": ["workload", "and all others of the target"], "layout": ["engine", "layout"]}
    own |= {"model": ["model_name"], "hpa": ["horizontalpodautoscaler"]}
    found = [label for word in level.split("_") for label in own.get(word, [word])]
    return [*dict.fromkeys(found), *(["phase"] if name == "pod:infscale_phase:group" else [])]


def recorded_meanings() -> dict[str, str]:
    """The tables of rules/README.md: each series' meaning; `:p95` after a name is that name with another end."""
    found: dict[str, str] = {}
    for line in (RULES / "README.md").read_text(encoding="utf-8").splitlines():
        cells = line.strip("| ").split(" | ")
        if len(cells) != 2 or not line.startswith("| `"):
            continue
        last = ""
        for name in re.findall(r"`([^`]+)`", cells[0]):
            last = last.rpartition(":")[0] + name if name.startswith(":") else name
            found[last] = cells[1]
    return found
