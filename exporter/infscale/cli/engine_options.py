"""The flags that say which engine is read, and how: one spelling for the sidecar, `infscale parse` and the drain."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from infscale.cli.options import SECONDS, F, option
from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.config import Config
    from infscale.engines.profile import Profile
    from infscale.scrape import Target

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


def engine_options(function: F) -> F:
    """Give a command `--engine` and every `--engine.` flag of a connection; `chosen` and `target` take their values."""
    for decorate in reversed(
        (
            option("--engine", metavar="NAME", help="Read the page as this engine's; else found from it."),
            option(
                "--engine.select",
                "--select",
                multiple=True,
                metavar="LABEL=VALUE",
                help="Count only these series.",
            ),
            option(
                "--engine.timeout",
                type=SECONDS,
                default=2.0,
                metavar="SECONDS",
                help="For one whole read.",
            ),
            option("--engine.token-file", metavar="FILE", help="Bearer token or API key of the engine."),
            option("--engine.ca-file", metavar="FILE", help="Certificates to trust for https, in PEM."),
            option("--engine.insecure-skip-verify", is_flag=True, help="Do not check the engine's certificate."),
        )
    ):
        function = decorate(function)
    return function


@dataclass(frozen=True)
class Chosen:
    """Which engine a page is of.

    Attributes:
        told: the profile of `--engine`; None: it is found from the page.
        profiles: those to look for, in the order of detection.
    """

    told: Profile | None
    profiles: tuple[Profile, ...]


def chosen(config: Config, engine: str | None, select: Iterable[str]) -> Chosen:
    """The profiles that `--engine`, `--engine.select` and the configuration file ask for.

    Raises:
        UsageError: the engine is unknown, or a selector is not of the form LABEL=VALUE.
    """
    wanted = tuple(_selector(pair) for pair in select)

    def selecting(profile: Profile) -> Profile:
        """The profile, counting only the series that `--engine.select` names."""
        return replace(profile, select=profile.select + wanted) if wanted else profile

    told = selecting(config.engine(engine)) if engine is not None else None
    return Chosen(told, tuple(map(selecting, config.engines().values())))


def _selector(pair: str) -> tuple[str, str]:
    label, equals, value = pair.partition("=")
    if not equals or not _LABEL.fullmatch(label):
        raise UsageError(f"--engine.select: expected LABEL=VALUE, as ReplicaId=r2, got {pair!r}")
    return label, value


def target(url: str, **flags: Any) -> Target:
    """What to read at `url`, with the values of the connection's flags; its files are looked at now.

    A URL that names a model of llama.cpp's router gets `autoload=false`: without it a scrape would load the model.

    Raises:
        UsageError: the URL or one of the files cannot be used.
    """
    from infscale.scrape import Target, add_query, check_target

    made = Target(
        add_query(url, "autoload=false") if re.search(r"[?&]model=", url) else url,
        timeout_s=flags["engine_timeout"],
        token_file=flags["engine_token_file"],
        ca_file=flags["engine_ca_file"],
        insecure_skip_verify=flags["engine_insecure_skip_verify"],
    )
    check_target(made)
    return made
