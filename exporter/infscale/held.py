"""Requests that an activator holds before a workload, read from its page. The evaluator asks at each look."""

from __future__ import annotations

import logging

from infscale.core.replicas import Held
from infscale.exposition import Selector
from infscale.scrape import Page, Target, fetch

log = logging.getLogger(__name__)

PENDING = "infscale_pending_requests"
NAMES = ("workload_namespace", "workload")

_SELECTOR = Selector([PENDING])


class HeldReader:
    """The held requests of one workload.

    Args:
        target: the activator's metrics page.
        namespace, name: the workload, where an activator serves several; empty where nobody told: then it may serve
            one only.
    """

    def __init__(self, target: Target, namespace: str = "", name: str = "") -> None:
        self._target, self._names = target, (namespace, name)
        self._said = ""

    def read(self) -> Held:
        """What it holds now; unknown where it does not answer with a usable number, which is not 0."""
        requests, why_not = self._read()
        if why_not != self._said:
            self._said = why_not
            what = "held requests not known" if why_not else "held requests known again"
            fields = {"url": self._target.url, **({"reason": why_not} if why_not else {})}
            log.log(logging.WARNING if why_not else logging.INFO, what, extra=fields)
        return Held(requests)

    def _read(self) -> tuple[float | None, str]:
        """The requests, or None and why."""
        answer = fetch(self._target)
        if not isinstance(answer, Page):
            return None, answer.message
        if answer.status != 200:
            return None, f"HTTP {answer.status}: expected the activator's metrics page"
        selection = _SELECTOR.select(answer.body.decode("utf-8", "replace"), "line")
        if PENDING in selection.broken:
            return None, str(selection.broken[PENDING])
        found: dict[tuple[str, ...], float] = {}
        for sample in selection.samples.get(PENDING, ()):
            workload = tuple(sample.labels.get(name, "") for name in NAMES)
            if all(wanted in ("", told) for wanted, told in zip(self._names, workload, strict=True)):
                found[workload] = found.get(workload, 0.0) + sample.value
        if len(found) != 1:
            of = "/".join(filter(None, self._names)) or "one workload, or --workload to tell which"
            return None, f"{len(found)} workloads with {PENDING}: expected that of {of}"
        (requests,) = found.values()
        if not 0 <= requests < float("inf"):
            return None, f"{PENDING} is {requests:g}: expected a number from 0 up"
        return requests, ""
