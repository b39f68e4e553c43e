"""The configuration file: YAML into checked dataclasses. Every command with `--config.file` reads it through here.

A file is one flat mapping. Its keys are the long flags of the command without the dashes in front (`engine-url`,
`web.listen-address`; a list where a flag repeats), and `profiles`, a list of engine profiles
(`infscale.engines.custom`). Precedence is flag, environment, file, default: `infscale.cli.config_file` wires it.
Only the web configuration file is read elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from infscale import checks
from infscale.checks import Place
from infscale.engines import PROFILES
from infscale.engines.custom import profile_from_mapping
from infscale.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from infscale.engines.profile import Profile

MAX_BYTES = 1 << 20
_MAX_DEPTH = 16  # a profile's deepest value, profiles[0].sleep.metric.where.label, stands at 6
_MAX_EVENTS = 50_000  # about 50 times the longest sensible file; checked before anything is built

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Setting:
    """What the file may give for one flag.

    Attributes:
        expected: what it takes, for messages: `a number`, `true or false`, `text`.
        read: checks one value and returns what to hand to the flag; raises ValueError with the reason.
        repeats: whether the flag may be given several times; then the file may give a list.
    """

    expected: str
    read: Callable[[object], object]
    repeats: bool = False


@dataclass(frozen=True)
class Config:
    """A checked configuration file, or (as it is by default) the lack of one.

    Attributes:
        source: the file's name; empty without one.
        settings: values by flag name without dashes, in the file's order.
        profiles: the file's own engine profiles by name.
    """

    source: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def engines(self) -> dict[str, Profile]:
        """Every known engine: the file's own first (they win a detection), one replaces the built-in of its name."""
        return {**self.profiles, **{name: p for name, p in PROFILES.items() if name not in self.profiles}}

    def engine(self, name: str) -> Profile:
        """The profile of a name that a person gave.

        Raises:
            UsageError: there is none; the message lists those there are.
        """
        engines = self.engines()
        if name not in engines:
            raise UsageError(f"unknown engine {name!r}; known are {', '.join(sorted(engines))}")
        return engines[name]


def load_config(path: str, allowed: Mapping[str, Setting]) -> Config:
    """Read and check a configuration file.

    Args:
        path: the file; its name begins every error.
        allowed: the flags that it may set, by their long names without dashes.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or has a key or value that cannot be used.
    """
    return check_config(load_yaml(path), path, allowed)


def check_config(values: Mapping[str, object], source: str, allowed: Mapping[str, Setting]) -> Config:
    """Check the mapping that `load_yaml` read from `source`; arguments and errors as in `load_config`."""
    top = Place(source)
    checks.mapping(values, top, ("profiles", *allowed))
    settings = {key: _setting(value, allowed[key], top.key(key)) for key, value in values.items() if key != "profiles"}
    return Config(source, settings, _profiles(values["profiles"], top.key("profiles")) if "profiles" in values else {})


def _setting(value: object, setting: Setting, place: Place) -> object:
    if setting.repeats and isinstance(value, list):
        return [_one(item, setting, place.item(index)) for index, item in enumerate(value)]
    one = _one(value, setting, place)
    return [one] if setting.repeats else one


def _one(value: object, setting: Setting, place: Place) -> object:
    try:
        return setting.read(value)
    except ValueError as exc:
        raise place.error(str(exc) or f"expected {setting.expected}, got {checks.described(value)}") from exc


def _profiles(value: object, place: Place) -> dict[str, Profile]:
    profiles: dict[str, Profile] = {}
    for index, item in enumerate(checks.items(value, place)):
        at = place.item(index)
        profile = profile_from_mapping(item, at.path, source=at.source)
        if profile.name in profiles:
            first = list(profiles).index(profile.name)
            raise at.key("name").error(f"{profile.name!r} is the name of {place.item(first).path} too")
        profiles[profile.name] = profile
    return profiles


def load_yaml(path: str) -> dict[str, object]:
    """Read a YAML file that holds one mapping, into plain values; no tags, no aliases, no key twice.

    Raises:
        ConfigError: with the file, the line or the key, and what was expected.
    """
    text = _text(path)
    try:
        _check_size(text, path)
        root = yaml.compose(text, Loader=_Loader)
        if root is None:
            raise ConfigError("the file is empty, expected settings", source=path)
        value = _value(root, Place(path), _Loader(""))
    except yaml.MarkedYAMLError as exc:
        where = _line(exc.problem_mark or exc.context_mark)
        raise ConfigError(f"not YAML: {exc.problem or exc.context}", source=path, path=where) from exc
    except yaml.YAMLError as exc:
        raise ConfigError(f"not YAML: {' '.join(str(exc).split())}", source=path) from exc
    if not isinstance(value, dict):
        raise ConfigError(f"expected a mapping of settings, got {checks.described(value)}", source=path)
    return value


def _text(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", source=path) from exc
    if len(data) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES // 1024} KiB, not a configuration file", source=path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError("a binary file, expected YAML in UTF-8", source=path) from exc
    if "\0" in text:
        raise ConfigError("a binary file, expected YAML in UTF-8", source=path)
    return text


def _check_size(text: str, path: str) -> None:
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
            fault = f"aliases (*{event.anchor}) are not supported, write the value out"
        elif depth > _MAX_DEPTH or count > _MAX_EVENTS:
            fault = "nested too deep" if depth > _MAX_DEPTH else "too many values for a configuration file"
        if fault:
            raise ConfigError(fault, source=path, path=_line(event.start_mark))


def _line(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _value(node: yaml.Node, place: Place, loader: yaml.SafeLoader) -> object:
    """A node as a plain value. Keys are taken as they are written: a label `on` stays text."""
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
    try:
        return loader.construct_object(node)
    except (ValueError, TypeError, OverflowError) as exc:  # a date such as 2024-13-45, an integer of 5,000 digits
        raise place.error(f"not a value: {checks.described(node.value)}") from exc


def _pairs(node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, yaml.Node]]:
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise place.error(f"expected a key in text on line {key.start_mark.line + 1}")
        yield key.value, value
