"""docs/reference/flags.md: every command with its arguments and flags, from the commands themselves."""

from __future__ import annotations

import click

from infscale.cli import cli
from tools.reference_pages.markdown import NONE, code, head, table

INTRODUCTION = """\
Every command and flag, as `infscale COMMAND --help` tells them. What is not given on the command line comes from the
environment, then from the file of [`--config.file`](configuration.md), then from the default. A flag that is
repeatable takes several values in its variable, with blanks between them.
"""


def page() -> str:
    """Every command with its arguments and flags."""
    context = click.Context(cli)
    names = cli.list_commands(context)
    commands = {name: cli.get_command(context, name) for name in names}
    parts = [head("Flags", "the commands' own flags", INTRODUCTION)]
    parts.append(", ".join(f"[`{name}`](#infscale-{name})" for name in names) + "\n")
    for name, command in commands.items():
        assert command is not None, name
        parts.append(f"## infscale {name}\n\n{' '.join((command.help or '').split())}\n")
        own = click.Context(command, info_name=name, parent=click.Context(cli, info_name="infscale"))
        rows = [flag_row(param, own) for param in command.params if not getattr(param, "hidden", False)]
        parts.append(table(["flag", "takes", "environment", "default", "meaning"], rows))
    return "\n".join(parts)


def flag_row(param: click.Parameter, context: click.Context) -> list[str]:
    """A row for a flag or an argument."""
    meaning = " ".join(
        [
            *(getattr(param, "help", None) or "").split(),
            *(["Repeatable."] if getattr(param, "multiple", False) else []),
            *(["Required."] if param.required else []),
        ]
    )
    if not isinstance(param, click.Option):
        return [code(param.make_metavar(context)), NONE, NONE, NONE, meaning or NONE]
    variables = [param.envvar] if isinstance(param.envvar, str) else param.envvar or ()
    flags = code(*param.opts, *param.secondary_opts)
    return [flags, takes(param, context), code(*variables), default_of(param, context), meaning]


def takes(param: click.Option, context: click.Context) -> str:
    """What follows a flag, with the bounds of a number."""
    if param.is_flag:
        return NONE
    metavar = code(param.make_metavar(context).strip("[]").replace("|", ", "))
    if not isinstance(param.type, click.IntRange | click.FloatRange):
        return metavar
    low = "" if param.type.min is None else f"{'above' if param.type.min_open else 'from'} {param.type.min:g}"
    high = "" if param.type.max is None else f"to {param.type.max}"
    return f"{metavar} {low} {high}".rstrip()


def default_of(param: click.Option, context: click.Context) -> str:
    """The default of a flag as a person would write it; of a flag without a value only where it can be turned off."""
    value = param.get_default(context)
    if isinstance(value, bool):
        return ("on" if value else "off") if param.secondary_opts else NONE
    if isinstance(value, int | float | str) and value != "":
        return code(f"{value:g}" if isinstance(value, float) else value)
    return NONE
