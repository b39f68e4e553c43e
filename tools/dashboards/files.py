"""What is written where: each dashboard as JSON, and as a ConfigMap for Grafana's sidecar, with a kustomization."""

from __future__ import annotations

import json
from pathlib import Path

from tools.dashboards import activator, decision, drain, fleet, replica
from tools.dashboards.builder import Json

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "dashboards"
COMPONENT = ROOT / "k8s" / "components" / "dashboards"

KUSTOMIZATION = """\
# The dashboards, for the sidecar of Grafana that loads ConfigMaps with the label grafana_dashboard (that of
# kube-prometheus-stack). Made by `python -m tools.dashboards`; change tools/dashboards.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources:
"""

_CONFIG_MAP = """\
# Made by `python -m tools.dashboards`; change tools/dashboards.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: infscale
    app.kubernetes.io/component: dashboards
    grafana_dashboard: "1"
data:
  # yamllint disable rule:line-length
  {name}.json: |
"""


def dashboards() -> list[Json]:
    """Every dashboard, in the order in which one looks at them."""
    return [fleet.build(), decision.build(), replica.build(), drain.build(), activator.build()]


def files() -> dict[Path, str]:
    """The content of every file that is made."""
    made: dict[Path, str] = {}
    resources = ""
    for each in dashboards():
        name = each["uid"]
        text = json.dumps(each, indent=2, ensure_ascii=False) + "\n"
        made[FOLDER / f"{name}.json"] = text
        indented = "".join(f"    {line}\n" for line in text.splitlines())
        made[COMPONENT / f"{name}.yaml"] = _CONFIG_MAP.format(name=name) + indented
        resources += f"  - {name}.yaml\n"
    made[COMPONENT / "kustomization.yaml"] = KUSTOMIZATION + resources
    return made
