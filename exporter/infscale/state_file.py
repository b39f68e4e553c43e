"""The state file: what the decision core remembers, kept across restarts.

`infscale decide` and `kube` read with `read_state`, which refuses a file that cannot be used. The long-running roles
read with `recover_state`, which sets such a file aside and begins anew, and write with `write_state` after each
evaluation: at any instant the file is the old state or the new one, whole.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from infscale.core.memory import ScaleState, without_future
from infscale.core.memory_json import from_json, to_json
from infscale.errors import StateError

MOST_BYTES = 64 * 2**20
"""1,000 replicas with full TTFT histograms are under 2 MB."""


@dataclass(frozen=True)
class Loaded:
    """A state that was read.

    Attributes:
        state: to hand to `core.layer.decide`; a new one where there was no file.
        warnings: what a person should know, a line each.
        reset: whether an unusable file was set aside (`infscale_state_resets_total`).
        dropped: how many entries lay in the future and are not in `state`; the file still has them.
    """

    state: ScaleState
    warnings: tuple[str, ...] = ()
    reset: bool = False
    dropped: int = 0


def read_state(path: Path, now_s: float) -> Loaded:
    """The state in a file, without what lies after `now_s`; a new state where there is no file.

    Raises:
        StateError: the file is damaged, empty, foreign, of a later version or not readable; it names the file.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
            raise StateError(f"{path}: not a regular file: expected a state file of infscale; name another file")
        with path.open("rb") as file:
            content = file.read(min(status.st_size, MOST_BYTES) + 1)  # so much is taken from memory at once
    except FileNotFoundError:
        return Loaded(ScaleState())
    except OSError as fault:
        raise StateError(f"{path}: cannot be read: {_cause(fault)}; expected a state file of infscale") from fault
    state, dropped = without_future(_parsed(path, content), now_s)
    if not dropped:
        return Loaded(state)
    words = f"{path}: {dropped} entries lie in the future and were dropped; check this machine's clock"
    return Loaded(state, (words,), dropped=dropped)


def recover_state(path: Path, now_s: float) -> Loaded:
    """As `read_state`, but an unusable file is moved to `FILE.bad` and a new state begun.

    The first evaluation then logs the present count, which holds scale-down for one window.

    What a write left behind whose process was killed in the middle of it is taken away.

    Raises:
        StateError: the file cannot be moved either, so that no state could ever be kept.
    """
    target = Path(os.path.realpath(path))
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with contextlib.suppress(OSError):
            left.unlink()
    try:
        return read_state(path, now_s)
    except StateError as fault:
        aside = path.with_name(path.name + ".bad")
        try:
            os.replace(path, aside)
        except OSError as stuck:
            raise StateError(f"{fault}; it cannot be moved to {aside}: {_cause(stuck)}") from stuck
        return Loaded(ScaleState(), (f"{fault}; moved to {aside}, beginning anew",), reset=True)


def write_state(path: Path, state: ScaleState) -> None:
    """Replace the file, as `write_whole` does.

    Raises:
        StateError: see `write_whole`.
    """
    write_whole(path, json.dumps(to_json(state), separators=(",", ":"), allow_nan=False))


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step: a temporary file beside it, flushed to the disk, then renamed.

    A link is followed, so that it stays one. When this fails the old file is as it was. The record of a retirement
    (`retire.persisted`) is written so too.

    Raises:
        StateError: the folder is not there or not writable, or the disk is full; it names the file.
    """
    target = Path(os.path.realpath(path))
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _flush_folder(target.parent)
    except OSError as fault:
        with contextlib.suppress(OSError):
            if temporary:
                os.unlink(temporary)
        words = f"cannot be written: {_cause(fault)}; expected a writable folder {target.parent}"
        raise StateError(f"{path}: {words}") from fault


def _parsed(path: Path, content: bytes) -> ScaleState:
    if len(content) > MOST_BYTES:
        raise StateError(f"{path}: over {MOST_BYTES >> 20} MiB: not a state of infscale; name another file")
    if not content.strip():
        raise StateError(f"{path}: empty: expected a state of infscale; remove the file to start anew")
    try:
        data = json.loads(content.decode())
    except (ValueError, RecursionError) as fault:
        where = f"line {fault.lineno}: {fault.msg}" if isinstance(fault, json.JSONDecodeError) else "not JSON"
        raise StateError(
            f"{path}: damaged ({where}): expected a state of infscale; move it aside to start anew"
        ) from fault
    return from_json(data, str(path))


def _flush_folder(folder: Path) -> None:
    """Make the rename last through a power cut; some file systems have no flush of folders, and lose nothing else."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _cause(fault: OSError) -> str:
    return fault.strerror or type(fault).__name__
