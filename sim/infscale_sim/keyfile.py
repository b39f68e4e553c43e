"""Reads an API key from a file; for `infscale sim-engine` and `infscale load`. A key never stands on a command line."""

from __future__ import annotations

from pathlib import Path

from infscale.errors import UsageError

_MAX_BYTES = 16 * 1024


def read_key(path: Path | None, flag: str) -> str:
    """Return the key that a file holds, empty without a file.

    Raises:
        UsageError: the file cannot be read or does not hold one line without blanks.
    """
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror}") from None
    key = data.strip().decode("latin-1")
    if not key or len(data) > _MAX_BYTES or " " in key or not (key.isascii() and key.isprintable()):
        raise UsageError(f"{flag} {path} holds no key: expected one line without blanks, up to 16 kB")
    return key
