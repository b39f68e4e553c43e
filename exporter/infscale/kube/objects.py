"""What the Kubernetes API told us, as values: the return types of `cluster.Cluster`. Times are Unix seconds (UTC)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from infscale.core.numbers import MAX_INT32
from infscale.kube.transport import Target

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""The annotation that a ReplicaSet looks at when it chooses which Pod leaves (lowest first)."""

_COST = re.compile(r"-[0-9]{1,12}|0|[1-9][0-9]{0,11}")


class Role(Enum):
    """What a container is for."""

    APP = "app"
    SIDECAR = "sidecar"
    """An init container with `restartPolicy: Always`: it runs beside the app and its request counts."""
    INIT = "init"
    """Runs before the app; its request counts for the scheduler only."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a container: its name (empty for none) and number."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a Pod or of a Pod template.

    Attributes:
        name: its name.
        role: what it is for.
        cpu_request_milli: thousandths of a CPU; None where it asks for none.
        image: its image; empty where it does not say.
        command, args: as in the manifest; what the image has instead is not seen here.
        ports: those that it names or tells.
        env: the plain values by name; those that come from elsewhere (`valueFrom`) are left out.
        container_id: of the container that runs or ran last; None where the status has none.
        restart_count: how often it was started anew.
        running: whether it runs now.
    """

    name: str
    role: Role
    cpu_request_milli: int | None
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    container_id: str | None = None
    restart_count: int = 0
    running: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """What is scaled.

    Attributes:
        kind: as in its manifest: `Deployment`.
        target: where it is in the API.
        uid: changes when it is deleted and made again.
        spec_replicas: what it asks for.
        status_replicas: the Pods there are, starting ones included, leaving ones not.
        ready_replicas: of these, how many are ready.
        selector: of its Pods, as `app=vllm,tier in (a,b)`.
        generation: goes up with each change of its spec.
        observed_generation: what its controller has seen of that, 0 for nothing; below `generation` the status is old.
        resource_version: goes up with each change at all.
        containers: of its Pod template (`spec.template`); empty for kinds that keep it elsewhere.
        annotations: its own.
        pod_annotations: those of its Pod template.
        paused: a Deployment whose roll-out is paused: a scale still goes, a new template does not.
    """

    kind: str
    target: Target
    uid: str
    spec_replicas: int
    status_replicas: int
    ready_replicas: int
    selector: str
    generation: int
    observed_generation: int
    resource_version: str
    containers: tuple[Container, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    paused: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        return self.target.name

    @property
    def namespace(self) -> str:
        """Where it is."""
        return self.target.namespace

    @property
    def cpu_request_milli(self) -> int | None:
        """What one replica asks for, in thousandths of a CPU."""
        return _sum_of_requests(self.containers)

    def __str__(self) -> str:
        return f"{self.kind.lower()} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Scale:
    """The `scale` subresource (autoscaling/v1).

    Attributes:
        spec_replicas: what is asked for.
        status_replicas: what there is.
        selector: of the Pods; empty where the resource does not tell.
        resource_version: of the workload; a write with an older one is a conflict.
    """

    spec_replicas: int
    status_replicas: int
    selector: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """The controller that an object belongs to."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A Pod.

    Attributes:
        name: its name.
        uid: its identity; a StatefulSet gives the same name to the next Pod.
        phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        creation_s: when it was made.
        start_s: when the kubelet saw it; None before.
        deletion_s: when it will be removed by force; None while nobody deletes it.
        ready: status of its Ready condition: `True`, `False`, `Unknown`; None where it has none.
        ready_since_s: when that condition last changed; None where it has none.
        ip: its address; empty before it has one.
        labels: its labels.
        annotations: its annotations.
        containers: all of them, apps first.
        namespace: where it is.
        resource_version: changes with each write.
        owner: the controller that made it (a ReplicaSet, a StatefulSet); None where it has none.
    """

    name: str
    uid: str
    phase: str
    creation_s: float
    start_s: float | None
    deletion_s: float | None
    ready: str | None
    ready_since_s: float | None
    ip: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[Container, ...]
    namespace: str = ""
    resource_version: str = ""
    owner: OwnerReference | None = None

    @property
    def deleting(self) -> bool:
        """Whether it is on its way out."""
        return self.deletion_s is not None

    @property
    def ended(self) -> bool:
        """Whether it has run to its end, and never runs again."""
        return self.phase in ("Succeeded", "Failed")

    def port(self, name: str) -> int | None:
        """The number of the port that a container names so; None where none does."""
        found = (port.number for container in self.containers for port in container.ports if port.name == name)
        return next(found, None)

    def container(self, name: str) -> Container | None:
        """The container of that name."""
        return next((container for container in self.containers if container.name == name), None)

    @property
    def cpu_request_milli(self) -> int | None:
        """What its apps and sidecars ask for, in thousandths of a CPU; None if one of them does not say."""
        return _sum_of_requests(self.containers)

    @property
    def deletion_cost(self) -> int:
        """Its deletion cost; 0 where it has none or one that is no int32, as a ReplicaSet sees it.

        Source: kubernetes pkg/apis/core/helper, `GetDeletionCostFromPodAnnotations`: an int32 without `+` and without a
        leading zero.
        """
        text = self.annotations.get(DELETION_COST, "0")
        cost = int(text) if _COST.fullmatch(text) else 0
        return cost if -MAX_INT32 - 1 <= cost <= MAX_INT32 else 0


@dataclass(frozen=True, slots=True)
class Owner:
    """An autoscaler that already sets the replicas of a workload.

    Attributes:
        kind: `HorizontalPodAutoscaler` or `ScaledObject`; KEDA makes an HPA for its ScaledObject, so both appear.
        name: its name.
        min_replicas: its minimum; at 0 a ScaledObject still goes to 0, by KEDA itself, where scaling down is disabled.
        max_replicas: its maximum.
        scale_down_disabled: `scaleDown.selectPolicy: Disabled`: it only ever scales up.
    """

    kind: str
    name: str
    min_replicas: int
    max_replicas: int
    scale_down_disabled: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Pod in an EndpointSlice (discovery.k8s.io/v1).

    Attributes:
        slice_name: the slice.
        service: the Service whose slice it is; empty where the slice does not tell.
        address: of the Pod.
        ready: it takes new connections.
        serving: it is ready, whether it terminates or not.
        terminating: it has a deletion timestamp.
    """

    slice_name: str
    service: str
    address: str
    ready: bool
    serving: bool
    terminating: bool


@dataclass(frozen=True, slots=True)
class ProxyAnswer:
    """What a Pod answered over the API server's proxy: its own status and body."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ExecAnswer:
    """What a command in a container came to: its exit code, its output, and its complaints as text."""

    code: int
    stdout: bytes
    stderr: str


def _sum_of_requests(containers: tuple[Container, ...]) -> int | None:
    """The sum over what runs all the time; None without containers or where one of them does not say.

    Source: pkg/controller/podautoscaler/replica_calculator.go, `calculateRequests`: a Pod with a container that has no
    request has no utilisation.
    """
    requests = [container.cpu_request_milli for container in containers if container.role is not Role.INIT]
    said = [request for request in requests if request is not None]
    return sum(said) if said and len(said) == len(requests) else None
