"""`infscale install-hook`: write the preStop hook into a folder that the engine's container mounts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option, every_setting
from infscale.cli.drain_options import check_limit, options_of
from infscale.cli.engine_options import chosen
from infscale.cli.options import SECONDS, URL, option

if TYPE_CHECKING:
    from infscale.config import Config

_EXAMPLES = """\b
Examples:
  infscale install-hook /hook --engine vllm --url http://127.0.0.1:8000/metrics --grace 120
  infscale install-hook /hook --engine my-engine --config engines.yaml --grace 120 --exit-reserve 20
"""
_ALIASES = {"config": "config.file"}


@click.command(
    "install-hook", epilog=_EXAMPLES, context_settings={"token_normalize_func": lambda word: _ALIASES.get(word, word)}
)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@option("--engine", metavar="NAME", help="Read the page as this engine's; else found from it.")
@option("--engine-url", "--url", type=URL, default="http://127.0.0.1:8000/metrics", metavar="URL", help="Its page.")
@option("--grace", type=click.IntRange(15, 3600), default=30, help="The Pod's terminationGracePeriodSeconds.")
@option("--exit-reserve", type=SECONDS, default=5.0, metavar="SECONDS", help="What the engine needs after SIGTERM.")
@option("--max-grace", type=click.IntRange(15, 3600), help="The least that a node allows: its shutdown or spot limit.")
@option("--connections/--no-connections", default=None, help="Look at the engine's client connections, too.")
@option("--drain-stale-after", type=SECONDS, metavar="SECONDS", help="Give up on a gauge that stands still this long.")
@option("--on-http-error", type=click.Choice(["connections", "return"]), default="connections", help="What to go by.")
@option("--leader-url", type=URL, metavar="URL", help="For a worker: wait for the leader's page instead.")
@option("--sidecar-url", default="http://127.0.0.1:10048", metavar="URL", help="Its kubelet listener.")
@option("--engine.select", "--select", multiple=True, metavar="LABEL=VALUE", help="Count only these series.")
@option("--engine.token-file", metavar="FILE", help="Bearer token or API key, in the engine's container.")
@config_file_option(every_setting)
def command(folder: Path, config_file: Config, **flags: Any) -> int:
    """Write the preStop hook into DIR and print how an engine's container calls it.

    DIR is a volume that an init container of the Pod fills with this command and the engine's container mounts,
    read-only. The hook holds SIGTERM back until the engine's requests are done, and has returned 3 s before --grace is
    over. The engine's image needs a shell, and a Python from 3.9 on: without one the hook asks the sidecar.
    --config.file may be written --config.
    """
    from infscale.drain.bundle import install
    from infscale.drain.launcher import NAME
    from infscale.engines import PROFILES

    check_limit(options_of(flags["engine_url"], flags))
    engines = chosen(config_file, flags["engine"], flags["engine_select"])
    profiles = [engines.told] if engines.told else engines.profiles
    defaults = _defaults(flags)
    install(folder, defaults, [profile for profile in profiles if PROFILES.get(profile.name) != profile])
    words = ["sh", str(folder.absolute() / NAME), *defaults]
    click.echo(f"# {folder.absolute()} holds the hook. In the engine's container, where the volume is mounted there:")
    click.echo(f"lifecycle:\n  preStop:\n    exec:\n      command: {json.dumps(words)}")
    click.echo(f"# and in the Pod's spec:\nterminationGracePeriodSeconds: {flags['grace']}")
    return 0


def _defaults(flags: dict[str, Any]) -> list[str]:
    """The hook's command line: what bounds it always, the rest where it was asked for."""
    words = ["--engine", flags["engine"]] if flags["engine"] else []
    words += ["--url", flags["engine_url"], "--grace", str(flags["grace"])]
    for flag, default in (
        ("--exit-reserve", 5.0),
        ("--max-grace", None),
        ("--drain-stale-after", None),
        ("--on-http-error", "connections"),
        ("--leader-url", None),
        ("--sidecar-url", "http://127.0.0.1:10048"),
        ("--engine.token-file", None),
    ):
        value = flags[flag[2:].replace("-", "_").replace(".", "_")]
        if value != default:
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    if flags["connections"] is not None:
        words.append("--connections" if flags["connections"] else "--no-connections")
    return words
