"""The hook's command line, read so that it never fails: what cannot be used is named, and a default holds instead.

Called by `infscale.drain.hook`. The same options as `infscale drain` and the launcher, without a library: argparse
alone costs 10 ms, and ends the program at an option that it does not know.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

SIDECAR_URL = "http://127.0.0.1:10048"
REPORT_FILE = "/proc/1/fd/1"
"""The standard output of the container's first process, which as a rule is the engine: its log."""

_TEXTS = {
    "--url": "url",
    "--engine-url": "url",
    "--engine": "engine",
    "--leader-url": "leader_url",
    "--on-http-error": "on_http_error",
    "--engine.token-file": "token_file",
    "--token-file": "token_file",
    "--sidecar-url": "sidecar_url",
    "--report-file": "report_file",
    "--started": "started",
}
_SECONDS = {
    "--grace": "grace_s",
    "--exit-reserve": "exit_reserve_s",
    "--max-grace": "max_grace_s",
    "--drain-stale-after": "stale_after_s",
}
FLAGS = {name: flag for flag, name in {**_TEXTS, **_SECONDS}.items()}
"""What a field of `DrainOptions` is called on the command line."""

_SWITCHES = {"--connections": True, "--no-connections": False}
_SWITCHED = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False, "auto": None}


@dataclass
class Arguments:
    """What stands on the command line.

    Attributes:
        options: fields of `DrainOptions` that are given.
        sidecar_url: where the sidecar hears of the drain; empty for nowhere.
        report_file: to which the report's line is appended; empty for none.
        started: the machine's uptime in seconds when the launcher began, as text; empty without a launcher.
        ignored: what was of no use, a few words each.
    """

    options: Dict[str, Any] = field(default_factory=dict)
    sidecar_url: str = SIDECAR_URL
    report_file: str = REPORT_FILE
    started: str = ""
    ignored: List[str] = field(default_factory=list)

    def give(self, name: str, value: Any) -> None:
        """Keeps the value of one option; a later one wins."""
        if name in ("sidecar_url", "report_file", "started"):
            setattr(self, name, value)
        else:
            self.options[name] = value


def parse(words: Sequence[str]) -> Arguments:
    """Reads a command line: `--option VALUE`, `--option=VALUE`, and switches, which need no value."""
    found = Arguments()
    left = list(words)
    while left:
        option, equals, value = left.pop(0).partition("=")
        if option in _SWITCHES:
            _switch(found, option, value or (left.pop(0) if left and left[0] in _SWITCHED else ""))
            continue
        if not equals and left and not left[0].startswith("--"):
            value, equals = left.pop(0), " "
        if option in _TEXTS and equals:
            found.give(_TEXTS[option], value)
        elif option in _SECONDS and equals:
            number = seconds(value)
            if number is None:
                found.ignored.append(f"{option} {value!r}: expected seconds, as 30")
            else:
                found.give(_SECONDS[option], number)
        else:
            known = option in _TEXTS or option in _SECONDS
            found.ignored.append(f"{option}: expected a value" if known else f"{option}{equals}{value}: unknown option")
    return found


def _switch(found: Arguments, option: str, value: str) -> None:
    if value and value not in _SWITCHED:
        found.ignored.append(f"{option}={value}: expected on, off or auto")
    else:
        found.give("connections", _SWITCHED[value] if value else _SWITCHES[option])


def seconds(text: str) -> Optional[float]:
    """A number as `30` or `7.5`, as the launcher reads it too; None for anything else."""
    plain = text.replace(".", "", 1)
    return float(text) if plain.isascii() and plain.isdigit() and len(plain) < 10 else None
