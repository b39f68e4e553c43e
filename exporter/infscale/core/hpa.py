"""One metric to one proposal, and several proposals to one: the HPA's formulas.

`propose` chooses by source and target type. S is the spec replicas, A the status replicas, T the target, u the usage.
Whatever cannot be computed is an `Invalid`, a value with its reason; NaN never becomes a count. Used by `core.decide`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from infscale.core.decision import Invalid, Proposal, Reason
from infscale.core.numbers import MAX_INT64, int32, int64, milli_text, quotient, ratio, whole_up
from infscale.core.observation import Measurement, Observation
from infscale.core.pods import PodGroups, group_pods, pod_requests, ready_count, sample_values
from infscale.core.policy import MetricTarget, Policy, Source, TargetType


def propose(
    metric: MetricTarget, measurement: Measurement, observation: Observation, policy: Policy
) -> Proposal | Invalid:
    """What one metric asks for.

    Source: pkg/controller/podautoscaler/horizontal.go, `computeReplicasForMetric`.
    """
    if measurement.failure:
        return Invalid(Reason.NO_SAMPLES, f"{_title(metric)}: {measurement.failure}")
    formula = _FORMULAS.get((metric.source, metric.target_type))
    if formula is None:
        words = f"a {metric.source} metric has no target type {metric.target_type}"
        return Invalid(Reason.ERROR, f"{_title(metric)}: {words}")
    outcome = formula(metric, measurement, observation, policy)
    if isinstance(outcome, Invalid):
        return Invalid(outcome.reason, f"{_title(metric)}: {outcome.words}")
    return outcome


def largest(outcomes: tuple[Proposal | Invalid, ...], spec_replicas: int) -> Proposal | Invalid:
    """The largest valid proposal; all invalid, or some invalid and a fall below S, is the first fault.

    Source: horizontal.go, `computeReplicasForMetrics`: with a metric missing the count may be raised, never lowered.
    """
    valid = [outcome for outcome in outcomes if isinstance(outcome, Proposal)]
    faults = [outcome for outcome in outcomes if isinstance(outcome, Invalid)]
    if not valid:
        return faults[0] if faults else Invalid(Reason.ERROR, "the policy has no metric")
    best = max(valid, key=lambda proposal: proposal.replicas)
    if faults and best.replicas < spec_replicas:
        words = f"{faults[0].words}; {len(faults)} of {len(outcomes)} metrics are invalid, the count may not fall"
        return Invalid(Reason.PARTIAL_SAMPLES, words)
    return best


def _average_value(
    metric: MetricTarget, measurement: Measurement, observation: Observation, policy: Policy
) -> Proposal | Invalid:
    """External or Object, AverageValue: r = u / (T*A); within the tolerance **A** (not S), otherwise ceil(u/T).

    With A = 0 the ratio is infinite or NaN and so never within: the tolerance is skipped. The count of a rolling update
    or under a quota is a quirk that follows: S=20, A=22, u=20, T=1 gives 22.

    Source: replica_calculator.go, `GetExternalPerPodMetricReplicas` and `GetObjectPerPodMetricReplicas`.
    """
    status_replicas = observation.status_replicas
    usage = _summed(metric, measurement)
    if isinstance(usage, Invalid):
        return usage
    usage_ratio = ratio(float(usage), float(metric.target) * float(status_replicas))
    within = policy.tolerance.within(usage_ratio)
    replicas = status_replicas if within else _whole(ratio(float(usage), float(metric.target)))
    if isinstance(replicas, Invalid):
        return replicas
    per_pod = _per_pod(usage, status_replicas)
    words = f"{milli_text(usage)} over {milli_text(metric.target)} per replica at a count of {status_replicas}"
    if status_replicas:
        words += f" is a ratio of {usage_ratio:.6g}"
    return _proposal(metric, replicas, within, words, per_pod)


def _value(
    metric: MetricTarget, measurement: Measurement, observation: Observation, policy: Policy
) -> Proposal | Invalid:
    """External or Object, Value: r = u/T; within the tolerance S, otherwise ceil(r * ready Pods); from S = 0 ceil(u/T).

    Source: replica_calculator.go, `GetExternalMetricReplicas`, `GetObjectMetricReplicas`, `getUsageRatioReplicaCount`.
    """
    usage = _summed(metric, measurement)
    if isinstance(usage, Invalid):
        return usage
    usage_ratio = ratio(float(usage), float(metric.target))
    words = f"{milli_text(usage)} over {milli_text(metric.target)} is a ratio of {usage_ratio:.6g}"
    if observation.spec_replicas != 0 and policy.tolerance.within(usage_ratio):
        return _proposal(metric, observation.spec_replicas, True, words, usage)
    ready = 1 if observation.spec_replicas == 0 else ready_count(observation)
    if isinstance(ready, Invalid):
        return ready
    replicas = _whole(usage_ratio * float(ready))
    if isinstance(replicas, Invalid):
        return replicas
    if observation.spec_replicas != 0:
        words += f" for each of {ready} ready Pods"
    return _proposal(metric, replicas, False, words, usage)


@dataclass(frozen=True, slots=True)
class _Usage:
    """A set of Pods' usage: over the target, per Pod, and in percent of the requests where the target is one."""

    ratio: float
    mean_milli: int
    percent: int | None = None


