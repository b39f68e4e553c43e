"""Which Pods a ReplicaSet gives up when a workload scales down: told by deletion costs, once for each such decision.

A ReplicaSet takes Pods that do not run first, then those that are not ready, then the lowest
`controller.kubernetes.io/pod-deletion-cost` (Kubernetes, pkg/controller/controller_utils.go, `ActivePodsWithRanks`).
Left alone it looks at ages, and may take the replica with the most requests. Costs are in bands, and are written only
when a scale-down was decided and only on the Pods among which the choice then falls: the Kubernetes documentation
warns against following a metric with them. Called by `infscale.applier`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from infscale.kube.errors import Conflict, KubeError, NotFound
from infscale.kube.objects import DELETION_COST, Pod

log = logging.getLogger(__name__)

OURS = "infscale.dev/deletion-cost"
"""The annotation that keeps the cost that infscale wrote: a cost that is not the same is another's."""

IDLE_COST, BUSY_COST, UNKNOWN_COST = 0, 100, 199
"""Nothing in flight; 100 and the band of what is; a replica that gives no value is the last to be taken for idle."""

BUDGET_S = 10.0
"""For all writes and their echo: less than from one evaluation to the next. What is missing then is written by the
next one, which finds the others done."""

_FIRST_PAUSE_S = 0.25
_NAMES_SHOWN = 5


class PodWriter(Protocol):
    """What is needed of `infscale.kube.cluster.Cluster`; both raise KubeError."""

    def pods(self, namespace: str, selector: str) -> list[Pod]:
        """The Pods that a selector selects."""
        ...

    def annotate_pod(self, pod: Pod, annotations: Mapping[str, str | None]) -> Pod:
        """Set annotations of a Pod; Conflict where it has changed since it was read."""
        ...


def cost_of(inflight: float | None) -> int:
    """The deletion cost of a Pod with so many requests in flight; None: not known.

    A band is at most 25 % wide, four for each doubling, so that costs stay put while loads breathe: 1 is 100, 2 is 104,
    3 is 106, 4 to 8 are 108 to 112, 10 is 113, 16 is 116, 1000 is 139.
    """
    if inflight is None:
        return UNKNOWN_COST
    if inflight <= 0:
        return IDLE_COST
    mantissa, exponent = math.frexp(max(1.0, inflight))  # mantissa from 0.5 to 1
    band = 4 * (exponent - 1) + int(8 * mantissa) - 4
    return min(BUSY_COST + band, UNKNOWN_COST - 1)


def candidates(pods: Sequence[Pod], leaving: int) -> list[Pod]:
    """The Pods among which costs decide when so many leave.

    Those that do not run or are not ready leave before any that is ready, whatever they cost; where as many leave as
    there are of a sort, no choice is left.
    """
    staying = [pod for pod in pods if not pod.deleting and not pod.ended]
    running = [pod for pod in staying if pod.phase == "Running"]
    left = leaving - (len(staying) - len(running))
    for sort in ([p for p in running if p.ready != "True"], [p for p in running if p.ready == "True"]):
        if 0 < left < len(sort):
            return sort
        left -= len(sort)
    return []


def is_foreign(pod: Pod) -> bool:
    """Whether somebody else wrote the Pod's deletion cost."""
    cost = pod.annotations.get(DELETION_COST)
    return cost is not None and cost != pod.annotations.get(OURS)


def annotations_of(cost: int) -> dict[str, str | None]:
    """What is written for a cost: the cost, and that it is ours."""
    return {DELETION_COST: str(cost), OURS: str(cost)}


class DeletionCosts:
    """Writes the costs of one workload's Pods.

    Args:
        cluster: the API.
        sleep, clock: waits for seconds, and monotonic seconds.
    """

    def __init__(
        self,
        cluster: PodWriter,
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._sleep, self._clock = cluster, sleep, clock

    def steer(self, namespace: str, selector: str, leaving: int, inflight: Mapping[str, float | None]) -> str:
        """Make those with the least in flight the cheapest, and wait until the API shows it.

        Args:
            namespace: of the workload.
            selector: of its Pods.
            leaving: how many Pods are to leave.
            inflight: requests in flight by Pod; None, or not in it: not known.

        Returns:
            What a person should know, in one line: the Pods whose cost another wrote, which are left alone.

        Raises:
            KubeError: a cost could not be written, or does not show within BUDGET_S.
        """
        deadline_s, pause_s = self._clock() + BUDGET_S, 0.0
        while True:
            chosen = candidates(self._cluster.pods(namespace, selector), leaving)
            foreign = [pod for pod in chosen if is_foreign(pod)]
            wanted = {pod.name: annotations_of(cost_of(inflight.get(pod.name))) for pod in chosen}
            lacking = [pod for pod in chosen if not is_foreign(pod) and not _shows(pod, wanted[pod.name])]
            if not lacking:
                return _told(foreign, len(chosen))
            for pod in lacking:
                if self._clock() < deadline_s:
                    self._write(pod, wanted[pod.name])
            if self._clock() + pause_s >= deadline_s:
                raise KubeError(f"the deletion costs of {_names(lacking)} do not show after {BUDGET_S:g} s")
            self._sleep(pause_s)
            pause_s = max(_FIRST_PAUSE_S, 2 * pause_s)

    def _write(self, pod: Pod, wanted: Mapping[str, str | None]) -> None:
        """One cost; a Pod that has changed meanwhile, or is gone, is looked at anew with the others."""
        try:
            self._cluster.annotate_pod(pod, wanted)
        except (Conflict, NotFound) as error:
            log.debug("deletion cost not written", extra={"pod": pod.name, "reason": str(error)})
        else:
            log.info("deletion cost", extra={"pod": pod.name, "cost": wanted[DELETION_COST]})


def _shows(pod: Pod, wanted: Mapping[str, str | None]) -> bool:
    return all(pod.annotations.get(key) == value for key, value in wanted.items())


def _told(foreign: Sequence[Pod], count: int) -> str:
    """The line about the costs that another wrote; empty if there are none."""
    if not foreign:
        return ""
    log.warning("deletion costs of another writer are left alone", extra={"pods": _names(foreign)})
    return f"{len(foreign)} of {count} Pods keep the deletion cost that another wrote: {_names(foreign)}"


def _names(pods: Sequence[Pod]) -> str:
    more = len(pods) - _NAMES_SHOWN
    return ", ".join(pod.name for pod in pods[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
