"""docs/options.md: every option of a policy has its row, and the HPA's fields in it are fields of our HPAs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infscale.core.scaling import MetricName
from infscale.core.settings import KEYS
from tests.docs.fences import ROOT
from tests.k8s.manifests import build

ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs/options.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ")
]
"""Each row: infscale, HPA, KEDA, Knative."""

HPA_FIELDS = sorted(
    {word for row in ROWS for word in re.findall(r"`((?:behavior|m\w*Replicas|metrics)[\w.\[\]]*)`", row[1])}
)
KEDA_FIELDS = (
    "minReplicaCount",
    "maxReplicaCount",
    "cooldownPeriod",
    "pollingInterval",
    "triggers[].metadata.threshold",
)


@pytest.mark.parametrize("option", [*KEYS, *MetricName])
def test_option_has_a_row(option):
    """Each key and each metric of the grammar stands in the first column."""
    assert any(re.search(rf"`{option}\b", row[0]) for row in ROWS)


def has(node: Any, path: list[str]) -> bool:
    """Whether a path leads to a value; `name[]` is any element of a list."""
    if not path:
        return True
    name = path[0].removesuffix("[]")
    if not isinstance(node, dict) or name not in node:
        return False
    nodes = node[name] if path[0].endswith("[]") else [node[name]]
    return any(has(inner, path[1:]) for inner in nodes)


@pytest.mark.parametrize("field", [field for field in HPA_FIELDS if ".resource." not in field])
def test_hpa_field_is_one(field):
    """Each HPA field of the second column is set by our own HPA, which holds against Kubernetes' schema."""
    assert any(
        has(obj["spec"], field.split(".")) for obj in build("examples/tolerance") if obj["kind"].startswith("Hor")
    )


@pytest.mark.parametrize("field", KEDA_FIELDS)
def test_keda_field_is_one(field):
    """The KEDA fields that the page names and we set are set by our own ScaledObject."""
    text = (ROOT / "docs/options.md").read_text(encoding="utf-8")
    scaled = [obj for obj in build("examples/vllm-zero") if obj["kind"] == "ScaledObject"]
    assert field in text
    assert any(has(obj["spec"], field.split(".")) for obj in scaled)