def _per_pod_metric(
    metric: MetricTarget, measurement: Measurement, observation: Observation, policy: Policy
) -> Proposal | Invalid:
    """Pods average, Resource average and Resource utilisation: r = mean over target, over the Pods that count.

    Source: replica_calculator.go, `calcPlainMetricReplicas` and `GetResourceReplicas`.
    """
    if not measurement.pod_samples:
        return Invalid(Reason.NO_SAMPLES, _nothing_returned(metric))
    values = sample_values(measurement.pod_samples, metric.container)
    if isinstance(values, Invalid):
        return values
    if not observation.pods:
        return Invalid(Reason.ERROR, "no pods returned by selector while calculating replica count")
    samples = {sample.pod: sample for sample in measurement.pod_samples if sample.pod in values}
    groups = group_pods(observation.pods, samples, metric.resource, observation.now_s, policy.controller)
    dropped = {*groups.ignored, *groups.unready}
    counted = {pod: value for pod, value in values.items() if pod not in dropped}
    if not counted:
        return Invalid(Reason.NO_SAMPLES, "did not receive metrics for targeted pods (pods might be unready)")
    if metric.target_type is TargetType.AVERAGE_VALUE:
        average = partial(_mean, target=metric.target)
        return _with_missing_pods(metric, groups, counted, observation, policy, average, lambda _: metric.target)
    requests = pod_requests(observation.pods, metric.resource, metric.container)
    if isinstance(requests, Invalid):
        return requests
    utilization = partial(_utilization, requests=requests, target=metric.target)
    full = partial(_full_request, requests=requests, target=metric.target)
    return _with_missing_pods(metric, groups, counted, observation, policy, utilization, full)


def _with_missing_pods(
    metric: MetricTarget,
    groups: PodGroups,
    values: Mapping[str, int],
    observation: Observation,
    policy: Policy,
    measure: Callable[[Mapping[str, int]], _Usage | Invalid],
    full: Callable[[str], int],
) -> Proposal | Invalid:
    """The count for what was measured on some of the Pods; those without a value are assumed to dampen the change.

    With all Pods measured (unready ones matter only on the way up): within the tolerance S, else ceil(r * ready).
    Otherwise a missing Pod is assumed to use `full` when r < 1 and nothing when r > 1, an unready one nothing when
    r > 1, and r2 is computed over all these samples. S is kept if r2 is within the tolerance or on the other side of 1,
    or if ceil(r2 * samples) would move the count against r2.
    """
    first = measure(values)
    if isinstance(first, Invalid):
        return first
    keep = observation.spec_replicas
    words = _pods_words(metric, first, groups)
    up_with_unready = bool(groups.unready) and first.ratio > 1.0
    if not groups.missing and not up_with_unready:
        within = policy.tolerance.within(first.ratio)
        replicas = keep if within else _whole(first.ratio * float(groups.ready))
        if isinstance(replicas, Invalid):
            return replicas
        return _proposal(metric, replicas, within, words, first.mean_milli, first.percent)

    filled = dict(values)
    if first.ratio < 1.0:
        filled.update({pod: full(pod) for pod in groups.missing})
    elif first.ratio > 1.0:
        filled.update(dict.fromkeys(groups.missing, 0))
    if up_with_unready:
        filled.update(dict.fromkeys(groups.unready, 0))
    second = measure(filled)
    if isinstance(second, Invalid):
        return second
    replicas = _whole(second.ratio * float(len(filled)))
    if isinstance(replicas, Invalid):
        return replicas
    within = policy.tolerance.within(second.ratio)
    turned = (first.ratio < 1.0) != (second.ratio < 1.0)
    against = (second.ratio < 1.0 and replicas > keep) or (second.ratio > 1.0 and replicas < keep)
    words += f", {second.ratio:.6g} with the others assumed"
    if within or turned or against:
        return _proposal(metric, keep, True, words, first.mean_milli, first.percent)
    return _proposal(metric, replicas, False, words, first.mean_milli, first.percent)


def _mean(values: Mapping[str, int], target: int) -> _Usage:
    """The mean in whole thousandths over the target. Source: metrics/utilization.go, `GetMetricUsageRatio`."""
    mean = quotient(sum(values.values()), len(values))
    return _Usage(ratio(float(mean), float(target)), mean)


