"""Files for `promtool test rules` out of stories and the core's numbers, and promtool itself."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.rules.core_values import NAMES, Values, core_values
from tests.rules.story import NAMESPACE, STEP_S, Story, series
from tools.prometheus_rule import rule_files

LIMIT_S = 120.0

RECORDED = f'{{__name__=~"{"|".join(NAMES)}"}}'
"""All series that the core has a number for."""

_SAMPLE = re.compile(r"\{[^}]*\} \S+?(?=,|$)")


def recording_files() -> list[Path]:
    """The files of recording rules alone."""
    return [path for path in rule_files() if not path.name.startswith("alerts")]


@cache
def numbers(story: Story) -> tuple[Values, ...]:
    """The core's numbers at each step."""
    return tuple(core_values(story))


def group_of(stories: Sequence[Story], steps: Iterable[int]) -> dict[str, Any]:
    """One group of tests: every series of the stories, and all that is recorded of them at each of these steps."""
    values = {story.name: numbers(story) for story in stories}
    return {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": key, "values": told} for story in stories for key, told in series(story)],
        "promql_expr_test": [
            {
                "expr": RECORDED,
                "eval_time": f"{step * STEP_S}s",
                "exp_samples": [
                    {"labels": labelled(recorded, story), "value": value}
                    for story, steps_of in values.items()
                    for recorded, value in steps_of[step].items()
                ],
            }
            for step in steps
        ],
    }


def labelled(recorded: str, workload: str) -> str:
    """A recorded name with the labels of a workload."""
    name, _, more = recorded.partition("{")
    return f'{name}{{workload_namespace="{NAMESPACE}",workload="{workload}"{"," + more if more else "}"}'


def write(path: Path, groups: Sequence[dict[str, Any]], rules: Sequence[Path]) -> Path:
    """A file that promtool takes; JSON is YAML."""
    content = {
        "rule_files": [str(rule) for rule in rules],
        "evaluation_interval": f"{STEP_S}s",
        "group_eval_order": ["infscale-targets", "infscale-workload", "infscale-fleet"],
        "tests": groups,
    }
    path.write_text(json.dumps(content))
    return path


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool; both outputs are in stdout."""
    return subprocess.run(
        ["promtool", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def differences(output: str) -> str:
    """What promtool expected and did not get, and what it got instead; its own words list every series of a name."""
    lines, when = [], ""
    told: dict[str, set[str]] = {}
    for line in output.splitlines():
        words = line.strip()
        if words.startswith("expr:"):
            when = words.rpartition("time: ")[2].rstrip(",")
        elif words.startswith(("exp:", "got:")):
            told[words[:3]] = set(_SAMPLE.findall(words))
            if words.startswith("got:"):
                lines += [f"at {when} expected {sample}" for sample in sorted(told["exp"] - told["got"])]
                lines += [f"at {when} got {sample}" for sample in sorted(told["got"] - told["exp"])]
    return "\n".join(lines[:20]) or output[-2000:]
