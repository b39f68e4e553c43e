"""What k8s/ builds: each kustomization once a session, and ways to walk the objects.

A kustomization that ships is an example; components that no example uses are composed here with what they need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.docs.fences import fences, pages

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
Object = dict[str, Any]

EXAMPLES = sorted(path.parent.relative_to(K8S).as_posix() for path in (K8S / "examples").rglob("kustomization.yaml"))
COMPONENTS = sorted(path.parent.name for path in (K8S / "components").glob("*/kustomization.yaml"))

COMPOSED: Mapping[str, tuple[str, Sequence[str]]] = {
    "retirement by exec": ("vllm", ("sidecar", "drain-exec", "recommender", "recommender-retire", "rbac-pods-exec")),
    "retirement of a StatefulSet": (
        "../base",
        ("recommender", "recommender-retire", "rbac-pods-proxy", "keda-retire", "workload-statefulset"),
    ),
    "retirement of groups": (
        "vllm-multinode",
        (
            *("sidecar", "drain-http", "prometheus-annotations", "leader-template"),
            *("recommender", "recommender-retire", "rbac-pods-proxy", "keda-retire", "workload-leaderworkerset"),
        ),
    ),
    "HPA of a StatefulSet": ("../base", ("recommender", "hpa-tolerance", "workload-statefulset")),
    "scaling of a StatefulSet": ("../base", ("recommender", "recommender-apply", "workload-statefulset")),
    "scaling of groups": ("../base", ("recommender", "recommender-apply", "workload-leaderworkerset")),
}
"""Further builds, for the components that no example uses: the engine, and the components in their order."""

BUILDS = (*EXAMPLES, *COMPOSED)


def load(text: str) -> list[Object]:
    """The documents of a YAML text, but for the empty ones."""
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


@cache
def build(name: str) -> tuple[Object, ...]:
    """The objects of one of `BUILDS`, in kustomize's order. Whoever changes one has to copy it."""
    if name in COMPOSED:
        engine, components = COMPOSED[name]
        return compose(engine, components)
    return kustomize(K8S / name)


def kustomize(folder: Path) -> tuple[Object, ...]:
    """The objects that `kubectl kustomize` makes of a folder."""
    where = os.pathsep.join((os.environ["PATH"], str(Path(sys.executable).parent)))
    kubectl = shutil.which("kubectl", path=where)
    assert kubectl, "no kubectl: `make test` brings one"
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    assert "Warning" not in done.stderr, f"{folder}: {done.stderr}"  # as of fields that kustomize will drop
    return tuple(load(done.stdout))


def compose(
    engine: str, components: Sequence[str], *, settings: Mapping[str, str] | None = None, patch: str = ""
) -> tuple[Object, ...]:
    """Build an engine of k8s/engines with components, as a user's own kustomization does.

    Args:
        engine: the folder's name in k8s/engines; `../base` for none.
        components: their names, in the order in which they are applied.
        settings: values of `infscale-settings` to set.
        patch: YAML to merge into the engine's Deployment.
    """
    with tempfile.TemporaryDirectory() as folder:

        def relative(path: str) -> str:
            return os.path.relpath(K8S / path, os.path.realpath(folder))

        kustomization: dict[str, Any] = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "inference",
            "resources": [relative(f"engines/{engine}")],
            "components": [relative(f"components/{name}") for name in components],
            "images": [{"name": "infscale", "newTag": "0.1.0"}],
        }
        if settings:
            kustomization["configMapGenerator"] = [
                {
                    "name": "infscale-settings",
                    "behavior": "merge",
                    "literals": [f"{key}={value}" for key, value in settings.items()],
                    "options": {"disableNameSuffixHash": True},
                }
            ]
        if patch:
            kustomization["patches"] = [{"patch": patch, "target": {"kind": "Deployment", "name": engine}}]
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return kustomize(Path(folder))


def blocks(page: str) -> list[str]:
    """The YAML in the fences of a page of the documentation, relative to the repository."""
    return [f"{fence.text}\n" for fence in fences(page) if fence.language == "yaml"]


@cache
def documented() -> tuple[tuple[str, Object], ...]:
    """The whole manifests in the documentation, each with its page; kustomizations are not for a cluster."""
    return tuple(
        (page, document)
        for page in pages()
        for block in blocks(page)
        for document in load(block)
        if {"apiVersion", "kind"} <= document.keys() and not document["apiVersion"].startswith("kustomize.")
    )