def _utilization(values: Mapping[str, int], requests: Mapping[str, int], target: int) -> _Usage | Invalid:
    """The whole percent of what the Pods ask for over the target; samples of unknown Pods are left out.

    Source: metrics/utilization.go, `GetResourceUtilizationRatio`.
    """
    known = [pod for pod in values if pod in requests]
    used, requested = sum(values[pod] for pod in known), sum(requests[pod] for pod in known)
    if requested == 0:
        return Invalid(Reason.NO_SAMPLES, "no metrics returned matched known pods")
    percent = int32(quotient(used * 100, requested))
    return _Usage(ratio(float(percent), float(target)), quotient(used, len(known)), percent)


def _full_request(pod: str, requests: Mapping[str, int], target: int) -> int:
    """What a missing Pod is assumed to use at most: its request, or as far above it as the target goes."""
    return quotient(requests[pod] * max(100, target), 100)


def _summed(metric: MetricTarget, measurement: Measurement) -> int | Invalid:
    """The sum of the items in thousandths, held within int64; none at all is invalid, not 0.

    An External AverageValue takes a negative sum for an overflow and counts it as the largest number, as the controller
    does. Source: replica_calculator.go, `GetExternalMetricReplicas` and `GetExternalPerPodMetricReplicas`.
    """
    if not measurement.samples_milli:
        return Invalid(Reason.NO_SAMPLES, _nothing_returned(metric))
    negative_is_overflow = metric.source is Source.EXTERNAL and metric.target_type is TargetType.AVERAGE_VALUE
    total = 0
    for value in measurement.samples_milli:
        total += value
        if total > MAX_INT64 or (total < 0 and negative_is_overflow):
            return MAX_INT64
    return int64(total)


def _per_pod(usage_milli: int, status_replicas: int) -> int:
    """The current value that an AverageValue metric reports: ceil(u/A), 0 if A = 0.

    Source: replica_calculator.go, `getPerPodUsage`.
    """
    if float(usage_milli) >= float(MAX_INT64):
        return MAX_INT64
    return 0 if status_replicas == 0 else int64(math.ceil(float(usage_milli) / float(status_replicas)))


def _whole(replicas: float) -> int | Invalid:
    """ceil(x) replicas, or why there is no such number."""
    if math.isnan(replicas):
        return Invalid(Reason.ERROR, "0/0 is no number of replicas: expected a target above 0")
    return whole_up(replicas)


def _proposal(
    metric: MetricTarget, replicas: int, within: bool, words: str, usage_milli: int, percent: int | None = None
) -> Proposal:
    verdict = f"keeps {replicas} (within the tolerance)" if within else f"proposes {replicas}"
    return Proposal(replicas, within, f"{_title(metric)}: {words}, {verdict}", int64(usage_milli), percent)


def _pods_words(metric: MetricTarget, usage: _Usage, groups: PodGroups) -> str:
    value = milli_text(usage.mean_milli) if usage.percent is None else f"{usage.percent} %"
    target = milli_text(metric.target) if usage.percent is None else f"{metric.target} %"
    pods = f"{groups.ready} ready, {len(groups.unready)} unready and {len(groups.missing)} missing Pods"
    return f"{value} over {target} with {pods} is a ratio of {usage.ratio:.6g}"


def _title(metric: MetricTarget) -> str:
    return metric.name or metric.resource or metric.source.value


def _nothing_returned(metric: MetricTarget) -> str:
    if metric.source in (Source.RESOURCE, Source.CONTAINER_RESOURCE):
        return f"unable to get metrics for resource {metric.resource}: no metrics returned from resource metrics API"
    return f"no metrics returned from {'external' if metric.source is Source.EXTERNAL else 'custom'} metrics API"


_Formula = Callable[[MetricTarget, Measurement, Observation, Policy], Proposal | Invalid]
_FORMULAS: dict[tuple[Source, TargetType], _Formula] = {
    (Source.EXTERNAL, TargetType.AVERAGE_VALUE): _average_value,
    (Source.OBJECT, TargetType.AVERAGE_VALUE): _average_value,
    (Source.EXTERNAL, TargetType.VALUE): _value,
    (Source.OBJECT, TargetType.VALUE): _value,
    (Source.PODS, TargetType.AVERAGE_VALUE): _per_pod_metric,
    (Source.RESOURCE, TargetType.AVERAGE_VALUE): _per_pod_metric,
    (Source.RESOURCE, TargetType.UTILIZATION): _per_pod_metric,
    (Source.CONTAINER_RESOURCE, TargetType.AVERAGE_VALUE): _per_pod_metric,
    (Source.CONTAINER_RESOURCE, TargetType.UTILIZATION): _per_pod_metric,
}
