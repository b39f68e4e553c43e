"""Manifests in YAML, several documents in a file, as plain values: bounded, no tags, no aliases, no key twice.

`infscale.manifest` reads its files through here. Documents of other kinds are not looked into: what `kustomize build`
prints may hold anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from infscale import checks
from infscale.checks import Place
from infscale.config import _line, _Loader, _value
from infscale.errors import ConfigError

MAX_BYTES = 4 << 20  # all of KEDA's release in one file, its definitions included, is 1.3 MB
_MAX_DEPTH = 100  # the schema of a CustomResourceDefinition stands at 40
_MAX_EVENTS = 1_000_000


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


def text_of(path: str) -> str:
    """The text of a file.

    Raises:
        ConfigError: it cannot be read, is too large or is no text.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", source=path) from exc
    if len(data) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES >> 20} MiB, no file of manifests", source=path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError("a binary file, expected manifests in YAML", source=path) from exc


def documents(text: str, source: str, kinds: Collection[str]) -> list[Document]:
    """The objects of a text in its order, those in a `List` too.

    Args:
        text: YAML or JSON, with `---` between documents.
        source: the file's name; it begins every error.
        kinds: the kinds whose fields are read.

    Raises:
        ConfigError: no YAML, or an object that is none; with the line or the path.
    """
    try:
        _check_size(text, source)
        return _read(text, source, kinds)
    except yaml.MarkedYAMLError as exc:
        where = _line(exc.problem_mark or exc.context_mark)
        raise ConfigError(f"not YAML: {exc.problem or exc.context}", source=source, path=where) from exc
    except yaml.YAMLError as exc:
        raise ConfigError(f"not YAML: {' '.join(str(exc).split())}", source=source) from exc


def _read(text: str, source: str, kinds: Collection[str]) -> list[Document]:
    nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if not _empty(node)]
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
    value = _value(node, place, _Loader("")) if name in kinds else {}
    yield Document(place, name, checks.mapping(value, place))


def _field(node: yaml.MappingNode, name: str) -> yaml.Node | None:
    return next((value for key, value in node.value if key.value == name), None)


def _check_size(text: str, source: str) -> None:
    """Refuse what would grow or recurse without end (deep nesting, aliases) before it is built."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        fault = ""
        if isinstance(event, yaml.AliasEvent):
            fault = f"aliases (*{event.anchor}) are not supported; kustomize build and kubectl write the values out"
        elif depth > _MAX_DEPTH or count > _MAX_EVENTS:
            fault = "nested too deep" if depth > _MAX_DEPTH else "too many values for a file of manifests"
        if fault:
            raise ConfigError(fault, source=source, path=_line(event.start_mark))
