"""The schemas that k8s/ is held against, each loaded once: Kubernetes' own, our strict ones, and CRDs as published.

Kubernetes' own kinds are held against what the package kubernetes-validate brings (strict: unknown keys are errors).
For the kinds of KEDA, KServe and others tests/k8s/schemas has one file a kind, with exactly the fields that our
manifests use; embedded types (containers, behaviour) are Kubernetes' own, by `$ref: k8s#/$defs/...`. Where a folder of
CRDs is given, the same kinds are held against those, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tests.k8s.manifests import ROOT, Object

FOLDER = Path(__file__).parent / "schemas"
_PACKAGED = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"

OLDEST, TOLERANCE, NEWEST = "1.29", "1.33", kubernetes_validate.latest_version().rpartition(".")[0]
"""Native sidecars are beta and on from 1.29; the HPA's `tolerance` is a field from 1.33 on."""


def is_built_in(obj: Object) -> bool:
    """Whether a kind is Kubernetes' own."""
    group = obj["apiVersion"].rpartition("/")[0]
    return "." not in group or (group.endswith(".k8s.io") and not group.startswith(("gateway.", "inference.", "lead")))


@cache
def _registry(version: str) -> Registry[Any]:
    """Kubernetes' types, under their own address and as `k8s`."""
    definitions = json.loads((_folder(version) / "_definitions.json").read_text())
    resource = Resource.from_contents(definitions, default_specification=DRAFT202012)
    return Registry().with_resources([("k8s", resource), (definitions["$id"], resource)]).crawl()


def _folder(version: str) -> Path:
    return next(_PACKAGED.glob(f"v{version}.*-local-strict"))


@cache
def built_in(api_version: str, kind: str, version: str) -> Draft202012Validator:
    """The schema of one of Kubernetes' own kinds, strict."""
    group, _, of_group = api_version.rpartition("/")
    name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], of_group)))
    path = _folder(version) / f"{name}.json"
    assert path.exists(), f"Kubernetes {version} has no {api_version} {kind}"
    return Draft202012Validator(json.loads(path.read_text()), registry=_registry(version))


@cache
def ours() -> Mapping[tuple[str, str], Draft202012Validator]:
    """Our strict schemas, by apiVersion and kind."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        schema = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        Draft202012Validator.check_schema(schema)
        told = schema["properties"]
        found[told["apiVersion"]["const"], told["kind"]["const"]] = Draft202012Validator(
            schema, registry=_registry(NEWEST)
        )
    return found


@cache
def published(folder: Path) -> Mapping[tuple[str, str], Draft202012Validator]:
    """The schemas of the CRDs in a folder whose kinds we have a schema for, by apiVersion and kind."""
    kinds = {kind for _, kind in ours()}
    found = {}
    for path in sorted(folder.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if not any(f"\n    kind: {kind}\n" in text for kind in kinds):
            continue  # a second each, for large ones that no manifest uses
        crd = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]
        for version in crd["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            found[f"{crd['group']}/{version['name']}", crd["names"]["kind"]] = Draft202012Validator(schema)
    return found


def _strict(schema: Any) -> Any:
    """A CRD's OpenAPI schema as JSON Schema, with unknown keys refused, as the API server's strict validation does."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    told = {
        key: {name: _strict(one) for name, one in value.items()} if key == "properties" else _strict(value)
        for key, value in schema.items()
        if not key.startswith("x-kubernetes-") and key not in {"default", "description", "example", "nullable"}
    }
    if schema.get("nullable") and "type" in told:
        told["type"] = [told["type"], "null"]
    if "properties" in told and not schema.get("x-kubernetes-preserve-unknown-fields"):
        told.setdefault("additionalProperties", False)
    return told


def faults(obj: Object, validator: Draft202012Validator, source: str) -> Iterator[str]:
    """What a schema finds wrong with an object, a line each: where, what, and whose schema says so."""
    for error in validator.iter_errors(obj):
        where = ".".join(map(str, error.absolute_path)) or "(top)"
        name = f"{obj.get('kind')}/{obj.get('metadata', {}).get('name')}"
        yield f"{name}: {where}: {error.message[:300]} ({source})"


def has_tolerance(node: Any) -> bool:
    """Whether the HPA's `tolerance` is used somewhere in an object."""
    if isinstance(node, dict):
        return "tolerance" in node or any(map(has_tolerance, node.values()))
    return isinstance(node, list) and any(map(has_tolerance, node))


def validators(obj: Object) -> dict[str, Draft202012Validator]:
    """The schemas that an object is always held against, by what to call them."""
    key = (obj["apiVersion"], obj["kind"])
    if is_built_in(obj):
        versions = (TOLERANCE if has_tolerance(obj) else OLDEST, NEWEST)
        return {f"Kubernetes {version}": built_in(*key, version) for version in versions}
    assert key in ours(), f"no schema for {key} in {FOLDER.relative_to(ROOT)}: write one"
    return {"our schema": ours()[key]}


def check(obj: Object, crds: Path | None = None) -> list[str]:
    """All that is wrong with an object, by every schema that there is for it.

    Args:
        obj: an object as it goes to a cluster.
        crds: a folder of published CRDs to hold it against, too.
    """
    return _check(json.dumps(obj), crds)


@cache
def _check(text: str, crds: Path | None) -> list[str]:
    """`check` of an object as JSON, once: many builds have the same objects."""
    obj = json.loads(text)
    told = validators(obj)
    key = (obj["apiVersion"], obj["kind"])
    if crds and key in published(crds):
        told["its CRD"] = published(crds)[key]
    return [fault for source, validator in told.items() for fault in faults(obj, validator, source)]
