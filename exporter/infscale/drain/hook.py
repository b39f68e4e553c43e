"""What the zip application runs: one drain, told by a command line that is never refused, and its report.

Called by the launcher (`infscale.drain.launcher`) as `python3 -I -S -B infscale-drain.pyz ...`, or directly where an
image has no shell. The exit status is 0, for Kubernetes makes an event of any other and changes nothing; only to its
launcher, which has further ways to wait, the hook says 4 when it could not do its work.

The clock starts before most is imported: what reads an engine (100 ms) is, while requests settle.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence

from infscale.drain.arguments import FLAGS, Arguments, parse

if TYPE_CHECKING:
    from infscale.drain.options import DrainOptions
    from infscale.engines.profile import Profile

URL = "http://127.0.0.1:8000/metrics"
"""Where vLLM has its page; for a command line that names none."""

CANNOT = 4
"""Exit status for the launcher: not for want of another Python."""

SETTLE_S = 5.0
_LONGEST_S = 3600.0
_LEAST_POST_S = 0.03  # enough on the loopback address; a last read that hangs leaves no more
_UPTIME = "/proc/uptime"


def main(words: Sequence[str]) -> int:
    """Drains, and tells the engine's log, the sidecar and standard output of it.

    Args:
        words: the command line, without the program.
    """
    arguments = parse(words)
    begin_s = time.monotonic() - _spent_s(arguments.started)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)  # the launcher's, for an interpreter that hangs
    try:
        _drain(arguments, begin_s)
    except Exception as error:
        _complain([f"the drain could not be done: {type(error).__name__}: {error}"])
        if arguments.started:
            return CANNOT
        time.sleep(max(0.0, begin_s + SETTLE_S - time.monotonic()))
    return 0


def _drain(arguments: Arguments, begin_s: float) -> None:
    """The drain, with the report before and after it.

    Raises:
        UsageError: nothing can be made of a URL.
    """
    from infscale.drain.report import MAX_NOTE_CHARACTERS
    from infscale.drain.run import drain
    from infscale.drain.tell import append, post

    options = _options(arguments)
    profiles = _profiles(arguments)
    if options.engine and options.engine not in profiles:
        arguments.ignored.append(f"engine {options.engine!r}: known are {', '.join(sorted(profiles))}")
        options = replace(options, engine="")
    _complain([f"ignored {what}" for what in arguments.ignored])
    sidecar = arguments.sidecar_url and f"{arguments.sidecar_url.rstrip('/')}/drain/report"
    post(sidecar, _started(options))
    report = drain(options, profiles=tuple(profiles.values()), clock=_clock(begin_s))
    if arguments.ignored:
        note = "; ".join([*filter(None, [report.note]), *arguments.ignored])
        report = replace(report, note=note[:MAX_NOTE_CHARACTERS])
    line = report.to_json() + "\n"
    append(arguments.report_file, line)
    _print(line)
    post(sidecar, line, _post_s(begin_s + options.schedule.return_s - time.monotonic()))


def _post_s(left_s: float) -> float:
    """How long the sidecar may take with the report, when the hook must have returned in so many seconds."""
    from infscale.drain.tell import POST_S

    return min(POST_S, max(_LEAST_POST_S, left_s - _LEAST_POST_S))


def _options(arguments: Arguments) -> DrainOptions:
    """The options that can be used: what is out of bounds is put right, and said.

    Raises:
        UsageError: nothing can be made of a URL.
    """
    from infscale.drain.options import MAX_GRACE_S, MIN_GRACE_S, MIN_WINDOW_S, ON_HTTP_ERROR, DrainOptions

    given: Dict[str, Any] = {**vars(DrainOptions(URL)), **arguments.options}
    given["grace_s"] = min(max(given["grace_s"], MIN_GRACE_S), MAX_GRACE_S)
    given["exit_reserve_s"] = min(given["exit_reserve_s"], given["grace_s"] - MIN_WINDOW_S)
    for name in ("max_grace_s", "stale_after_s"):
        given[name] = given[name] or None
    if given["on_http_error"] not in ON_HTTP_ERROR:
        given["on_http_error"] = DrainOptions.on_http_error
    for name, asked in arguments.options.items():
        if given[name] != asked:
            instead = "there is none" if given[name] is None else f"it is {given[name]}"
            arguments.ignored.append(f"{FLAGS[name]} {asked}: {instead}")
    options = DrainOptions(**given)
    options.check()
    return options


def _profiles(arguments: Arguments) -> Dict[str, Profile]:
    """The engine profiles by name: those beside the zip, then the built-in ones."""
    from infscale.engines import PROFILES

    found: Dict[str, Profile] = {}
    for mapping in _mappings():
        from infscale.engines.custom import profile_from_mapping
        from infscale.errors import ConfigError

        try:
            profile = profile_from_mapping(mapping, source="profiles.json")
        except ConfigError as error:
            arguments.ignored.append(str(error))
        else:
            found[profile.name] = profile
    return {**found, **{name: profile for name, profile in PROFILES.items() if name not in found}}


def _mappings() -> List[object]:
    """What stands in `profiles.json` beside the zip; nothing where there is none."""
    import json

    try:
        with open(os.path.join(os.path.dirname(sys.argv[0]), "profiles.json"), "rb") as file:
            values = json.load(file)
    except (OSError, ValueError):
        return []
    return values if isinstance(values, list) else []


def _started(options: DrainOptions) -> str:
    """What the sidecar is told at the start."""
    import json

    return json.dumps({"event": "started", "engine": options.engine, "grace_s": options.grace_s})


def _spent_s(started: str) -> float:
    """Seconds since the launcher began, by the clock that it read; 0 without a launcher or that clock."""
    try:
        with open(_UPTIME, "rb") as file:
            spent_s = float(file.read().split()[0]) - float(started)
    except (OSError, ValueError, IndexError):
        return 0.0
    return spent_s if 0 <= spent_s < _LONGEST_S else 0.0


def _clock(begin_s: float) -> Callable[[], float]:
    """Monotonic seconds, the first reading of which is the hook's start: the drain's own was later."""
    return chain([begin_s], iter(time.monotonic, None)).__next__


def _complain(lines: List[str]) -> None:
    for line in lines:
        _print(f"infscale-drain: {' '.join(line.split())}\n", error=True)


def _print(text: str, *, error: bool = False) -> None:
    """Writes to standard output or standard error, whoever may have closed it."""
    with suppress(OSError):
        os.write(2 if error else 1, text.encode())
