"""Which Pods count: their readiness, what they ask for, and what was measured on them.

Only Pods and Resource metrics look at this, and Value targets for the number of ready Pods. Used by `core.hpa`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infscale.core.decision import Invalid, Reason
from infscale.core.observation import ContainerMilli, Observation, Pod, PodSample
from infscale.core.policy import Controller

FINISHED_PHASES = ("Failed", "Succeeded")


@dataclass(frozen=True, slots=True)
class PodGroups:
    """The Pods by how they count.

    Attributes:
        ready: how many are running with a sample that can be trusted.
        unready: their samples are dropped; on the way up they count as using nothing.
        missing: alive without a sample; assumed to use nothing on the way up and all they may on the way down.
        ignored: leaving or finished; they and their samples do not count.
    """

    ready: int
    unready: tuple[str, ...]
    missing: tuple[str, ...]
    ignored: tuple[str, ...]


def group_pods(
    pods: Iterable[Pod], samples: Mapping[str, PodSample], resource: str, now_s: float, controller: Controller
) -> PodGroups:
    """Sort Pods into ready, unready, missing and ignored; the first rule that matches a Pod counts.

    1. being deleted or finished: ignored. 2. Pending: unready. 3. no sample: missing.
    4. cpu, without a Ready condition or a start time: unready. 5. cpu, within the initialisation period or before its
    first readiness: see `_cpu_sample_is_early`. 6. else ready.

    Source: pkg/controller/podautoscaler/replica_calculator.go, `groupPods`. Finished covers Succeeded, which
    controllers up to 1.36 did not ignore.
    """
    ready = 0
    unready, missing, ignored = [], [], []
    for pod in pods:
        if pod.deleting or pod.phase in FINISHED_PHASES:
            ignored.append(pod.name)
        elif pod.phase == "Pending":
            unready.append(pod.name)
        elif pod.name not in samples:
            missing.append(pod.name)
        elif resource == "cpu" and _cpu_sample_is_early(pod, samples[pod.name], now_s, controller):
            unready.append(pod.name)
        else:
            ready += 1
    return PodGroups(ready, tuple(unready), tuple(missing), tuple(ignored))


def _cpu_sample_is_early(pod: Pod, sample: PodSample, now_s: float, controller: Controller) -> bool:
    """Whether a cpu sample may stem from the Pod's start-up. All comparisons are strict; Unknown is not False.

    Younger than the initialisation period: yes if it is not ready, or if the sample is older than one window after the
    last change of readiness. Older: yes if it is not ready and never was, which shows by a last change within the
    readiness delay after its start.
    """
    if pod.ready is None or pod.start_time_s is None:
        return True
    not_ready = pod.ready == "False"
    if pod.start_time_s + controller.cpu_initialization_period_s > now_s:
        return not_ready or sample.time_s < pod.transition_time_s + sample.window_s
    return not_ready and pod.start_time_s + controller.initial_readiness_delay_s > pod.transition_time_s


def sample_values(samples: Iterable[PodSample], container: str) -> dict[str, int] | Invalid:
    """Each sampled Pod's value in thousandths: one container's, or the sum over all of them.

    A sample without the container asked for makes the metric invalid. Without a container asked for, a sample in which
    any container has no value (or without containers) counts as none.

    Source: pkg/controller/podautoscaler/metrics/client.go, `getContainerMetrics` (as of 1.28; newer ones count such a
    Pod as missing) and `getPodMetrics`.
    """
    values: dict[str, int] = {}
    for sample in samples:
        if container:
            value = dict(sample.values_milli).get(container)
            if value is None:
                return Invalid(Reason.ERROR, f"container {container} not present in metrics for Pod {sample.pod}")
            values[sample.pod] = value
            continue
        present = [value for _, value in sample.values_milli if value is not None]
        if present and len(present) == len(sample.values_milli):
            values[sample.pod] = sum(present)
    return values


def pod_requests(pods: Iterable[Pod], resource: str, container: str) -> dict[str, int] | Invalid:
    """What each Pod asks for in thousandths; a single Pod (even an ignored one) that does not say makes it invalid.

    Source: replica_calculator.go, `calculateRequests`.
    """
    requests: dict[str, int] = {}
    for pod in pods:
        asked = _counted_containers(pod, container)
        if not asked:
            lack = f"container {container} not found in" if container else f"missing request for {resource} in"
            return Invalid(Reason.ERROR, f"{lack} Pod {pod.name}")
        total = 0
        for name, request in asked:
            if request is None:
                words = f"missing request for {resource} in container {name} of Pod {pod.name}"
                return Invalid(Reason.ERROR, words)
            total += request
        requests[pod.name] = total
    return requests


def _counted_containers(pod: Pod, container: str) -> list[ContainerMilli]:
    return [entry for entry in pod.requests_milli if container in ("", entry[0])]


def ready_count(observation: Observation) -> int | Invalid:
    """How many Pods are running and ready; not to know any Pod makes the metric invalid.

    Source: replica_calculator.go, `getReadyPodsCount` (a Pod that is being deleted still counts while it is ready).
    """
    if not observation.pods:
        words = "unable to calculate ready pods: no pods returned by selector while calculating replica count"
        return Invalid(Reason.ERROR, words)
    return sum(pod.running_and_ready for pod in observation.pods)
