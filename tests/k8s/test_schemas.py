"""Every kustomization builds, what it builds is valid, and a typo in it would not be."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.manifests import (
    BUILDS,
    COMPONENTS,
    COMPOSED,
    EXAMPLES,
    K8S,
    Object,
    build,
    documented,
    load,
    name_of,
    walk,
)
from tests.k8s.schemas import (
    FOLDER,
    NEWEST,
    OLDEST,
    TOLERANCE,
    built_in,
    check,
    faults,
    ours,
    published,
    validators,
)

FREE = {"labels", "annotations", "matchLabels", "data", "limits", "requests", "nodeSelector", "podLabels"}
"""Maps whose keys are anybody's own: a typo in them is no matter of a schema."""


@pytest.mark.parametrize("name", BUILDS)
def test_objects_are_valid(name: str) -> None:
    """It builds, and each object holds against Kubernetes 1.29 and the newest, or against our own schema."""
    objects = build(name)
    assert objects
    assert [fault for obj in objects for fault in check(obj)] == []


@pytest.mark.parametrize("name", BUILDS)
def test_objects_hold_against_published_crds(name: str, crds: Path) -> None:
    """And against the full CRDs of their projects, where they are given."""
    assert [fault for obj in build(name) for fault in check(obj, crds)] == []


def test_other_manifests_hold_against_published_crds(crds: Path) -> None:
    """So do the manifests of the documentation, and those that a user takes instead of a component's."""
    assert [fault for obj in others() for fault in check(obj, crds)] == []


def test_every_component_is_built() -> None:
    """Each component is part of a build: by an example, or by a composition in the tests."""
    used = {component for _, components in COMPOSED.values() for component in components}
    folders = [K8S / name for name in (*EXAMPLES, *(f"components/{name}" for name in COMPONENTS))]
    for folder in folders:
        (kustomization,) = load((folder / "kustomization.yaml").read_text())
        used |= {Path(path).name for path in kustomization.get("components", ())}
    assert sorted(set(COMPONENTS) - used) == []


def test_every_file_is_used() -> None:
    """Nothing lies about in k8s/: each YAML file is named by a kustomization beside it, or is a snippet or values."""
    named: set[Path] = set()
    for path in K8S.rglob("kustomization.yaml"):
        (kustomization,) = load(path.read_text())
        told: list[Any] = [*kustomization.get("resources", ()), *kustomization.get("configurations", ())]
        told += [patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch]
        for generator in kustomization.get("configMapGenerator", ()):
            told += [file.rpartition("=")[2] for file in generator.get("files", ())]
        named |= {path, *(path.parent / name for name in told)}
    others = {path for path in K8S.rglob("*.yaml") if path not in named and "snippets" not in path.parts}
    alternatives = {"adapter-values.yaml", "triggerauthentication-basic.yaml"}
    assert {path.relative_to(K8S).as_posix() for path in others if path.name not in alternatives} == set()


def others() -> list[Object]:
    """The manifests that no build has: those of the documentation, and alternatives to a component's own."""
    basic = K8S / "components/trigger-authentication/triggerauthentication-basic.yaml"
    return [obj for _, obj in documented()] + load(basic.read_text())


def test_other_manifests_are_valid() -> None:
    """A manifest of the documentation, or one that a user takes instead of another, is valid, too."""
    assert [fault for obj in others() for fault in check(obj)] == []


def kinds() -> dict[tuple[str, str], Object]:
    """The largest object of each kind."""
    found: dict[tuple[str, str], Object] = {}
    for obj in (*others(), *(obj for name in BUILDS for obj in build(name))):
        key = (obj["apiVersion"], obj["kind"])
        if key not in found or len(str(obj)) > len(str(found[key])):
            found[key] = obj
    return found


def typos(obj: Object, free: frozenset[str] = frozenset()) -> Iterator[tuple[str, Object]]:
    """Copies of an object, each with one key misspelt: every key that a schema can know; of a list, the first one's."""
    for path, node in walk(obj):
        if not isinstance(node, dict) or FREE & set(map(str, path)) or free & set(map(str, path[1:])):
            continue
        if any(isinstance(step, int) and step > 0 for step in path):
            continue
        if path == ("spec", "selector") and obj["kind"] == "Service":
            continue
        for key in node:
            wrong = copy.deepcopy(obj)
            place: Any = wrong
            for step in path:
                place = place[step]
            place[key + "x"] = place.pop(key)
            yield ".".join(map(str, (*path, key))), wrong


def test_a_typo_in_any_key_of_any_kind_is_caught() -> None:
    """Each key of each kind, misspelt, is an error by the schemas that always run."""
    missed = []
    for obj in kinds().values():
        validator = list(validators(obj).values())[-1]
        missed += [f"{name_of(obj)}: {where}" for where, wrong in typos(obj) if validator.is_valid(wrong)]
    assert missed == []


def test_a_typo_is_caught_by_published_crds(crds: Path) -> None:
    """The same by the CRDs alone; a trigger's metadata is a free map to KEDA, and an object's own is not a CRD's."""
    known = {key: obj for key, obj in kinds().items() if key in published(crds)}
    assert known
    missed = [
        f"{name_of(obj)}: {where}"
        for key, obj in known.items()
        for where, wrong in typos(obj, frozenset({"metadata"}))
        if not where.startswith("metadata.") and published(crds)[key].is_valid(wrong)
    ]
    assert missed == []


def test_our_schemas_hold_exactly_what_is_used() -> None:
    """No schema has a field, or is for a kind, that no manifest uses: they stay small, and say what we rely on."""
    objects = [*others(), *(obj for name in BUILDS for obj in build(name))]
    for key, validator in ours().items():
        mine = [obj for obj in objects if (obj["apiVersion"], obj["kind"]) == key]
        used = {tuple(step for step in path if isinstance(step, str)) for obj in mine for path, _ in walk(obj) if path}
        assert sorted(set(fields(validator.schema)) - used) == [], key


def fields(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The fields that a schema knows, as paths without places in lists."""
    for name, one in schema.get("properties", {}).items():
        yield (*path, name)
        yield from fields(one, (*path, name))
    for one in (*schema.get("oneOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from fields(one, path)


def test_versions_are_those_promised() -> None:
    """From 1.29, where native sidecars begin, to the newest; what has a `tolerance` from 1.33, which 1.29 lacks."""
    assert (OLDEST, TOLERANCE) == ("1.29", "1.33")
    assert tuple(map(int, NEWEST.split("."))) >= (1, 37)
    follower = next(obj for obj in build("examples/tolerance") if obj["kind"] == "HorizontalPodAutoscaler")
    validator = built_in(follower["apiVersion"], follower["kind"], OLDEST)
    assert "'tolerance' was unexpected" in "".join(faults(follower, validator, OLDEST))


def test_schemas_are_one_a_kind() -> None:
    """A file's name is its kind's."""
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {kind.lower() for _, kind in ours()}
