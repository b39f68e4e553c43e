"""What a drain is told by a command's flags. Used by `drain`, `install_hook` and `sidecar_drain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.drain.options import DrainOptions

_FIELDS = {
    "engine": "engine",
    "grace": "grace_s",
    "exit_reserve": "exit_reserve_s",
    "max_grace": "max_grace_s",
    "connections": "connections",
    "drain_stale_after": "stale_after_s",
    "on_http_error": "on_http_error",
    "engine_token_file": "token_file",
    "leader_url": "leader_url",
}
"""The flag's value in the command's function, and the field of `DrainOptions`."""


def options_of(url: str, flags: Mapping[str, Any]) -> DrainOptions:
    """The options, checked; a flag that was not given, or that the command has not, leaves the field as it is.

    Raises:
        UsageError: flags that cannot be used, or contradict each other; in one line.
    """
    from infscale.drain.options import DrainOptions

    given = {field: flags[name] for name, field in _FIELDS.items() if flags.get(name) is not None}
    options = DrainOptions(url, **given)
    options.check()
    return options


def check_limit(options: DrainOptions) -> None:
    """Refuse a limit of the node that leaves no time to drain, while somebody is there to be told.

    Raises:
        UsageError: in one line.
    """
    from infscale.drain.options import MIN_WINDOW_S

    least_s = options.exit_reserve_s + MIN_WINDOW_S
    if options.effective_grace_s < least_s:
        raise UsageError(
            f"--max-grace is {options.effective_grace_s:g} s: expected at least {least_s:g} s, "
            f"{MIN_WINDOW_S:g} s more than --exit-reserve, or no time is left to drain"
        )
