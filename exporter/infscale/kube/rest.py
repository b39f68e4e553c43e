"""One call to the Kubernetes API over either transport: back comes an object, or an error that says what to do.

A GET that met a busy or restarting API server is tried again, with jittered pauses that honour Retry-After, all within
the time of the call. Nothing else is ever sent twice: a PUT that broke may have been carried out. `cluster` and
`leases` call this.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping

from infscale.kube.errors import (
    BrokenAnswer,
    Conflict,
    KubeError,
    NotAllowed,
    NotFound,
    Throttled,
    TimedOut,
    Unreachable,
    one_line,
)
from infscale.kube.fields import Fields
from infscale.kube.transport import JSON, Answer, Method, Target, Transport

_TRY_AGAIN = (429, 500, 502, 503, 504)
_MAX_TRIES = 5
_FIRST_PAUSE_S = 0.1
_PAGE_ITEMS = 500
_GONE = 410

_VERBS_NEEDED = {
    "pods": ["list"],
    "horizontalpodautoscalers": ["list"],
    "scaledobjects": ["list"],
    "leases": ["get", "create", "update"],
    "endpointslices": ["list"],
    "pods/exec": ["create", "get"],
}


class Rest:
    """Calls over one transport.

    Args:
        transport: the way to the API server.
        timeout_s: for one call, further tries included, or for one list, all its pages included.
        max_items: of one list; more is an error.
        sleep, clock, jitter: what tests replace; the clock is monotonic, jitter is 0 to 1.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_s: float = 10.0,
        max_items: int = 10_000,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.transport = transport
        self._timeout_s, self._max_items = timeout_s, max_items
        self._sleep, self._clock, self._jitter = sleep, clock, jitter

    def call(
        self,
        method: Method,
        target: Target,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        content_type: str = JSON,
    ) -> Fields:
        """The object that the API server answers with.

        Raises:
            KubeError: as the classes of `errors` say.
        """
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        answer = self._answer(method, target, query or {}, data, content_type, self._clock() + self._timeout_s)
        return self._object(method, target, answer)

    def _object(self, method: Method, target: Target, answer: Answer) -> Fields:
        if answer.status >= 300:
            raise refusal(method, target, answer)
        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise BrokenAnswer(
                f"{method} {target}: the answer is not JSON but {_excerpt(answer.body)}: is there a proxy in between?",
                status=answer.status,
            ) from None
        return Fields(value, str(target))

    def collection(self, target: Target, selector: str = "") -> list[Fields]:
        """All objects of a collection that a label selector selects, read in pages.

        Raises:
            KubeError: also where there are more than `max_items`.
        """
        try:
            return self._collection(target, selector)
        except KubeError as error:
            if error.status != _GONE:
                raise
            return self._collection(target, selector)  # the mark of the next page was too old: once more from the start

    def _collection(self, target: Target, selector: str) -> list[Fields]:
        items: list[Fields] = []
        deadline = self._clock() + self._timeout_s
        query = {"limit": str(_PAGE_ITEMS)} | ({"labelSelector": selector} if selector else {})
        while True:
            page = self._object("GET", target, self._answer("GET", target, query, b"", JSON, deadline))
            items += page.items("items")
            more = page.at("metadata").text("continue", "")
            if len(items) > self._max_items or (more and len(items) == self._max_items):
                raise KubeError(f"{target}: more than {self._max_items} objects match {selector or 'everything'!r}")
            if not more:
                return items
            query["continue"] = more

    def _answer(
        self,
        method: Method,
        target: Target,
        query: Mapping[str, str],
        body: bytes,
        content_type: str,
        deadline: float,
    ) -> Answer:
        """The last answer of as many tries as the method and the deadline allow."""
        tries = _MAX_TRIES if method == "GET" else 1
        pause_s = _FIRST_PAUSE_S
        while True:
            tries -= 1
            wait_s = pause_s * (1 + self._jitter())
            left_s = deadline - self._clock()
            if left_s <= 0:
                raise TimedOut(f"{method} {target}: no answer within {self._timeout_s:g} s")
            try:
                answer = self.transport.request(
                    method, target, query=query, body=body, content_type=content_type, timeout_s=left_s
                )
            except Unreachable:
                if not tries or self._clock() + wait_s >= deadline:
                    raise
            else:
                wait_s = max(wait_s, answer.retry_after_s or 0.0)
                if answer.status not in _TRY_AGAIN or not tries or self._clock() + wait_s >= deadline:
                    return answer
            self._sleep(wait_s)
            pause_s *= 2


def refusal(method: Method, target: Target, answer: Answer) -> KubeError:
    """The error for an answer that is not what was asked for."""
    said = message(answer.body)
    call = f"{method} {target}"
    match answer.status:
        case 401:
            return NotAllowed(
                f"{call}: the API server does not accept our credentials ({said}): log in again (kubectl), or check"
                " that the Pod's service account and its token are current",
                status=401,
            )
        case 403:
            return NotAllowed(_forbidden(method, target, said), status=403)
        case 404:
            return NotFound(f"{call}: there is none ({said}): check the name and the namespace", status=404)
        case 409:
            return Conflict(f"{call}: it has changed since it was read ({said}): read it again", status=409)
        case 429:
            wait = "" if answer.retry_after_s is None else f", wait {answer.retry_after_s:g} s"
            return Throttled(f"{call}: the API server is too busy{wait} ({said})", retry_after_s=answer.retry_after_s)
        case status if status < 400:
            return KubeError(f"{call}: redirected (HTTP {status}): expected the API server itself", status=status)
        case status:
            return KubeError(f"{call}: HTTP {status}: {said}", status=status)


def _forbidden(method: Method, target: Target, said: str) -> str:
    """What a 403 lacks, and the line of a Role that gives it."""
    verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(
        method, "get" if target.name else "list"
    )
    needed = _VERBS_NEEDED.get(target.resource, ["get", "update"] if target.subresource == "scale" else ["get"])
    group = target.group or '""'
    verbs = ", ".join(needed if verb in needed else [*needed, verb])
    return (
        f"not allowed to {verb} {target}: add to a Role in namespace {target.namespace}: apiGroups: [{group}],"
        f" resources: [{target.resource}], verbs: [{verbs}] ({said})"
    )


def message(body: bytes) -> str:
    """What a Status object says, else the beginning of what came instead."""
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return _excerpt(body)
    text = status.get("message") if isinstance(status, dict) else None
    return one_line(text) if isinstance(text, str) and text else _excerpt(body)


def _excerpt(body: bytes) -> str:
    text = one_line(body[:400].decode("utf-8", "replace"))
    return repr(text[:120]) if text else "empty"
