"""What can go wrong between us and the Kubernetes API: the branch of the exception tree below `KubeError`.

    KubeError                 anything below, and answers that have no class of their own (400, 422, 5xx)
    ├── Unreachable           no connection, or one that broke; a read may be tried again
    ├── TimedOut              no whole answer within the time of the call
    ├── NotAllowed            401 and 403
    ├── NotFound              404
    ├── Conflict              409: the object has changed since it was read (or is there already); read it again
    ├── Throttled             429, and for how long
    ├── PodUnreachable        the API server is well, but the Pod did not answer its proxy
    └── BrokenAnswer          an answer that is not the JSON it should be

All of them are a source that could not be read: exit 1, and a caller that scales does nothing this time.
"""

from __future__ import annotations

import re

from infscale.errors import SourceError

_SECRETS = re.compile(r"Bearer \S+|eyJ[\w-]+\.[\w-]+\.[\w-]+")


class KubeError(SourceError):
    """The Kubernetes API, or kubectl, did not do what was asked.

    Attributes:
        status: the HTTP status of the answer; 0 where there was none.
    """

    def __init__(self, message: str, *, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class Unreachable(KubeError):
    """The API server could not be reached, or the connection broke."""


class TimedOut(KubeError):
    """The call took longer than it may."""


class NotAllowed(KubeError):
    """The API server does not know who we are (401) or does not let us (403)."""


class NotFound(KubeError):
    """There is no such object, or no such resource in this cluster."""


class Conflict(KubeError):
    """The object has changed since it was read; on creation: it is there already."""


class Throttled(KubeError):
    """The API server asks us to wait.

    Attributes:
        retry_after_s: for how long; None if it does not say.
    """

    def __init__(self, message: str, *, retry_after_s: float | None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message, status=429)


class PodUnreachable(KubeError):
    """The API server could not reach the Pod for us; nothing is said of the API server itself."""


class BrokenAnswer(KubeError):
    """An answer that is not JSON, or lacks what it must have."""


def one_line(text: str) -> str:
    """A text from outside on one line of at most 300 characters, without what looks like a token."""
    words = _SECRETS.sub("***", " ".join(text.split()))
    return words if len(words) <= 300 else words[:297] + "..."
