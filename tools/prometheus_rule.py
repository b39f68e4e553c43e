"""Write k8s/components/rules from rules/: `python tools/prometheus_rule.py`. A test holds the component to it.

A PrometheusRule of the Prometheus operator for each rule file, so that one of them can be left out or patched: its
`spec` is the file, comments and all.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "rules"
COMPONENT = ROOT / "k8s" / "components" / "rules"

_OBJECT = """\
# Made by tools/prometheus_rule.py from rules/{source}; change it there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: infscale-{name}
  labels:
    app.kubernetes.io/name: infscale
    app.kubernetes.io/component: rules
    release: kube-prometheus-stack
spec:
"""

_KUSTOMIZATION = """\
# Made by tools/prometheus_rule.py from rules/; change it there.
#
# The rules as PrometheusRules of the Prometheus operator; `release` sets the label that kube-prometheus-stack selects
# by. infscale-targets holds an example: put the targets of your workloads in its place with a patch.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources:
"""


def rule_files() -> list[Path]:
    """Every rule file; what has `test` in its name is for promtool alone."""
    return sorted(path for path in RULES.glob("*.yaml") if "test" not in path.name)


def component() -> dict[str, str]:
    """Each file of the component, by its name."""
    files = {path.name: rule_object(path) for path in rule_files()}
    names = "".join(f"  - {name}\n" for name in files)
    return {**files, "kustomization.yaml": _KUSTOMIZATION + names}


def rule_object(path: Path) -> str:
    """One PrometheusRule: the rule file, two columns to the right."""
    lines = path.read_text(encoding="utf-8").splitlines()
    body = "".join(f"  {line}\n" if line else "\n" for line in lines)
    return _OBJECT.format(source=path.name, name=path.stem) + body


def main() -> None:
    """Write the component, and take away what is no longer in rules/."""
    COMPONENT.mkdir(parents=True, exist_ok=True)
    files = component()
    for old in COMPONENT.glob("*.yaml"):
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        (COMPONENT / name).write_text(text, encoding="utf-8", newline="\n")
    print(f"wrote {COMPONENT.relative_to(ROOT)}: {len(files)} files")


if __name__ == "__main__":
    main()
