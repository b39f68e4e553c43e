"""Where a drain's report goes: the engine's log and the sidecar. Best effort, bounded, and nothing is ever waited for.

Called by `infscale.drain.hook`. Kubernetes shows nothing of a hook that succeeds, so that what it saw must be said
elsewhere.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import os
import time

from infscale.errors import UsageError
from infscale.scrape_http import read_head
from infscale.scrape_url import split_url
from infscale.scrape_wire import Deadline, Wire, WireFault

POST_S = 0.3


def append(path: str, line: str) -> bool:
    """Appends a line to a file, pipe or terminal, without waiting: one that is full or not ours to open gets none."""
    if not path:
        return False
    try:
        # A descriptor below /proc is opened anew, so that O_NONBLOCK is ours alone and the engine's stays as it was.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.write(descriptor, line.encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def post(url: str, body: str, timeout_s: float = POST_S) -> bool:
    """Posts JSON to the sidecar, all in at most `timeout_s` seconds; whether it was taken (a 2xx answer)."""
    if not url:
        return False
    wire = Wire(Deadline(time.monotonic, timeout_s))
    data = body.encode()
    try:
        where = split_url(url)
        head = [
            f"POST {where.path} HTTP/1.1",
            f"Host: {where.host_header}",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
            "Connection: close",
        ]
        wire.connect(where)
        wire.send("\r\n".join([*head, "", ""]).encode() + data)
        return 200 <= read_head(wire).status < 300
    except (UsageError, WireFault):
        return False
    finally:
        wire.close()
