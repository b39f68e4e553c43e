"""One metric to one proposal: the formulas and their quirks, beyond what the vectors hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infscale.core.decision import Invalid, Proposal, Reason
from infscale.core.hpa import largest, propose
from infscale.core.numbers import MAX_INT32, MAX_INT64, to_milli
from infscale.core.observation import Measurement, Observation, Pod, PodSample
from infscale.core.policy import Behavior, Controller, MetricTarget, Policy, ScalingRules, Source, TargetType

QUEUE = MetricTarget(Source.EXTERNAL, TargetType.AVERAGE_VALUE, 1000)
CPU = MetricTarget(Source.RESOURCE, TargetType.UTILIZATION, 50, resource="cpu")


def ask(metric: MetricTarget, measurement: Measurement, spec: int, status: int | None = None, pods=(), **controller):
    """What a metric proposes at these counts."""
    policy = Policy((metric,), controller=Controller(**controller))
    observation = Observation(0.0, spec, spec if status is None else status, (measurement,), tuple(pods))
    return propose(metric, measurement, observation, policy)


def items(*values: float) -> Measurement:
    """The items of an External metric."""
    return Measurement(samples_milli=tuple(to_milli(value) for value in values))


def cpu_pods(*used_milli: int | None, request_milli: int = 1000) -> tuple[tuple[Pod, ...], Measurement]:
    """Ready Pods with one container each, and their cpu samples (None: no sample)."""
    pods = tuple(Pod(f"p{i}", requests_milli=(("main", request_milli),)) for i in range(len(used_milli)))
    samples = tuple(
        PodSample(pod.name, (("main", used),), time_s=0.0)
        for pod, used in zip(pods, used_milli, strict=True)
        if used is not None
    )
    return pods, Measurement(pod_samples=samples)


@pytest.mark.parametrize(
    ("spec", "status", "load", "replicas"),
    [
        (20, 22, 20, 22),  # a surge: within the tolerance it is the status count that is kept
        (10, 5, 5.4, 5),  # a quota: the same
        (10, 10, 9, 10),
        (10, 10, 11, 10),
        (10, 10, 11.001, 12),
        (10, 10, 8.999, 9),
        (3, 0, 0.001, 1),  # no replica yet: the tolerance is skipped
        (3, 0, 0, 0),
        (1, 1, 0.5, 1),
    ],
)
def test_average_value(spec, status, load, replicas):
    """ceil(u/T), except within the tolerance of T for each status replica."""
    assert ask(QUEUE, items(load), spec, status).replicas == replicas


def test_an_exact_tenth_more_moves_an_old_controller():
    """Up to 1.32 ten replicas with a load of 11 become 11, from 1.33 on they stay 10."""
    assert ask(QUEUE, items(11), 10, version=(1, 32)).replicas == 11
    assert ask(QUEUE, items(11), 10, version=(1, 33)).replicas == 10


def test_items_are_summed_and_none_is_no_zero():
    """Several series of one metric add up; no series at all is a fault."""
    assert ask(QUEUE, items(1, 2, 3.5), 1).replicas == 7
    assert ask(QUEUE, items(), 3) == Invalid(
        Reason.NO_SAMPLES, "External: no metrics returned from external metrics API"
    )


def test_huge_numbers_saturate():
    """Sums stay within int64, counts within int32; a negative External sum counts as an overflow."""
    huge = Measurement(samples_milli=(MAX_INT64, MAX_INT64))
    proposal = ask(QUEUE, huge, 1)
    assert (proposal.replicas, proposal.usage_milli) == (MAX_INT32, MAX_INT64)
    assert ask(QUEUE, huge, 2).usage_milli == MAX_INT64
    assert ask(VALUE, Measurement((MAX_INT64, -1000)), 1, pods=READY).usage_milli == MAX_INT64 - 1000
    assert ask(QUEUE, Measurement(samples_milli=(-1000,)), 1).replicas == MAX_INT32
    in_an_object = MetricTarget(Source.OBJECT, TargetType.AVERAGE_VALUE, 1000)
    assert ask(in_an_object, Measurement(samples_milli=(-1000,)), 1).replicas == -1


@pytest.mark.parametrize("target_type", [TargetType.AVERAGE_VALUE, TargetType.VALUE])
def test_a_target_of_zero_never_makes_nan_a_count(target_type):
    """0/0 is a fault; anything over 0 is as much as there is."""
    metric = MetricTarget(Source.EXTERNAL, target_type, 0)
    assert isinstance(ask(metric, items(0), 3, pods=[Pod("p")]), Invalid)
    assert ask(metric, items(1), 3, pods=[Pod("p")]).replicas == MAX_INT32


def test_value_multiplies_by_the_ready_pods():
    """Not by S: 8 of 1 with 5 ready Pods is 40, with none known it is a fault."""
    metric = MetricTarget(Source.EXTERNAL, TargetType.VALUE, 1000)
    pods = [Pod(f"p{i}") for i in range(5)] + [Pod("late", ready="False"), Pod("odd", phase="Unknown")]
    assert ask(metric, items(8), 8, pods=pods).replicas == 40
    assert isinstance(ask(metric, items(8), 8), Invalid)
    assert ask(metric, items(1), 8).replicas == 8  # within the tolerance no Pod is looked at
    assert ask(metric, items(2.5), 0).replicas == 3  # from zero neither Pods nor tolerance count


def test_a_metric_that_could_not_be_read_is_a_fault():
    """Its words are handed on."""
    outcome = ask(QUEUE, Measurement(failure="timed out"), 3)
    assert outcome == Invalid(Reason.NO_SAMPLES, "External: timed out")


def test_a_target_type_that_a_source_does_not_have_is_a_fault():
    """Pods metrics have averages only."""
    outcome = ask(MetricTarget(Source.PODS, TargetType.VALUE, 1000), Measurement(), 3)
    assert outcome.words == "Pods: a Pods metric has no target type Value"


def test_utilisation_and_averages_are_cut():
    """109.9 % counts as 109 % and 20.6666 as 20.666."""
    pods, measured = cpu_pods(549, 550)
    proposal = ask(CPU, measured, 2, pods=pods)
    assert (proposal.utilization_percent, proposal.usage_milli, proposal.replicas) == (54, 549, 2)
    average = MetricTarget(Source.RESOURCE, TargetType.AVERAGE_VALUE, 500, resource="cpu")
    assert ask(average, measured, 2, pods=pods).usage_milli == 549


@pytest.mark.parametrize(
    ("used_milli", "spec", "replicas"),
    [
        ((100, None), 2, 2),  # 10 % of 50 % says down, the missing one at its whole request says up: stay
        ((100, 100, 100, 100, None), 5, 3),  # (4*100 + 1000)/5000 = 28 %, 0.56 of 5 samples
        ((1000, None), 2, 2),  # 100 % says up, with the missing one at nothing it is just the target
        ((2000, None), 2, 4),  # 200 % says up, with the missing one at nothing it is twice the target
        ((500, None), 2, 2),  # exactly the target: nobody is assumed to be anything
        ((100, None, None), 3, 3),  # 10 % says down, (100 + 2*1000)/3000 = 70 % says up: stay
        ((600, None, None), 3, 3),  # 60 % says up, 600/3000 = 20 % says down: stay
        ((1500, None), 10, 10),  # 75 % of 50 % over two samples are three, but it says up: stay
    ],
)
def test_missing_pods_dampen_the_change(used_milli, spec, replicas):
    """On the way down they use all they ask for, on the way up nothing; a change of direction is none."""
    pods, measured = cpu_pods(*used_milli)
    assert ask(CPU, measured, spec, pods=pods).replicas == replicas


@pytest.mark.parametrize(("used_milli", "replicas"), [(100, 19), (510, 20)])
def test_a_missing_pod_uses_just_its_request_on_the_way_down(used_milli, replicas):
    """(100 + 19*1000)/20000 is 95 % of 100 %, below the tolerance; with 510 it is 97 %, within it."""
    pods, measured = cpu_pods(used_milli, *[None] * 19)
    whole = MetricTarget(Source.RESOURCE, TargetType.UTILIZATION, 100, resource="cpu")
    assert ask(whole, measured, 20, pods=pods, tolerance=0.04).replicas == replicas


def test_a_missing_pod_uses_more_than_its_request_where_the_target_is_more():
    """At a target of 200 % a missing Pod uses twice its request: (300 + 2000)/2000 = 115 %, a ratio of 0.575."""
    pods, measured = cpu_pods(300, None)
    twice = MetricTarget(Source.RESOURCE, TargetType.UTILIZATION, 200, resource="cpu")
    proposal = ask(twice, measured, 2, pods=pods)
    assert (proposal.replicas, "0.575 with the others assumed" in proposal.words) == (2, True)


@pytest.mark.parametrize(("used_milli", "replicas"), [(1001, 2), (1002, 3)])
def test_a_missing_pod_uses_nothing_on_the_way_up(used_milli, replicas):
    """1001 over two is cut to 500, just the target; one thousandth more is not."""
    pods, measured = cpu_pods(used_milli, None)
    average = MetricTarget(Source.RESOURCE, TargetType.AVERAGE_VALUE, 500, resource="cpu")
    assert ask(average, measured, 2, pods=pods, tolerance=0.0).replicas == replicas


def test_unready_pods_matter_on_the_way_up_alone():
    """At just the target, and below it, a Pod that starts is not taken for one that uses nothing."""
    pods, measured = cpu_pods(500, None)
    starting = (pods[0], replace(pods[1], phase="Pending"))
    assert ask(CPU, measured, 2, pods=starting).replicas == 2
    busy, busy_measured = cpu_pods(1000, None)
    assert ask(CPU, busy_measured, 2, pods=(busy[0], starting[1])).replicas == 2


def test_a_count_never_moves_against_its_ratio():
    """More samples than replicas (a surge): a ratio below 1 that would still give more than S keeps S."""
    pods, measured = cpu_pods(300, 300, 300, None)
    assert ask(CPU, measured, 2, pods=pods).replicas == 2


def test_samples_of_unknown_pods_count_as_samples_only():
    """A sample of a Pod that is gone is in no sum of utilisation, but in the number that r2 is multiplied with."""
    pods, measured = cpu_pods(100, 100, 100, 100, None)
    gone = PodSample("gone", (("main", 9000),), time_s=0.0)
    measured = Measurement(pod_samples=(*measured.pod_samples, gone))
    proposal = ask(CPU, measured, 5, pods=pods)
    assert (proposal.utilization_percent, proposal.replicas) == (10, 4)


def test_the_tolerance_of_behavior_counts_only_where_the_controller_honours_it():
    """With the gate off, up to 1.32 and for an unset direction the flag's tolerance counts."""
    up = ScalingRules(policies=(), tolerance=0.5)
    policy = Policy((QUEUE,), behavior=Behavior(scale_up=up))
    assert (policy.tolerance.down, policy.tolerance.up) == (0.1, 0.5)
    for controller in (Controller(configurable_tolerance=False), Controller(version=(1, 32))):
        flagged = Policy((QUEUE,), behavior=Behavior(scale_up=up), controller=controller)
        assert (flagged.tolerance.down, flagged.tolerance.up) == (0.1, 0.1)


