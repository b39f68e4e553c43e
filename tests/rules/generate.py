"""Write rules/workload_test.yaml: the scenarios with the core's numbers, for promtool and for a person.

python -m tests.rules.generate
"""

from __future__ import annotations

import logging
from itertools import groupby

from tests.rules.core_values import core_values
from tests.rules.promtool import RECORDED, labelled
from tests.rules.scenarios import Scenario, scenarios
from tests.rules.story import STALE, STEP_S, number, series
from tools.prometheus_rule import RULES

PAGE = RULES / "workload_test.yaml"

INTRODUCTION = f"""\
# What workload.yaml records, for workloads told step by step. The numbers are the decision core's own.
# Made by tests/rules/generate.py from tests/rules/scenarios.py: `python -m tests.rules.generate`.
# yamllint disable rule:line-length
rule_files:
  - workload.yaml
evaluation_interval: {STEP_S}s
tests:
"""


def page() -> str:
    """The whole file."""
    return INTRODUCTION + "\n".join(_group(scenario) for scenario in scenarios())


def _group(scenario: Scenario) -> str:
    story, values = scenario.story, list(core_values(scenario.story))
    lines = [*_comment(f"{story.name}: {scenario.moral}"), f"  - name: {story.name}", f"    interval: {STEP_S}s"]
    lines.append("    input_series:")
    for name, told in series(story):
        lines += [f"      - series: '{name}'", f"        values: '{shortened(told)}'"]
    lines.append("    promql_expr_test:")
    for position, step in enumerate(scenario.steps):
        expression = f"&all '{RECORDED}'" if position == 0 else "*all"
        lines += [f"      - expr: {expression}", f"        eval_time: {step * STEP_S}s"]
        samples = [
            f"          - {{labels: '{labelled(recorded, story.name)}', value: {number(value)}}}"
            for recorded, value in values[step].items()
        ]
        lines += ["        exp_samples:", *samples] if samples else ["        exp_samples: []"]
    return "\n".join(lines) + "\n"


def _comment(words: str) -> list[str]:
    lines, line = [], "  #"
    for word in words.split():
        if len(line) + 1 + len(word) > 118:
            lines.append(line)
            line = "  #"
        line += f" {word}"
    return [*lines, line]


def shortened(values: str) -> str:
    """Values with runs as promtool writes them: `4+0x9` is ten times 4, `_x3` three times nothing."""
    words = []
    for word, run in groupby(values.split()):
        times = len(list(run))
        if word == STALE or times == 1:
            words += [word] * times
        else:
            words.append(f"_x{times}" if word == "_" else f"{word}+0x{times - 1}")
    return " ".join(words)


if __name__ == "__main__":
    logging.getLogger("infscale").addHandler(logging.NullHandler())  # replicas of the scenarios fall silent: no news
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(f"wrote rules/{PAGE.name}: {len(scenarios())} scenarios")
