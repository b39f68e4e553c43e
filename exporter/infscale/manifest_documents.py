"""Manifests in YAML, several documents in a file, as plain values: bounded, no tags, no aliases, no key twice.

`infscale.manifest` reads its files through here. Documents of other kinds are not looked into: what `kustomize build`
prints may hold anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import yaml

from infscale import checks
from infscale.checks import Place
from infscale.yaml_file import MANIFESTS, nodes_of, parsed, value_of


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file.

    Attributes:
        place: where it stands; begins every error.
        kind: its `kind`; empty where it has none.
        value: its fields; empty for a kind that was not asked for.
    """

    place: Place
    kind: str
    value: Mapping[str, object]


def documents(text: str, source: str, kinds: Collection[str]) -> list[Document]:
    """The objects of a text in its order, those in a `List` too.

    Args:
        text: YAML or JSON, with `---` between documents.
        source: the file's name; it begins every error.
        kinds: the kinds whose fields are read.

    Raises:
        ConfigError: no YAML, or an object that is none; with the line or the path.
    """
    return parsed(text, source, MANIFESTS, lambda content: _read(content, source, kinds))


def _read(text: str, source: str, kinds: Collection[str]) -> list[Document]:
    nodes = [node for node in nodes_of(text) if not _empty(node)]
    several = len(nodes) > 1
    found: list[Document] = []
    for index, node in enumerate(nodes, 1):
        place = Place(f"{source}, document {index}" if several else source)
        found += _objects(node, place, kinds)
    return found


def _empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")


def _objects(node: yaml.Node, place: Place, kinds: Collection[str]) -> Iterator[Document]:
    if not isinstance(node, yaml.MappingNode):
        raise place.error(f"expected an object with apiVersion and kind, on line {node.start_mark.line + 1}")
    kind = _field(node, "kind")
    name = kind.value if isinstance(kind, yaml.ScalarNode) else ""
    items = _field(node, "items")
    if name.endswith("List") and isinstance(items, yaml.SequenceNode):  # kubectl get -o yaml
        for index, item in enumerate(items.value):
            yield from _objects(item, place.key("items").item(index), kinds)
        return
    value = value_of(node, place) if name in kinds else {}
    yield Document(place, name, checks.mapping(value, place))


def _field(node: yaml.MappingNode, name: str) -> yaml.Node | None:
    return next((value for key, value in node.value if key.value == name), None)
