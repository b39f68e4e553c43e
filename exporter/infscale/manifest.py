"""An autoscaler that exists already, read as a policy: a HorizontalPodAutoscaler or KEDA's ScaledObject.

`--from-manifest FILE` reads what is in the repository or what `kubectl get -o yaml` and `kustomize build` print. What a
manifest has and infscale has not is told in the warnings; what cannot be read is an error with its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infscale import checks
from infscale.checks import Place
from infscale.core.checks import faults
from infscale.core.scaling import ScalePolicy
from infscale.core.settings import policy_of
from infscale.errors import ConfigError
from infscale.manifest_documents import Document, documents
from infscale.manifest_hpa import hpa_settings
from infscale.manifest_keda import scaled_object_settings
from infscale.manifest_metrics import Findings
from infscale.yaml_file import MANIFESTS, text_of

HPA, SCALED_OBJECT = "HorizontalPodAutoscaler", "ScaledObject"
_VERSIONS = {HPA: "autoscaling/v2", SCALED_OBJECT: "keda.sh/v1alpha1"}


@dataclass(frozen=True, slots=True)
class ManifestPolicy:
    """A policy out of a manifest.

    Attributes:
        policy: what it asks for, with infscale's safety (not `hpa:`).
        name: the object, as `HorizontalPodAutoscaler shop/llama`.
        workload: what it scales, as `Deployment shop/llama`.
        warnings: what has no equivalent, each with its path in the manifest.
    """

    policy: ScalePolicy
    name: str
    workload: str
    warnings: tuple[str, ...]


def load_manifest(path: str) -> ManifestPolicy:
    """The policy in a file of manifests.

    Raises:
        ConfigError: the file cannot be read, has no autoscaler or several, or one that cannot be used as a policy.
    """
    return manifest_policy(text_of(path, MANIFESTS), path)


def manifest_policy(text: str, source: str) -> ManifestPolicy:
    """The policy in a text of manifests, of which one is an HPA or ScaledObject.

    Args:
        text: YAML or JSON, with `---` between documents, or a `List`.
        source: the file's name; it begins every error.

    Raises:
        ConfigError: as `load_manifest`.
    """
    document = _chosen(documents(text, source, tuple(_VERSIONS)), source)
    place, version = document.place, document.value.get("apiVersion")
    if version != _VERSIONS[document.kind]:
        advice = "; kubectl get hpa.v2.autoscaling NAME -o yaml prints it so" if document.kind == HPA else ""
        expected = f"expected {_VERSIONS[document.kind]}, got {checks.described(version)}{advice}"
        raise place.key("apiVersion").error(expected)
    spec = checks.mapping(document.value.get("spec"), place.key("spec"))
    found = Findings()
    read = hpa_settings if document.kind == HPA else scaled_object_settings
    settings = read({key: value for key, value in spec.items() if value is not None}, place.key("spec"), found)
    if found.quantile is not None:
        settings["quantile"] = found.quantile
    policy = policy_of(found.as_goals(), settings)
    for fault in faults(policy):
        left_out = found.left_out(_place(document, "metrics"))
        raise _place(document, fault.key).error(f"{fault.words}{left_out}")
    _paused(document, found)
    return ManifestPolicy(policy, _name(document), _workload(document), tuple(found.notes))


def _chosen(objects: list[Document], source: str) -> Document:
    autoscalers = [item for item in objects if item.kind in _VERSIONS]
    if not autoscalers:
        kinds = ", ".join(sorted({item.kind or "one without a kind" for item in objects})) or "nothing"
        raise ConfigError(f"no {HPA} or {SCALED_OBJECT} in it, only {kinds}", source=source)
    if len(autoscalers) > 1:
        names = ", ".join(_name(item) for item in autoscalers)
        raise ConfigError(
            f"{len(autoscalers)} autoscalers in it ({names}): expected one, take the others out", source=source
        )
    return autoscalers[0]


def _name(document: Document) -> str:
    metadata = document.value.get("metadata")
    fields = metadata if isinstance(metadata, Mapping) else {}
    namespace = f"{fields['namespace']}/" if fields.get("namespace") else ""
    return f"{document.kind} {namespace}{fields.get('name', '(no name)')}"


def _workload(document: Document) -> str:
    place = document.place.key("spec").key("scaleTargetRef")
    spec, metadata = document.value["spec"], document.value.get("metadata")
    target = checks.mapping(spec.get("scaleTargetRef") if isinstance(spec, Mapping) else None, place)
    namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    name = checks.text(target.get("name"), place.key("name"))
    kind = checks.text(target.get("kind") or "Deployment", place.key("kind"))
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _place(document: Document, key: str) -> Place:
    """Where the key of a fault stands; those of `behavior` are checked where they are read."""
    scaled_object = document.kind == SCALED_OBJECT
    names = {"min": "minReplicas", "max": "maxReplicas", "metrics": "metrics"}
    if scaled_object:
        names = {
            "min": "minReplicaCount",
            "max": "maxReplicaCount",
            "cooldown": "cooldownPeriod",
            "metrics": "triggers",
        }
    return document.place.key("spec").key(names.get(key, names["metrics"]))


def _paused(document: Document, found: Findings) -> None:
    """KEDA's annotations that stop a ScaledObject."""
    metadata = document.value.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    for key in annotations if isinstance(annotations, Mapping) else ():
        if str(key).startswith("autoscaling.keda.sh/paused"):
            words = f"no equivalent for {key}: the policy is read as if it were not there"
            found.note(document.place.key("metadata").key("annotations"), words)
