"""`infscale check-config`: say whether configuration files can be used, and what was understood.

Exit status: 0 all can be used, 2 one cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from infscale.cli.config_file import every_setting
from infscale.errors import ConfigError, InfscaleError, UsageError, printable

if TYPE_CHECKING:
    from infscale.config import Config

_EXAMPLES = """\b
Examples:
  infscale check-config infscale.yaml
  infscale check-config /etc/infscale/*.yaml
"""


@click.command("check-config", epilog=_EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.pass_context
def command(ctx: click.Context, /, files: tuple[str, ...]) -> None:
    """Check configuration files: those of --config.file and, known by their keys, those of --web.config.file.

    For each file a line says what was understood, or what is wrong and where.
    """
    from infscale.cli import say

    status = 0
    for file in files:
        try:
            click.echo(f"{printable(file)}: ok: {_understood(file)}")
        except InfscaleError as exc:
            say(str(exc))
            status = exc.exit_code
    ctx.exit(status)


def _understood(file: str) -> str:
    """Check one file, of either kind.

    Raises:
        InfscaleError: what is wrong with it.
    """
    from infscale.config import check_config
    from infscale.web.webconfig import KEYS, WebConfig
    from infscale.yaml_file import load_yaml

    values = load_yaml(file)
    if any(key in values for key in KEYS):
        WebConfig(file)
        return "web configuration with " + ", ".join(values)
    config = check_config(values, file, every_setting())
    _check_engine(config)
    return _summary(config)


def _check_engine(config: Config) -> None:
    engine = config.settings.get("engine")
    if engine is None:
        return
    try:
        config.engine(str(engine))
    except UsageError as exc:
        raise ConfigError(str(exc), source=config.source, path="engine") from exc


def _summary(config: Config) -> str:
    """The settings as they stand in the file, and each profile with the names it will look for."""
    from infscale.engines import PROFILES
    from infscale.normalise import counted

    parts = []
    for key, value in config.settings.items():
        values = value if isinstance(value, list) else [value]
        parts.append(f"{key} {' '.join(_shown(item) for item in values)}")
    for profile in config.profiles.values():
        names = " + ".join(profile.full(metric.names[0]) for metric in counted(profile))
        instead = " instead of the built-in one" if profile.name in PROFILES else ""
        parts.append(f"profile {profile.name}{instead} (in flight = {names})")
    return printable("; ".join(parts)) or "nothing is set"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
