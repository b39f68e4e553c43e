"""k8s/components/rules is made of rules/: committed equals generated, and what kustomize builds of it is the rules."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml

from tests.rules.promtool import promtool
from tools.prometheus_rule import COMPONENT, RULES, component, rule_files


def test_committed_equals_generated() -> None:
    """Every file, and no other."""
    committed = {path.name: path.read_text(encoding="utf-8") for path in COMPONENT.iterdir()}
    assert committed == component(), "run: python tools/prometheus_rule.py"


def test_each_object_holds_its_file() -> None:
    """The spec of a PrometheusRule is the rule file, to the last blank of an expression; tests are not among them."""
    for path in rule_files():
        made = yaml.safe_load((COMPONENT / path.name).read_text(encoding="utf-8"))
        assert (made["apiVersion"], made["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
        assert made["metadata"]["name"] == f"infscale-{path.stem}"
        assert made["spec"] == yaml.safe_load(path.read_text(encoding="utf-8"))
    assert not [name for name in component() if "test" in name]
    assert {path.name for path in RULES.glob("*.yaml")} - set(component()) == {
        path.name for path in RULES.glob("*test*.yaml")
    }


def test_kustomize_builds_rules_that_promtool_takes(tmp_path: Path) -> None:
    """An overlay with the component gives all rules, which promtool finds right."""
    overlay = {"components": [os.path.relpath(COMPONENT, tmp_path.resolve())]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    built = subprocess.run(["kubectl", "kustomize", tmp_path], stdout=subprocess.PIPE, check=True, timeout=60).stdout
    objects = list(yaml.safe_load_all(built))
    assert {found["metadata"]["name"] for found in objects} == {f"infscale-{path.stem}" for path in rule_files()}
    found = tmp_path / "found.yaml"
    found.write_text(yaml.safe_dump({"groups": [group for made in objects for group in made["spec"]["groups"]]}))
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", found)
    assert done.returncode == 0, done.stdout
