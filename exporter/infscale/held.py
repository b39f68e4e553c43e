"""Requests that activators hold before a workload, read from their pages. The evaluator asks at each look."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from infscale.activator.addresses import addresses_of
from infscale.core.replicas import Held
from infscale.errors import SourceError
from infscale.exposition import Selector
from infscale.reading import COUNT_LIMIT
from infscale.scrape import Page, Target, fetch, split_url

log = logging.getLogger(__name__)

PENDING = "infscale_pending_requests"
NAMES = ("workload_namespace", "workload")
MAX_ACTIVATORS = 16
"""Behind one name. Two are usual; more than these is another name than was meant."""

_SELECTOR = Selector([PENDING])


class HeldReader:
    """The held requests of one workload.

    Each address of the URL's host is an activator, and what they hold adds up. Where one does not answer, what the
    others hold is a lower bound: it wakes a workload; but if that is 0, nothing is known.

    Args:
        target: the activators' metrics page.
        namespace, name: the workload, where an activator serves several; empty where nobody told: then it may serve
            one only.
        dns_server: whom to ask for the addresses instead of those of /etc/resolv.conf.
    """

    def __init__(self, target: Target, namespace: str = "", name: str = "", *, dns_server: str = "") -> None:
        self._target, self._names = target, (namespace, name)
        self._addresses = addresses_of(split_url(target.url).host, dns_server)
        self._said = ""

    def read(self) -> Held:
        """What they hold now; unknown where none answers with a usable number, which is not 0."""
        requests, why_not = self._read()
        if why_not != self._said:
            self._said = why_not
            what = "held requests not known" if why_not else "held requests known again"
            fields = {"url": self._target.url, **({"reason": why_not} if why_not else {})}
            log.log(logging.WARNING if why_not else logging.INFO, what, extra=fields)
        return Held(requests)

    def _read(self) -> tuple[float | None, str]:
        """The requests, or None; and what is not known of them, and why."""
        targets = self._targets()
        if not 0 < len(targets) <= MAX_ACTIVATORS:
            return None, f"{len(targets)} activators behind the name: expected 1 to {MAX_ACTIVATORS}"
        if len(targets) == 1:
            answers = [self._read_one(targets[0])]
        else:
            with ThreadPoolExecutor(len(targets), thread_name_prefix="held") as pool:
                answers = list(pool.map(self._read_one, targets))
        known = sum(requests for requests, _ in answers if requests is not None)
        why_not = "; ".join(dict.fromkeys(reason for _, reason in answers if reason))
        return (None if why_not and not known else known), why_not

    def _targets(self) -> list[Target]:
        """The page of each activator."""
        url = split_url(self._target.url)
        try:
            addresses = self._addresses(self._target.timeout_s / 2)
        except SourceError:
            return [self._target]  # a name that only the system knows, as of /etc/hosts; or the read says what is wrong
        if addresses == (url.host,):
            return [self._target]
        hosts = [f"[{address}]" if ":" in address else address for address in addresses]
        return [
            replace(
                self._target,
                url=f"{url.scheme}://{host}:{url.port}{url.path}",
                server_name=self._target.server_name or url.host,
            )
            for host in hosts
        ]

    def _read_one(self, target: Target) -> tuple[float | None, str]:
        """What one holds, or None and why."""
        answer = fetch(target)
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
        if not 0 <= requests < COUNT_LIMIT:
            return None, f"{PENDING} is {requests:g}: expected a number of requests, 0 or more and below 2^53"
        return requests, ""
