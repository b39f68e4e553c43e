"""The source `kubernetes:KIND/NS/NAME`: the Pods of a workload, through the API, and what each has in flight.

The API is the truth about which Pods there are and which of them leave, so nothing is missed that it lists no more.
The recommender and `infscale kube` use it; they give the `infscale.kube` cluster.
"""

from __future__ import annotations

from typing import Protocol

from infscale.core.replicas import Fleet
from infscale.errors import SourceError
from infscale.fleet.members import Members
from infscale.fleet.source import FleetSettings, WorkloadName
from infscale.fleet.survey import Place, Survey, url_of
from infscale.kube.objects import Pod, Workload

EXAMPLE = "kubernetes:deployment/inference/vllm"

READY_ONCE_AFTER_S = 30.0
"""A Pod that is not ready since later than this after its start was ready in between: the readiness delay of the HPA
(`--horizontal-pod-autoscaler-initial-readiness-delay`), which tells the two apart in the same way."""


class PodReader(Protocol):
    """What is needed of `infscale.kube.cluster.Cluster`; every method raises SourceError, bounded in time."""

    def workload(self, kind: str, namespace: str, name: str) -> Workload:
        """The workload."""
        ...

    def pods(self, namespace: str, selector: str) -> list[Pod]:
        """The Pods that a selector selects."""
        ...


class Kubernetes:
    """The Pods of a workload.

    Args:
        kind: as `deployment`.
        namespace: where.
        name: of the workload.
        settings: how its Pods are read.
        cluster: the API.
    """

    def __init__(self, kind: str, namespace: str, name: str, settings: FleetSettings, cluster: PodReader) -> None:
        self._kind, self._workload = kind, WorkloadName(namespace, name)
        self._settings, self._cluster = settings, cluster
        self._survey = Survey(settings, members=Members(lost_s=0.0))

    @property
    def workload(self) -> WorkloadName:
        """See `Source`."""
        return self._workload

    def observe(self, now_s: float) -> Fleet:
        """See `Source`. The two calls of the API come first, in a time of their own; then the replicas are read."""
        namespace, name = self._workload.namespace, self._workload.name
        try:
            workload = self._cluster.workload(self._kind, namespace, name)
            pods = self._cluster.pods(namespace, workload.selector)
            places = [self._place(pod) for pod in pods if not pod.ended]
            replicas = self._survey.take(places, now_s, self._survey.deadline())
        except SourceError as error:
            return Fleet(now_s, None, replicas=self._survey.missed(), failure=str(error))
        return Fleet(
            now_s,
            workload.spec_replicas,
            status_replicas=workload.status_replicas,
            ready_replicas=workload.ready_replicas,
            replicas=replicas,
        )

    def names(self) -> tuple[str, ...]:
        """See `Source`. The Pods' addresses: of sidecars with this source not every one may read every other."""
        workload = self._cluster.workload(self._kind, self._workload.namespace, self._workload.name)
        pods = self._cluster.pods(self._workload.namespace, workload.selector)
        return tuple(pod.ip for pod in pods if pod.ip and not pod.ended)

    def close(self) -> None:
        """See `Source`."""
        self._survey.close()

    def _place(self, pod: Pod) -> Place:
        url, engine = url_of(pod.ip, self._settings.sidecar_port, self._settings) if pod.ip else ("", False)
        return Place(
            pod.name,
            url,
            engine=engine,
            created_s=pod.creation_s or None,
            served_before=ready_once(pod),
            leaving=pod.deleting,
        )


def ready_once(pod: Pod) -> bool:
    """Whether a Pod is ready, or was: what this process cannot remember from before its own start."""
    if pod.ready == "True":
        return True
    if pod.start_s is None or pod.ready_since_s is None:
        return False
    return pod.ready_since_s > pod.start_s + READY_ONCE_AFTER_S
