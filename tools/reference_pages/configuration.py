"""docs/reference/configuration.md: the keys of a configuration file, from the flags and the table of profile keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields

import click

from infscale.cli import cli
from infscale.cli.config_file import settings_of
from infscale.engines import Hints, Metric, Profile
from infscale.engines.custom import KEYS
from tools.reference_pages.markdown import NONE, attributes, code, head, table

INTRODUCTION = """\
What a file for `--config.file` may say, in YAML: the flags of the command without their dashes, and `profiles`. The
command line and the environment win over it. A key that the command does not have is refused with the nearest one
that it has; [`infscale check-config FILE`](../parse.md) checks a file for all commands. A policy in a file of its own
(`--policy.file`) has [other keys](policy.md#keys); TLS and passwords stand in the file of
[`--web.config.file`](../sidecar.md#tls-and-authentication).

## Settings

What each does and its default: [flags](flags.md).
"""

PROFILES = """\
`profiles` is a list; each entry makes an engine of your own, which `engine` then names
([how](../engines.md#your-own-engine)). `name` and either `running` or `total` have to be there. With `base: NAME` what
is not given comes from that built-in profile, and null takes away what it has.
"""


def page() -> str:
    """What a file for `--config.file` may say."""
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    taken: dict[str, list[str]] = {}
    expected: dict[str, str] = {}
    for name, command in commands.items():
        if command is None or not any("--config.file" in param.opts for param in command.params):
            continue
        for key, setting in settings_of(command).items():
            taken.setdefault(key, []).append(name)
            expected.setdefault(key, setting.expected + (", or a list" if setting.repeats else ""))
    parts = [
        head("Configuration file", "the commands' own flags and exporter/infscale/engines/custom.py", INTRODUCTION)
    ]
    rows = ([code(key), expected[key], ", ".join(names)] for key, names in taken.items())
    parts += [table(["key", "takes", "commands"], rows), "## Engine profiles\n"]
    parts.append(PROFILES)
    says = {**attributes(Profile), "hints": "what to tell a person: " + "; ".join(hint_meanings())}
    defaults = {f.name: f.default for f in fields(Profile) if f.default is not MISSING}
    keys = (
        [code(k), key.expected, key_default(key.write, defaults.get(key.field)), says[key.field]]
        for k, key in KEYS.items()
    )
    parts.append(table(["key", "takes", "default", "meaning"], keys))
    return "\n".join(parts)


def hint_meanings() -> list[str]:
    """The keys of `hints`, each with when it is told."""
    return [f"`{name}` {words.rstrip('.')}" for name, words in attributes(Hints).items()]


def key_default(write: Callable[[object], object], value: object) -> str:
    """The default of a profile's key as YAML on one line."""
    if value is None or value in ("", ()) or (isinstance(value, tuple) and isinstance(value[0], Metric)):
        return NONE
    return code(json.dumps(write(value)).replace('"', "").strip("[]"))
