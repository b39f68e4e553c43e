"""YAML to paste: the snippets of k8s/snippets, put where they belong, and every YAML block of the documentation."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.docs.fences import pages
from tests.k8s.manifests import (
    K8S,
    Object,
    blocks,
    build,
    compose,
    containers,
    documented,
    engine_pods,
    flags,
    grace_faults,
    load,
    of_kind,
    words_of,
)
from tests.k8s.schemas import check
from tests.k8s.test_pods import restricted

SNIPPETS = K8S / "snippets"


@pytest.mark.parametrize("page", [page for page in pages() if blocks(page)])
def test_yaml_in_the_documentation(page: str) -> None:
    """Each block parses to something, and what is a whole manifest in it is valid."""
    assert all(load(block) for block in blocks(page))
    assert [fault for where, obj in documented() if where == page for fault in check(obj)] == []


@pytest.mark.parametrize("snippet", sorted(SNIPPETS.glob("*.yaml")), ids=lambda path: path.name)
def test_snippets_stand_in_the_guide(snippet: Path) -> None:
    """A reader finds each whole in the guide, word for word."""
    assert snippet.read_text(encoding="utf-8") in blocks("docs/kubernetes.md")


def merged(base: Any, patch: Any) -> Any:
    """A patch laid over an object as kubectl does: maps are merged, lists of named things by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in patch.items()}}
    if isinstance(base, list) and all(isinstance(one, dict) and "name" in one for one in patch):
        mine = {one["name"]: one for one in base}
        return list({**mine, **{one["name"]: merged(mine.get(one["name"]), one) for one in patch}}.values())
    return patch


def assert_sound(obj: Object) -> None:
    """An engine with the sidecar pasted in is valid, one grace period to all, and ours is confined."""
    assert check(obj) == []
    ((whose, metadata, spec, engine, sidecar),) = engine_pods([obj])
    assert metadata["labels"]["infscale.dev/workload"]
    assert list(grace_faults(whose, spec)) == []
    assert list(restricted(spec, sidecar)) == []
    assert sidecar["livenessProbe"]["httpGet"] == {"path": "/-/healthy", "port": 10048}
    assert (sidecar["readinessProbe"]["periodSeconds"], sidecar["readinessProbe"]["failureThreshold"]) == (2, 1)
    assert engine["lifecycle"]["preStop"]
    (port,) = flags(words_of(engine), "--port")
    urls = [url for one in containers(spec) for flag in ("--engine-url", "--url") for url in flags(words_of(one), flag)]
    assert set(urls) == {f"http://127.0.0.1:{port}/metrics"}
    mounts = {at["name"] for one in containers(spec) for at in one.get("volumeMounts", ())}
    assert mounts == {one["name"] for one in spec["volumes"]}
    assert [one["name"] for one in containers(spec)].count("infscale") == 1


@pytest.mark.parametrize("names", [("deployment-patch",), ("deployment-patch", "deployment-patch-exec")])
def test_patches_of_a_deployment(names: tuple[str, ...]) -> None:
    """Over a bare Deployment: with the drain through the sidecar, and with the one in the engine's container."""
    (deployment,) = of_kind(compose("vllm", ()), "Deployment")
    assert engine_pods([deployment]) == []
    for name in names:
        if name == "deployment-patch-exec":  # "instead of"
            del deployment["spec"]["template"]["spec"]["containers"][0]["lifecycle"]
        deployment = merged(deployment, load((SNIPPETS / f"{name}.yaml").read_text())[0])
    assert_sound(deployment)
    hook = engine_pods([deployment])[0][3]["lifecycle"]["preStop"]
    assert list(hook) == (["exec"] if len(names) == 2 else ["httpGet"])


def test_values_of_a_chart() -> None:
    """Each value lands in the Deployment where charts put it; the sidecar is a classic one there, and waits."""
    (values,) = load((SNIPPETS / "values.yaml").read_text())
    (deployment,) = copy.deepcopy(of_kind(compose("vllm", ()), "Deployment"))
    template = deployment["spec"]["template"]
    template["metadata"]["labels"] |= values.pop("podLabels")
    template["spec"]["terminationGracePeriodSeconds"] = values.pop("terminationGracePeriodSeconds")
    template["spec"]["containers"][0]["lifecycle"] = values.pop("lifecycle")
    template["spec"]["containers"] += values.pop("extraContainers")
    template["spec"]["volumes"] += values.pop("extraVolumes")
    assert values == {}
    assert_sound(deployment)
    sidecar = engine_pods([deployment])[0][4]
    assert sidecar["lifecycle"]["preStop"]["exec"]["command"] == ["infscale", "mark-terminating", "--wait"]


def test_snippet_of_an_inference_service() -> None:
    """Over an InferenceService of KServe that has nothing of ours yet."""
    (service,) = copy.deepcopy(of_kind(build("examples/kserve-external"), "InferenceService"))
    predictor = service["spec"]["predictor"]
    for key in (
        "initContainers",
        "terminationGracePeriodSeconds",
        "enableServiceLinks",
        "automountServiceAccountToken",
    ):
        del predictor[key]
    del predictor["containers"][0]["lifecycle"]
    predictor["volumes"] = [one for one in predictor["volumes"] if not one["name"].startswith("infscale")]
    assert_sound(merged(service, load((SNIPPETS / "inferenceservice.yaml").read_text())[0]))
