"""YAML files as plain values, bounded before anything is built: no tags, no aliases, no key twice.

The only place that reads YAML: configuration (`infscale.config`), web configuration, policies, manifests. Any value may
be a secret, so errors tell where it stands and never what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from infscale import checks
from infscale.checks import Place
from infscale.errors import ConfigError

T = TypeVar("T")

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TEXT = "tag:yaml.org,2002:str"
_LONGEST_NUMBER = 400
"""Characters of what is no text: a date has 35, float64 309 digits. YAML 1.1 has integers to the base 60 (`1:30:00`),
which take time with the square of their length: 70 s for 1 MiB."""

_NO_VALUE = "not a value: a number or date that is none, or a tag (!) that does not fit; text stands in quotes"


@dataclass(frozen=True)
class Bounds:
    """What a file may be at most.

    Attributes:
        what: the kind of file, for messages.
        bytes: of the file.
        depth: of nesting.
        events: of the parser, about two for each value.
    """

    what: str
    bytes: int
    depth: int
    events: int


SETTINGS = Bounds("a configuration file", 1 << 20, 16, 50_000)
"""A profile's deepest value, profiles[0].sleep.metric.where.label, stands at 6; 50,000 events are 50 times the longest
sensible file."""

MANIFESTS = Bounds("a file of manifests", 4 << 20, 100, 1_000_000)
"""All of KEDA's release in one file, its definitions included, is 1.3 MB; the schema of such a definition stands
at a depth of 40."""


def load_yaml(path: str) -> dict[str, object]:
    """Read a YAML file that holds one mapping, into plain values.

    Raises:
        ConfigError: with the file, the line or the key, and what was expected.
    """

    def read(text: str) -> object:
        """The document as plain values."""
        root = yaml.compose(text, Loader=_Loader)
        if root is None:
            raise ConfigError("the file is empty, expected settings", source=path)
        return value_of(root, Place(path))

    value = parsed(text_of(path, SETTINGS), path, SETTINGS, read)
    if not isinstance(value, dict):
        got = "a text" if isinstance(value, str) else checks.described(value)
        raise ConfigError(f"expected a mapping of settings, got {got}", source=path)
    return value


def text_of(path: str, bounds: Bounds) -> str:
    """The text of a file.

    Raises:
        ConfigError: it cannot be read, is too large or is no text.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(bounds.bytes + 1)
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", source=path) from exc
    if len(data) > bounds.bytes:
        raise ConfigError(f"larger than {bounds.bytes >> 20} MiB, not {bounds.what}", source=path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError("a binary file, expected YAML in UTF-8", source=path) from exc
    if "\0" in text:
        raise ConfigError("a binary file, expected YAML in UTF-8", source=path)
    return text


def parsed(text: str, source: str, bounds: Bounds, read: Callable[[str], T]) -> T:
    """What `read` makes of a text that is within the bounds; YAML's own errors become one line with the place.

    Raises:
        ConfigError: it is no YAML, or too much of it.
    """
    try:
        _check_size(text, source, bounds)
        return read(text)
    except yaml.MarkedYAMLError as exc:
        where = _line(exc.problem_mark or exc.context_mark)
        raise ConfigError(f"not YAML: {exc.problem or exc.context}", source=source, path=where) from exc
    except yaml.YAMLError as exc:
        raise ConfigError(f"not YAML: {' '.join(str(exc).split())}", source=source) from exc


def nodes_of(text: str) -> list[yaml.Node]:
    """The documents of a text, unread; for use within `parsed`."""
    return list(yaml.compose_all(text, Loader=_Loader))


def value_of(node: yaml.Node, place: Place) -> object:
    """A node as a plain value. Keys are taken as they are written: a label `on` stays text.

    Raises:
        ConfigError: a key twice, a key that is no text, or a value that is none; with its path.
    """
    return _value(node, place, _Loader(""))


def _check_size(text: str, source: str, bounds: Bounds) -> None:
    """Refuse what would grow or recurse without end, before it is built.

    That is deep nesting, and aliases: a few hundred bytes of them can stand for gigabytes.
    """
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        fault = ""
        if isinstance(event, yaml.AliasEvent):
            fault = "aliases are not supported, write the value out; text that begins with * stands in quotes"
        elif depth > bounds.depth or count > bounds.events:
            fault = "nested too deep" if depth > bounds.depth else f"too many values for {bounds.what}"
        if fault:
            raise ConfigError(fault, source=source, path=_line(event.start_mark))


def _line(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _value(node: yaml.Node, place: Place, loader: yaml.SafeLoader) -> object:
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        mapping: dict[str, object] = {}
        for key, value in _pairs(node, place):
            at = place.key(key)
            if key in lines:
                raise at.error(f"given twice, on line {lines[key]} and on line {value.start_mark.line + 1}")
            lines[key] = value.start_mark.line + 1
            mapping[key] = _value(value, at, loader)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, place.item(index), loader) for index, item in enumerate(node.value)]
    if node.tag != _TEXT and len(node.value) > _LONGEST_NUMBER:
        raise place.error(_NO_VALUE)
    try:
        return loader.construct_object(node)
    # A date such as 2024-13-45; and PyYAML's own faults over a tag that it does not know, or one and a text that do not
    # go together, as !!int ''.
    except (
        yaml.constructor.ConstructorError,
        ValueError,
        TypeError,
        OverflowError,
        LookupError,
        AttributeError,
    ) as exc:
        raise place.error(_NO_VALUE) from exc


def _pairs(node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, yaml.Node]]:
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise place.error(f"expected a key in text on line {key.start_mark.line + 1}")
        yield key.value, value