def proposal(replicas: int) -> Proposal:
    """A valid proposal."""
    return Proposal(replicas, False, "", 0)


def test_the_largest_valid_proposal_wins_and_a_hole_never_lowers():
    """A fault beside a valid proposal holds the count from falling; faults alone are a fault."""
    hole = Invalid(Reason.NO_SAMPLES, "nothing")
    assert largest((proposal(3), proposal(5)), 4) == proposal(5)
    assert largest((proposal(5), hole), 4) == proposal(5)
    assert largest((proposal(4), hole), 4) == proposal(4)
    partial = largest((proposal(3), hole), 4)
    assert isinstance(partial, Invalid)
    assert partial.reason is Reason.PARTIAL_SAMPLES
    assert largest((hole, hole), 4) is hole
    assert largest((), 4) == Invalid(Reason.ERROR, "the policy has no metric")


VALUE = MetricTarget(Source.OBJECT, TargetType.VALUE, 1000, "load")
KV = MetricTarget(Source.PODS, TargetType.AVERAGE_VALUE, 500, "kv")
MEMORY = MetricTarget(Source.RESOURCE, TargetType.AVERAGE_VALUE, 500, resource="memory")
SIDE = MetricTarget(Source.CONTAINER_RESOURCE, TargetType.UTILIZATION, 50, resource="cpu", container="side")
NO_PODS = MetricTarget(Source.PODS, TargetType.VALUE, 1000)
READY = tuple(Pod(f"p{i}") for i in range(5))
STARTING = Pod("p1", phase="Pending", requests_milli=(("main", 1000),))
LEAVING = Pod("p0", deleting=True, requests_milli=(("main", 1000),))
DONE = Pod("done", phase="Failed", requests_milli=(("main", None),))
ONE, MEASURED = cpu_pods(500)
SIDE_MEASURED = Measurement(pod_samples=(PodSample("p0", (("side", 100),)),))


