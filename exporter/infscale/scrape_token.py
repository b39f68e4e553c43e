"""A token out of a file that is read again each time, so that a rotated one is never late: 15 us.

Called by `infscale.scrape` for what it sends to an engine, and by `infscale.withdraw` for what it is sent.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import os
import stat

from infscale.errors import UsageError

MAX_TOKEN_BYTES = 16 * 1024


def read_token(path: str) -> str:
    """The token of a file: one word of printable ASCII.

    Raises:
        UsageError: names the file, never what is in it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a named pipe would block
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"token file {path} is not a regular file; it is read again each time")
            data = file.read(MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise UsageError(f"token file {path}: {file_fault(error)}") from None
    token = data.strip().decode("latin-1")
    if not token:
        raise UsageError(f"token file {path} is empty: expected one line with the token")
    if len(data) > MAX_TOKEN_BYTES or " " in token or not (token.isascii() and token.isprintable()):
        raise UsageError(f"token file {path} holds no token: expected one line without blanks, up to 16 kB")
    return token


def file_fault(error: OSError) -> str:
    """Why a file cannot be read, in words."""
    return getattr(error, "strerror", "") or "not readable"
