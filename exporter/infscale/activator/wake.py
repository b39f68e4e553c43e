"""Wakes a workload: while requests are held and nothing is ready, 0 replicas become 1. Never anything else.

A thread of its own, since calls of the Kubernetes API block. Whoever else scales the workload does so above 0; a write
carries the version that was read, so that of two activators (or another writer) one is first, and the other sees it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from infscale.errors import UsageError
from infscale.kube.errors import Conflict, KubeError, Throttled
from infscale.kube.kinds import workload_target
from infscale.kube.objects import Owner, Scale, Workload

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"""Whether requests are held, and while they are, at the workload: somebody may have scaled to 0 again."""

TRIES = 4
"""At a write that is overtaken by another; the version changes with each status of the workload too."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 15.0


class Scaler(Protocol):
    """What a `Waker` needs of `infscale.kube.cluster.Cluster`."""

    def workload(self, kind: str, namespace: str, name: str) -> Workload:
        """See there."""
        ...

    def set_replicas(self, workload: Workload, replicas: int, *, expected_resource_version: str) -> Scale:
        """See there."""
        ...

    def autoscalers(self, namespace: str, workload: Workload) -> tuple[Owner, ...]:
        """See there."""
        ...


class Waker:
    """Wakes one workload.

    Args:
        cluster: the API.
        kind, namespace, name: the workload.
        wanted: whether somebody waits and no replica is ready. Called from the waker's thread.

    Attributes:
        last: what came of the last look, in one line.

    Raises:
        UsageError: no such kind can be named.
    """

    def __init__(self, cluster: Scaler, kind: str, namespace: str, name: str, wanted: Callable[[], bool]) -> None:
        workload_target(kind, namespace, name)
        self._cluster, self._workload, self._wanted = cluster, (kind, namespace, name), wanted
        self._asked, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="waker", daemon=True)
        self._pause_s = 0.0
        self.last = "the first request that has to wait wakes it"

    def check(self) -> None:
        """Refuse at the start what would have two writers. What cannot be read is told, and is no reason to stay down.

        Raises:
            UsageError: KEDA scales the workload, and wakes it itself.
        """
        try:
            workload = self._cluster.workload(*self._workload)
            owners = self._cluster.autoscalers(workload.namespace, workload)
        except KubeError as error:
            log.warning("not known whether another wakes the workload", extra={"reason": str(error)})
            return
        for owner in owners:
            if owner.kind == "ScaledObject":
                raise UsageError(
                    f"--scale: ScaledObject {workload.namespace}/{owner.name} scales {workload}, and KEDA itself goes"
                    " from 0 to 1: use --scale none, and infscale_pending_requests as its trigger"
                )

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Wake nothing any more; a call under way is not waited for."""
        self._stop.set()
        self._asked.set()

    def ask(self) -> None:
        """Somebody waits."""
        self._asked.set()

    def look(self) -> float:
        """Look once, and wake what is at 0; how many seconds to wait before the next look."""
        try:
            said = self._wake()
            self._pause_s = 0.0
            pause_s = LOOK_AGAIN_S
        except KubeError as error:
            said = f"not woken: {error}"
            self._pause_s = min(max(_FIRST_PAUSE_S, 2 * self._pause_s), _LONGEST_PAUSE_S)
            asked_s = error.retry_after_s if isinstance(error, Throttled) else None
            pause_s = max(self._pause_s, min(asked_s or 0.0, _LONGEST_PAUSE_S))
        if said != self.last:
            log.log(logging.INFO if self._pause_s == 0.0 else logging.WARNING, "wake", extra={"result": said})
        self.last = said
        return pause_s

    def _wake(self) -> str:
        for left in reversed(range(TRIES)):
            workload = self._cluster.workload(*self._workload)
            if workload.spec_replicas > 0:
                return f"{workload} asks for {workload.spec_replicas} replicas"
            try:
                self._cluster.set_replicas(workload, 1, expected_resource_version=workload.resource_version)
            except Conflict:
                if not left:
                    raise
            else:
                return f"{workload}: from 0 to 1 replicas"
        raise AssertionError("unreachable")

    def _run(self) -> None:
        while not self._stop.is_set():
            self._asked.wait(LOOK_AGAIN_S)  # nobody asks anew for those in line when the replica goes that was ready
            self._asked.clear()
            while self._wanted() and not self._stop.is_set():
                self._stop.wait(self._look_safely())

    def _look_safely(self) -> float:
        try:
            return self.look()
        except Exception:
            log.exception("wake failed: this is a bug in infscale")
            return _LONGEST_PAUSE_S