def used(metric: MetricTarget, spec: int, *used_milli: int | None):
    """A case with such Pods."""
    pods, measured = cpu_pods(*used_milli)
    return metric, measured, spec, pods


CASES = [
    (QUEUE, items(9), 2, ()),
    (QUEUE, items(2), 2, ()),
    (QUEUE, items(), 2, ()),
    (QUEUE, Measurement(failure="timed out"), 2, ()),
    (VALUE, items(1), 8, ()),
    (VALUE, items(8), 8, READY),
    (VALUE, items(8), 1, READY[:1]),
    (VALUE, items(2.5), 0, ()),
    (VALUE, items(2), 1, ()),
    (VALUE, Measurement(), 1, ONE),
    (replace(VALUE, target=0), items(0), 1, READY),
    used(CPU, 2, 549, 550),
    used(CPU, 3, 100, 100, None),
    used(CPU, 2, 100, 100, None),
    used(CPU, 4, 2000, None),
    used(CPU, 2, 500, None),
    (CPU, MEASURED, 2, (*ONE, STARTING)),
    used(MEMORY, 2, 549, 550),
    used(MEMORY, 3, 100, 100, None),
    used(KV, 2, 1500, 1500),
    (CPU, Measurement(), 1, ONE),
    (KV, Measurement(), 1, ONE),
    (CPU, MEASURED, 1, ()),
    (CPU, MEASURED, 1, (LEAVING,)),
    (CPU, MEASURED, 1, cpu_pods(500, request_milli=0)[0]),
    (CPU, MEASURED, 1, (*ONE, Pod("bare"))),
    (CPU, MEASURED, 1, (*ONE, DONE)),
    (SIDE, MEASURED, 1, ONE),
    (SIDE, SIDE_MEASURED, 1, ONE),
    (NO_PODS, Measurement(), 1, ONE),
]


def test_all_that_is_said_of_a_proposal(golden):
    """The count, whether the tolerance keeps it, the value as the HPA shows it, and the way there or why not."""
    lines = []
    for metric, measurement, spec, pods in CASES:
        said = ask(metric, measurement, spec, pods=pods)
        if isinstance(said, Invalid):
            lines.append(f"{spec} -> none [{said.reason}] {said.words}\n")
        else:
            values = f"within={said.within} usage={said.usage_milli} percent={said.utilization_percent}"
            lines.append(f"{spec} -> {said.replicas} {values} {said.words}\n")
    golden("proposals.txt", "".join(lines))
