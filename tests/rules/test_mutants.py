"""Each of many wrong rules fails a test of rules/: what the tests do not see, they do not hold."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.rules.mutants import BY_HAND, BY_STORY, FLEET, LATENCY, WORKLOAD, Mutant
from tests.rules.promtool import differences, group_of, promtool, recording_files, write
from tests.rules.scenarios import STEPS, pods, scenarios
from tests.rules.story import Story
from tools.prometheus_rule import RULES

FRACTIONS = Story("fractions", pods("fractions", *["0*2 silent"] * 3, *["starting"] * 3), STEPS, target=1.1)
"""3 * 1.1 is 3.3000000000000003 in float64: a thousandth more, far from the tolerance."""


STORIES = {story.name: story for story in (*(scenario.story for scenario in scenarios()), FRACTIONS)}


def mutated(folder: Path, mutant: Mutant) -> None:
    """The rule files with the change, in a folder."""
    for path in recording_files():
        text = path.read_text(encoding="utf-8")
        (folder / path.name).write_text(mutant.apply(text) if path.name == mutant.file else text, encoding="utf-8")


def find(folder: Path, mutant: Mutant) -> subprocess.CompletedProcess[str]:
    """What the story that tells of a mutant says of the rules in the folder, looked at step by step."""
    group = group_of([STORIES[mutant.test]], range(STEPS))
    return promtool("test", "rules", write(folder / "test.json", [group], [Path(WORKLOAD)]))


def test_the_stories_pass(tmp_path: Path) -> None:
    """Without a change they do, so that it is the change that they find."""
    (tmp_path / WORKLOAD).write_text((RULES / WORKLOAD).read_text(encoding="utf-8"))
    groups = [group_of(list(STORIES.values()), range(STEPS))]
    done = promtool("test", "rules", write(tmp_path / "test.json", groups, [Path(WORKLOAD)]))
    assert done.returncode == 0, differences(done.stdout)


@pytest.mark.parametrize("mutant", BY_STORY, ids=lambda mutant: mutant.name)
def test_the_core_finds(mutant: Mutant, tmp_path: Path) -> None:
    """A rule that differs from the core in one place."""
    mutated(tmp_path, mutant)
    done = find(tmp_path, mutant)
    assert done.returncode == 1, done.stdout
    assert "exp:" in done.stdout, done.stdout[:2000]


@pytest.mark.parametrize("mutant", BY_HAND, ids=lambda mutant: mutant.name)
def test_the_written_tests_find(mutant: Mutant, tmp_path: Path) -> None:
    """A rule that differs from what people wrote down in one place."""
    mutated(tmp_path, mutant)
    name = "latency_test.yaml" if mutant.file == LATENCY else "fleet_test.yaml"
    written = yaml.safe_load((RULES / name).read_text(encoding="utf-8"))
    groups = [group for group in written["tests"] if group["name"] == mutant.test]
    test = tmp_path / "test.json"
    test.write_text(json.dumps({**written, "tests": groups}))
    done = promtool("test", "rules", test)
    assert done.returncode == 1, done.stdout
    assert "exp:" in done.stdout or "err:" in done.stdout, done.stdout[:2000]


def test_every_rule_file_is_changed_somewhere() -> None:
    """All files with rules that compute something have mutants, and each changes something."""
    assert {mutant.file for mutant in BY_STORY + BY_HAND} == {WORKLOAD, FLEET, LATENCY}
    for mutant in BY_STORY + BY_HAND:
        before = (RULES / mutant.file).read_text(encoding="utf-8")
        assert yaml.safe_load(mutant.apply(before)) != yaml.safe_load(before), mutant.name
