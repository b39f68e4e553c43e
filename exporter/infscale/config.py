"""The configuration file, as checked dataclasses. Every command with `--config.file` reads it through here.

A file is one flat mapping. Its keys are the long flags of the command without the dashes in front (`engine-url`,
`web.listen-address`; a list where a flag repeats), and `profiles`, a list of engine profiles
(`infscale.engines.custom`). Precedence is flag, environment, file, default: `infscale.cli.config_file` wires it.
`infscale.yaml_file` reads the YAML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infscale import checks
from infscale.checks import Place
from infscale.engines import PROFILES
from infscale.engines.custom import profile_from_mapping
from infscale.errors import UsageError
from infscale.yaml_file import load_yaml

if TYPE_CHECKING:
    from infscale.engines.profile import Profile


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
