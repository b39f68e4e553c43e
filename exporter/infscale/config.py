"""The configuration file, as checked dataclasses. Every command with `--config.file` reads it through here.

A file is one flat mapping. Its keys are the long flags of the command without the dashes in front (`engine-url`,
`web.listen-address`; a list where a flag repeats), and `profiles`, a list of engine profiles
(`infscale.engines.custom`). Precedence is flag, environment, file, default: `infscale.cli.config_file` wires it.
`infscale.yaml_file` reads the YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from infscale import checks
from infscale.checks import Place
from infscale.config_values import Config, Setting
from infscale.engines.custom import profile_from_mapping
from infscale.yaml_file import load_yaml

if TYPE_CHECKING:
    from infscale.engines.profile import Profile

__all__ = ["Config", "Setting", "check_config", "load_config"]


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
