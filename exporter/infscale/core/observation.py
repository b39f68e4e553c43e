"""What was seen: the counts, a measurement for each metric of the policy and, where a source knows them, the Pods.

Fleet sources, the simulator and the test vectors build an `Observation`; the core reads it and nothing else. Times are
Unix seconds on one clock (any zero does, as long as all of them share it).
"""

from __future__ import annotations

from dataclasses import dataclass

from infscale.core.numbers import LONG_AGO_S

ContainerMilli = tuple[str, int | None]
"""A container's name and its thousandths; None where it has no value (or asks for none)."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A Pod of the workload, as far as the HPA looks at it.

    Attributes:
        name: its name.
        phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        ready: status of its Ready condition: `True`, `False`, `Unknown`; None where it has no such condition.
        start_time_s: when the kubelet saw it; None where it has no start time.
        transition_time_s: when its Ready condition last changed.
        deleting: whether it has a deletion timestamp.
        requests_milli: what each container asks for of the resource that is measured.
    """

    name: str
    phase: str = "Running"
    ready: str | None = "True"
    start_time_s: float | None = LONG_AGO_S
    transition_time_s: float = LONG_AGO_S
    deleting: bool = False
    requests_milli: tuple[ContainerMilli, ...] = ()

    @property
    def running_and_ready(self) -> bool:
        """Whether it is counted by Value targets. Source: replica_calculator.go, `getReadyPodsCount`."""
        return self.phase == "Running" and self.ready == "True"


@dataclass(frozen=True, slots=True)
class PodSample:
    """What the metrics API says of one Pod.

    Attributes:
        pod: the Pod's name; there may be samples of Pods that are gone.
        values_milli: one entry per container; a single one with an empty name for a Pods metric.
        time_s: when it was taken.
        window_s: over how long.
    """

    pod: str
    values_milli: tuple[ContainerMilli, ...]
    time_s: float = LONG_AGO_S
    window_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """The value of one metric of the policy.

    Attributes:
        samples_milli: the items of an External or Object metric; none at all is an error, not 0.
        pod_samples: the samples of a Pods or Resource metric; none at all is an error, not 0.
        failure: why it could not be read; empty if it was.
    """

    samples_milli: tuple[int, ...] = ()
    pod_samples: tuple[PodSample, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at the workload.

    Attributes:
        now_s: the instant of the evaluation.
        spec_replicas: what the workload asks for (`scale.spec.replicas`).
        status_replicas: what it has (`scale.status.replicas`): more during a surge, fewer under a quota.
        measurements: one for each metric of the policy, in its order.
        pods: the Pods; the queue metrics (External, AverageValue) need none.
    """

    now_s: float
    spec_replicas: int
    status_replicas: int
    measurements: tuple[Measurement, ...]
    pods: tuple[Pod, ...] = ()
