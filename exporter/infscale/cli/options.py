"""Flags as every command spells them, and the types of their values. Used by all modules of `infscale.cli`.

A flag has one name on the command line and one in the environment, the same for every command: `--engine.min-interval`
is `INFSCALE_ENGINE_MIN_INTERVAL`. Types refuse a bad value with what was expected.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from infscale import logs
from infscale.errors import UsageError
from infscale.scrape_url import split_url

F = TypeVar("F", bound=Callable[..., Any])


def envvar_of(flag: str) -> str:
    """The environment variable of a flag: `--log.level` is INFSCALE_LOG_LEVEL."""
    return "INFSCALE_" + parameter_of(flag).upper()


def parameter_of(flag: str) -> str:
    """The name of a flag's value in the command's function: `--log.level` is log_level."""
    return flag.removeprefix("--").replace(".", "_").replace("-", "_")


def option(flag: str, *short: str, **settings: Any) -> Callable[[F], F]:
    """A `click.option` in the style of the house.

    Args:
        flag: the long flag, `--engine.min-interval`, or a pair, `--collector.histograms/--no-collector.histograms`.
        short: further spellings, as `-o`.
        settings: what `click.option` takes. The environment variable and the help's note of it and of the default are
            set here; a flag with `multiple=True` splits its environment variable at blanks.
    """
    long = flag.partition("/")[0]
    settings.setdefault("envvar", envvar_of(long))
    settings.setdefault("show_envvar", True)
    settings.setdefault("show_default", True)
    return click.option(flag, *short, parameter_of(long), **settings)


def log_options(function: F) -> F:
    """Give a command `--log.level` and `--log.format`, and set logging up before it runs; it sees neither."""

    @option("--log.level", type=click.Choice(list(logs.LEVELS)), default="info", help="Least level that is logged.")
    @option("--log.format", type=click.Choice(list(logs.FORMATS)), default="logfmt", help="Form of a log line.")
    @functools.wraps(function)
    def with_logs(*arguments: Any, log_level: str, log_format: str, **named: Any) -> Any:
        """Set the log up, then run the command."""
        logs.setup(log_level, log_format)
        return function(*arguments, **named)

    return with_logs  # type: ignore[return-value]  # functools.wraps keeps what F promises, but for two parameters


class Address(NamedTuple):
    """Where to listen. An empty host is every address of the machine."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UrlType(click.ParamType[str]):
    """An http or https URL of a metrics page, as text."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check a URL; the value is returned as it was given."""
        try:
            split_url(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class ListenAddressType(click.ParamType[Address]):
    """`:10047` (every address), `127.0.0.1:10047`, `[::1]:10047`; port 0 takes a free one."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Split an address into host and port."""
        if isinstance(value, Address):
            return value
        host, colon, port = str(value).rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not colon or (":" in host and not bracketed) or not host.isprintable() or " " in host or "/" in host:
            self.fail(f"{value!r} is not an address to listen on; expected :PORT, HOST:PORT or [IPV6]:PORT", param, ctx)
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
            self.fail(f"{value!r}: the port must be a number from 0 to 65535", param, ctx)
        return Address(host.strip("[]"), int(port))


class SecondsType(click.ParamType[float]):
    """A number of seconds above 0."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number of seconds; neither 0, negative, infinite nor NaN."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            self.fail(f"{value!r} is not a number of seconds above 0, as 2 or 0.5", param, ctx)
        return seconds


class Amount(click.FloatRange):
    """A finite number within bounds; click's own range takes NaN, and infinity where it has no upper bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


URL = UrlType()
LISTEN_ADDRESS = ListenAddressType()
SECONDS = SecondsType()
PORT = click.IntRange(0, 65535)
"""A TCP port; 0 takes a free one."""
FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
"""A file that is there and can be read."""
