"""`--config.file` for a command: its values stand below the command line and the environment, above the defaults.

A command takes the decorator and gets the checked file as its argument `config_file` (an empty `Config` without one).
click looks for a value on the command line, in the environment, in the context's default map, then for the default; the
flag is eager, so that the file is in that map before the others are looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from infscale.checks import described
from infscale.cli.options import F, option, parameter_of

if TYPE_CHECKING:
    from infscale.config_values import Config, Setting

_NOT_IN_FILE = ("config.file", "config.check", "version", "help")
_EXPECTED = {
    "boolean": "true or false",
    "integer": "a whole number",
    "integer range": "a whole number",
    "float": "a number",
    "float range": "a number",
    "seconds": "a number of seconds",
}
"""What a flag's type takes, by the type's name in click; for every other one it is text."""


def config_file_option(settings: Callable[[click.Command], dict[str, Setting]] | None = None) -> Callable[[F], F]:
    """Give a command `--config.file`.

    Args:
        settings: what the file may set, from the command; by default the command's own flags (`settings_of`).
    """

    def load(ctx: click.Context, _param: click.Parameter, value: str | None) -> Config:
        """Read the file where the flag is read: the other flags take their defaults from it."""
        from infscale.config_values import Config

        if value is None:
            return Config()
        from infscale import config  # PyYAML: a command without a file does not pay for it

        found = config.load_config(value, (settings or settings_of)(ctx.command))
        ctx.default_map = {**(ctx.default_map or {}), **{parameter_of(key): v for key, v in found.settings.items()}}
        return found

    text = "Flags (without the dashes) and engine profiles in YAML."
    return option("--config.file", metavar="FILE", is_eager=True, callback=load, help=text)


def settings_of(command: click.Command) -> dict[str, Setting]:
    """What a configuration file may set for a command: each of its long flags, without the dashes."""
    found: dict[str, Setting] = {}
    for param in command.params:
        flag = next((name[2:] for name in param.opts if name.startswith("--")), "")
        if isinstance(param, click.Option) and flag and flag not in _NOT_IN_FILE:
            found[flag] = _setting(param)
    return found


def every_setting(own: click.Command | None = None) -> dict[str, Setting]:
    """The settings of every command that takes a file: one file may serve a sidecar and a look at its engine.

    Args:
        own: the command that reads the file: where two commands have a flag of one name, its own counts.
    """
    from infscale.cli import COMMANDS, cli

    found: dict[str, Setting] = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if command is not None and any("--config.file" in param.opts for param in command.params):
            for key, setting in settings_of(command).items():
                found[key] = _either(found[key], setting) if key in found else setting
    return {**found, **settings_of(own)} if own is not None else found


def _either(one: Setting, other: Setting) -> Setting:
    """A flag of two commands: what one of them takes is no mistake in a file that serves both."""
    from infscale.config_values import Setting

    def read(value: Any) -> object:
        """As the one setting where that takes it, else as the other."""
        try:
            return one.read(value)
        except ValueError:
            return other.read(value)

    return Setting(one.expected, read, repeats=one.repeats)


def _setting(param: click.Option) -> Setting:
    from infscale.config_values import Setting

    kind = "boolean" if param.is_flag else param.type.name
    expected = _EXPECTED.get(kind, "text")
    # A custom type (seconds, an address) reads text, as the command line gives it; YAML may have made it a number.
    numbers = kind not in ("boolean", "text", "path", "file", "choice")

    def read(value: Any) -> object:
        """The value as it stands, if the flag would take it."""
        if isinstance(value, bool):
            fits = kind == "boolean"
        else:
            fits = kind != "boolean" and (isinstance(value, str) or (numbers and isinstance(value, (int, float))))
        if not fits:
            quotes = " (put it in quotes)" if expected == "text" and isinstance(value, (int, float)) else ""
            raise ValueError(f"expected {expected}, got {described(value)}{quotes}")
        try:
            param.type.convert(str(value), param, None)
        except click.BadParameter as error:
            raise ValueError(error.message.rstrip(".")) from error
        return value

    return Setting(expected, read, repeats=param.multiple)
