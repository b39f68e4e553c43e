"""One metric to one proposal: the formulas and their quirks, beyond what the vectors hold."""

from __future__ import annotations

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
    ],
)
def test_missing_pods_dampen_the_change(used_milli, spec, replicas):
    """On the way down they use all they ask for, on the way up nothing; a change of direction is none."""
    pods, measured = cpu_pods(*used_milli)
    assert ask(CPU, measured, spec, pods=pods).replicas == replicas


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


def test_a_pod_without_a_request_or_a_container_without_a_value_is_a_fault():
    """For utilisation one Pod that does not say what it asks for is enough, even one that is finished."""
    pods, measured = cpu_pods(100, 100)
    silent = Pod("done", phase="Failed", requests_milli=(("main", None),))
    assert "missing request for cpu in container main of Pod done" in ask(CPU, measured, 2, pods=[*pods, silent]).words
    assert "missing request for cpu in Pod bare" in ask(CPU, measured, 2, pods=[*pods, Pod("bare")]).words
    other = MetricTarget(Source.CONTAINER_RESOURCE, TargetType.UTILIZATION, 50, resource="cpu", container="side")
    assert "container side not present" in ask(other, measured, 2, pods=pods).words


def test_nothing_left_to_look_at_is_a_fault():
    """No Pods, only Pods that do not count, or no request at all."""
    _, measured = cpu_pods(100)
    assert "no pods returned" in ask(CPU, measured, 1).words
    leaving = [Pod("p0", deleting=True, requests_milli=(("main", 1000),))]
    assert "might be unready" in ask(CPU, measured, 1, pods=leaving).words
    free, measured = cpu_pods(100, request_milli=0)
    assert "no metrics returned matched known pods" in ask(CPU, measured, 1, pods=free).words


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