def name_of(obj: Object) -> str:
    """`Kind/name`, for a message."""
    return f"{obj['kind']}/{obj['metadata']['name']}"


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    """The objects of some kinds."""
    return [obj for obj in objects if obj["kind"] in kinds]


def pods(objects: Sequence[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Every Pod that the objects make: whose it is, its metadata, its spec."""
    for obj in objects:
        if obj["kind"] == "Pod":
            yield name_of(obj), obj["metadata"], obj["spec"]
        elif obj["kind"] in {"Deployment", "StatefulSet", "Job"}:
            yield name_of(obj), obj["spec"]["template"]["metadata"], obj["spec"]["template"]["spec"]
        elif obj["kind"] == "InferenceService":
            yield name_of(obj), obj["spec"]["predictor"], obj["spec"]["predictor"]
        elif obj["kind"] == "LeaderWorkerSet":
            group = obj["spec"]["leaderWorkerTemplate"]
            yield name_of(obj), group["leaderTemplate"]["metadata"], group["leaderTemplate"]["spec"]
            yield f"{name_of(obj)} worker", group["workerTemplate"]["metadata"], group["workerTemplate"]["spec"]


def containers(spec: Object) -> list[Object]:
    """Every container of a Pod, init containers first."""
    return [*spec.get("initContainers", ()), *spec["containers"]]


def is_ours(container: Object) -> bool:
    """Whether a container is of infscale's image."""
    return str(container["image"]).partition(":")[0] == "infscale"


def engine_of(spec: Object) -> Object | None:
    """The engine's container; None in a Pod of another role."""
    return next((one for one in spec["containers"] if one["name"] in {"engine", "kserve-container"}), None)


def sidecar_of(spec: Object) -> Object | None:
    """The sidecar beside an engine."""
    return next((one for one in containers(spec) if is_ours(one) and one.get("args", [""])[0] == "sidecar"), None)


def engine_pods(objects: Sequence[Object]) -> list[tuple[str, Object, Object, Object, Object]]:
    """Every Pod with an engine and a sidecar: whose, metadata, spec, engine, sidecar."""
    found = []
    for whose, metadata, spec in pods(objects):
        engine, sidecar = engine_of(spec), sidecar_of(spec)
        if engine and sidecar:
            found.append((whose, metadata, spec, engine, sidecar))
    return found


def flags(words: Sequence[str], name: str) -> list[str]:
    """The values of a flag in a command line, as `--name=value` and as two words."""
    joined = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return joined + [words[at + 1] for at, word in enumerate(words[:-1]) if word == name]


def words_of(container: Object) -> list[str]:
    """All words of a container's command line and of its preStop command."""
    hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
    return [*container.get("command", ()), *container.get("args", ()), *hook]


def grace_faults(whose: str, spec: Object) -> Iterator[str]:
    """Who of a Pod counts by another grace period than the Pod's, and engines that would serve on beyond it."""
    grace = spec.get("terminationGracePeriodSeconds", 30)  # Kubernetes' own default
    for container in containers(spec):
        where, words = f"{whose} {container['name']}", words_of(container)
        for told in flags(words, "--grace"):
            if told != str(grace):
                yield f"{where}: --grace {told}, the Pod has {grace}"
        for told in flags(words, "--shutdown-timeout"):
            if not float(told) < grace:
                yield f"{where}: --shutdown-timeout {told} is not below the Pod's {grace}"


def walk(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every node of an object with its path, itself included."""
    yield path, node
    children: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from walk(child, (*path, key))


@cache
def settings(name: str) -> Mapping[str, str]:
    """The settings that a kustomization's components read: base's, and what was merged into them on the way."""
    folder = K8S / name
    (kustomization,) = load((folder / "kustomization.yaml").read_text())
    found: dict[str, str] = {}
    for resource in kustomization.get("resources", ()):
        if resource == "configmap.yaml" and folder.name == "settings":
            found |= load((folder / resource).read_text())[0]["data"]
        elif (folder / resource).is_dir():
            found |= settings(os.path.relpath(folder / resource, K8S))
    for generator in kustomization.get("configMapGenerator", ()):
        if generator["name"] == "infscale-settings":
            pairs = (literal.split("=", 1) for literal in generator["literals"])
            found |= {key: value.strip('"') for key, value in pairs}
    return found
