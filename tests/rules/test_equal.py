"""The rules record the decision core's own numbers: for random workloads, and for the committed ones."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.rules import generate
from tests.rules.core_values import NAMES, PROPOSED
from tests.rules.promtool import differences, group_of, numbers, promtool, recording_files, write
from tests.rules.random_stories import random_stories
from tools.prometheus_rule import RULES

SEED, STORIES, STEPS, BATCH = 20, 160, 28, 40

KINDS = (
    *("absent", "starting", "serving", "saturated", "silent", "lost", "draining", "draining_lost", "missing"),
    *("twice", "gaps", "held", "told", "deployment", "statefulset", "published", "set", "rise", "fall"),
)


def test_random_workloads(tmp_path: Path) -> None:
    """160 workloads for seven minutes, looked at every 30 s: every recorded number is the core's, to the last bit."""
    stories = random_stories(SEED, STORIES, STEPS)
    groups = [group_of(stories[at : at + BATCH], range(1, STEPS, 2)) for at in range(0, STORIES, BATCH)]
    done = promtool("test", "rules", write(tmp_path / "random.json", groups, recording_files()))
    assert done.returncode == 0, differences(done.stdout)


def test_the_random_workloads_are_of_all_kinds() -> None:
    """Holes, drains, saturation, double scrapes, gaps, held requests, counts from everywhere, rises and falls."""
    stories = random_stories(SEED, STORIES, STEPS)
    seen: Counter[str] = Counter()
    for story in stories:
        seen.update({look.kind for pod in story.pods for look in pod.looks})
        seen.update(["twice"] * any(pod.again is not None for pod in story.pods))
        seen.update(["gaps"] * bool(story.gaps) + ["held"] * bool(story.held) + ["told"] * bool(story.recommended_spec))
        seen.update([story.owner or "no owner", "published" if story.published else "set"])
        told = numbers(story)
        seen.update({name for values in told for name in values})
        proposals = [values[PROPOSED] for values in told if PROPOSED in values]
        changes = {(after > before) - (after < before) for before, after in pairwise(proposals)}
        seen.update(["rise"] * (1 in changes) + ["fall"] * (-1 in changes))
        seen.update(["missing"] * any(values.get("workload:infscale_missing_replicas:count") for values in told))
    assert {kind: seen[kind] for kind in (*KINDS, *NAMES[:-1]) if seen[kind] < 10} == {}


def test_committed_scenarios_are_the_cores() -> None:
    """rules/workload_test.yaml is what the generator makes of the scenarios today."""
    assert generate.PAGE.read_text(encoding="utf-8") == generate.page(), "run: python -m tests.rules.generate"


@pytest.mark.parametrize("name", ["workload_test.yaml", "fleet_test.yaml", "latency_test.yaml"])
def test_committed_tests_pass(name: str) -> None:
    """As a person runs them: promtool test rules rules/*_test.yaml."""
    done = promtool("test", "rules", RULES / name)
    assert done.returncode == 0, differences(done.stdout)
