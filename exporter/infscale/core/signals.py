"""Metrics by name: each goal of a policy to what the HPA proposes for it, and to what the layer makes of that.

A goal becomes a `MetricTarget` and a `Measurement` of the HPA layer where that has a formula for it: requests as
External AverageValue, `kv` as the Pods' average, `cpu` as a resource of the Pods. `ttft` and `work` have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from infscale.core.decision import Invalid, Proposal, Reason
from infscale.core.demand import REQUESTS, Demand, View, demand_of, usable
from infscale.core.hpa import propose
from infscale.core.lookahead import projected, sampled
from infscale.core.memory import Sample
from infscale.core.numbers import to_milli
from infscale.core.observation import Measurement, Observation, Pod, PodSample
from infscale.core.policy import MetricTarget, Policy, Source, TargetType
from infscale.core.replicas import Phase, Replica
from infscale.core.scaling import Goal, MetricName, ScalePolicy
from infscale.core.ttft import Layouts, propose_ttft, worst_first
from infscale.core.work import Load, propose_work

Outcome = Proposal | Invalid

_KINDS = {
    MetricName.QUEUE: (Source.EXTERNAL, TargetType.AVERAGE_VALUE),
    MetricName.WAITING: (Source.EXTERNAL, TargetType.AVERAGE_VALUE),
    MetricName.RUNNING: (Source.EXTERNAL, TargetType.AVERAGE_VALUE),
    MetricName.KV: (Source.PODS, TargetType.AVERAGE_VALUE),
    MetricName.CPU: (Source.RESOURCE, TargetType.UTILIZATION),
    MetricName.TTFT: (Source.EXTERNAL, TargetType.VALUE),
    MetricName.WORK: (Source.EXTERNAL, TargetType.AVERAGE_VALUE),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """All that the goals of one evaluation are measured on.

    Attributes:
        policy: what is asked for.
        hpa: the same as the HPA layer's policy.
        view: the fleet.
        observation: the counts, and the replicas as Pods where a goal needs them.
        samples: past demand by metric.
        ahead_s: how far ahead demand is projected; 0 off.
        ttft: what came to the TTFT histograms, by layout, and how many replicas could tell.
        load: tokens per second.
        knee: what one replica carries; None while unknown.
    """

    policy: ScalePolicy
    hpa: Policy
    view: View
    observation: Observation
    samples: Mapping[str, tuple[Sample, ...]]
    ahead_s: float
    ttft: tuple[Layouts, int]
    load: Load
    knee: float | None


@dataclass(frozen=True, slots=True)
class Signal:
    """One goal's proposals.

    Attributes:
        measured: the HPA's, from what was measured.
        filled: with silent replicas filled in, or invalid where too few gave a value; None: it gives no
            recommendation, and the other goals decide.
        ahead: with the demand projected; None where that changes nothing.
        demand: the requests; None for a metric that is no sum of requests.
        projection: the demand as projected; None without a lookahead.
        samples: past demand with the present one, where a lookahead needs it.
    """

    measured: Outcome
    filled: Outcome | None
    ahead: Outcome | None = None
    demand: Demand | None = None
    projection: float | None = None
    samples: tuple[Sample, ...] = ()


def hpa_policy(policy: ScalePolicy) -> Policy:
    """The policy as the HPA layer takes it, a metric for each goal."""
    return Policy(
        metrics=tuple(_metric(goal) for goal in policy.goals),
        min_replicas=policy.min_replicas,
        max_replicas=policy.max_replicas,
        behavior=policy.behavior,
        controller=policy.controller,
    )


def pods_of(policy: ScalePolicy, replicas: tuple[Replica, ...]) -> tuple[Pod, ...]:
    """The replicas as Pods, where a goal is measured on Pods: starting ones are Pending, draining ones being deleted.

    Each asks for one core, so that a CPU ratio is a share of its request.
    """
    if not any(goal.metric in (MetricName.KV, MetricName.CPU) for goal in policy.goals):
        return ()
    return tuple(
        Pod(
            replica.name,
            phase="Pending" if replica.phase is Phase.STARTING else "Running",
            deleting=replica.phase is Phase.DRAINING,
            requests_milli=(("engine", 1000),),
        )
        for replica in replicas
    )


def signal_of(goal: Goal, scene: Scene) -> Signal:
    """What one goal proposes."""
    if goal.metric in REQUESTS:
        return _requests(goal, scene)
    if goal.metric is MetricName.TTFT:
        return _ttft(goal, scene)
    if goal.metric is MetricName.WORK:
        outcome = propose_work(scene.load, scene.knee)
        if outcome is None:
            return _silent("work: the capacity of a replica is not learned yet")
        return _covered(scene, outcome, scene.load.given)
    read = _percent if goal.metric is MetricName.KV else _cores
    samples = tuple(
        PodSample(replica.name, (("engine", to_milli(value)),))
        for replica in scene.view.serving
        if (value := read(replica)) is not None
    )
    measured = propose(_metric(goal), Measurement(pod_samples=samples), scene.observation, scene.hpa)
    return _covered(scene, measured, len(samples))


def _requests(goal: Goal, scene: Scene) -> Signal:
    view, current, metric = scene.view, scene.observation.spec_replicas, _metric(goal)
    demand = demand_of(goal.metric, _target(goal), view)

    def asked(requests: float) -> Outcome:
        """What the HPA would propose for so many requests."""
        measurement = Measurement(samples_milli=(to_milli(requests),))
        return propose(metric, measurement, scene.observation, scene.hpa)

    # At zero nothing should answer, and the sum over no replica is 0 requests; else that would be no value at all.
    empty = current == 0 and view.at_zero
    samples = tuple(scene.samples.get(goal.metric, ()))
    if not (demand.given or demand.held or empty):
        words = view.failure or f"none of the {view.expected} replicas that should gave a value"
        fault = Invalid(Reason.NO_SAMPLES, f"{goal.metric}: {words}")
        return Signal(fault, fault, demand=demand, samples=samples)
    measured = asked(demand.measured)
    if not empty and not _enough(scene, demand.given):
        return Signal(measured, _rising(scene, measured, demand.given), demand=demand, samples=samples)

    filled = measured if demand.missing == 0 else _filled(demand, measured, asked, current)
    if not scene.policy.lookahead_s:
        return Signal(measured, filled, demand=demand)
    if demand.missing == 0 and not view.held_unknown:
        samples = sampled(samples, scene.observation.now_s, demand.measured, scene.ahead_s)
    if not scene.ahead_s:
        return Signal(measured, filled, demand=demand, samples=samples)
    # What is assumed of silent replicas is not carried on: a hole would look like growth.
    projection = max(demand.total, projected(demand.measured, samples, scene.ahead_s, scene.policy))
    ahead = None if projection == demand.total else asked(projection)
    return Signal(measured, filled, ahead, demand, projection, samples)


def _filled(demand: Demand, measured: Outcome, asked: Callable[[float], Outcome], current: int) -> Outcome:
    """The proposal with silent replicas filled in, but no rise that nothing but a hole asks for.

    Filling alone never asks for more than the expected replicas. They may be more than the count that is there: a
    replica that left is silent for a while, and in a scale-down the count falls before the replicas leave.
    """
    filled = asked(demand.total)
    alone = asked(demand.total - demand.held)
    if isinstance(filled, Proposal) and _count(alone) > current >= _count(measured):
        words = f"silent replicas alone would ask for {_count(alone)}, keeps {current}"
        return replace(filled, replicas=current, words=words)
    return filled


def _ttft(goal: Goal, scene: Scene) -> Signal:
    layouts, telling = scene.ttft
    if not telling:
        fault = Invalid(Reason.NO_SAMPLES, "ttft: no replica has a second read of its histogram")
        return Signal(fault, fault)
    quantiles = worst_first(layouts, scene.policy.quantile)
    if not quantiles:
        return _silent("ttft: no new request since the last read")
    tolerance, current = scene.hpa.tolerance, scene.observation.spec_replicas
    outcome = propose_ttft(quantiles[0], _target(goal), tolerance, current, scene.view, telling)
    return _covered(scene, outcome, telling)


def _silent(words: str) -> Signal:
    """No recommendation. A plain HPA has no such thing: to it, a metric without a value is invalid."""
    return Signal(Invalid(Reason.NO_SAMPLES, words), None)


def _covered(scene: Scene, outcome: Outcome, given: int) -> Signal:
    """The signal of a metric that only replicas give."""
    if isinstance(outcome, Invalid) or _enough(scene, given):
        return Signal(outcome, outcome)
    return Signal(outcome, _rising(scene, outcome, given))


def _enough(scene: Scene, given: int) -> bool:
    """Whether enough of the replicas that should gave a value for the count to fall; none never is."""
    return given > 0 and given >= scene.policy.coverage * scene.view.expected


def _rising(scene: Scene, measured: Outcome, given: int) -> Outcome:
    """Below the coverage a rise by what is known alone still goes; all else holds the count."""
    if _count(measured) > scene.observation.spec_replicas:
        return measured
    share = f"{given} of {scene.view.expected} replicas gave a value"
    words = scene.view.failure or f"{share}, below the coverage of {scene.policy.coverage:.6g}"
    return Invalid(Reason.PARTIAL_SAMPLES if given else Reason.NO_SAMPLES, words)


def _count(outcome: Outcome) -> int:
    return outcome.replicas if isinstance(outcome, Proposal) else 0


def _metric(goal: Goal) -> MetricTarget:
    source, target_type = _KINDS[goal.metric]
    if goal.metric is MetricName.CPU:
        return MetricTarget(source, target_type, int(_target(goal)), resource="cpu")
    return MetricTarget(source, target_type, to_milli(_target(goal)), name=goal.metric)


def _target(goal: Goal) -> float:
    """The target; 0 for `work:learned`, which is held against none."""
    return goal.target or 0.0


def _percent(replica: Replica) -> Decimal | None:
    """KV cache use in percent, in decimal: 0.55 * 100 is more than 55 in float64, and thousandths round up."""
    return Decimal(repr(replica.kv)) * 100 if usable(replica.kv) else None


def _cores(replica: Replica) -> float | None:
    """CPU in cores, of the one core that each Pod of `pods_of` asks for."""
    return replica.cpu_ratio if usable(replica.cpu_ratio) else None
