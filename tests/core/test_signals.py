"""Metrics by name: what each is measured on, alone and together."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infscale.core.checks import check_policy
from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import AT_ONCE, ScaleState
from infscale.core.observation import Pod
from infscale.core.policy import Controller
from infscale.core.replicas import Held, Phase, Replica
from infscale.core.scaling import Goal, MetricName, ScalePolicy
from infscale.core.signals import pods_of
from infscale.errors import PolicyError
from tests.core.workload import fleet, serving

SILENT, STARTING = Replica("s", Phase.SILENT), Replica("n", Phase.STARTING)


def desired(policy: str, *replicas: Replica, **fields) -> int | None:
    """The count at the first look, with nothing that holds it."""
    decision, _ = decide(parse_policy(f"{policy},max=50,downwindow=0,up=50/15"), fleet(*replicas, **fields), AT_ONCE)
    return decision.desired


def kv(*shares: float | None) -> tuple[Replica, ...]:
    """Serving replicas with so much of their KV cache in use."""
    return tuple(serving(f"r{n}", kv=share) for n, share in enumerate(shares))


def cpu(*ratios: float | None) -> tuple[Replica, ...]:
    """Serving replicas with so much of their CPU request in use."""
    return tuple(serving(f"r{n}", cpu_ratio=ratio) for n, ratio in enumerate(ratios))


@pytest.mark.parametrize(
    ("policy", "count"), [("queue:4", 5), ("waiting:4", 2), ("running:4", 3), ("waiting:4+running:2", 6)]
)
def test_sums_of_requests(policy, count):
    """20 in flight, 8 of them waiting; of several metrics the largest counts."""
    assert desired(
        policy, serving("a", 12.0, running=8.0, waiting=4.0), serving("b", 8.0, running=4.0, waiting=4.0)
    ) == (count)


def test_kv_is_the_average_over_the_replicas_that_reported():
    """80 % over 50 % on two is 4; a silent one counts as unused on the way up, as at the target on the way down."""
    assert desired("kv:50", *kv(0.9, 0.7)) == 4
    assert desired("kv:50", *kv(0.55, 0.55)) == 2  # exactly 1.1: 0.55 is 55 %, not 55.00000000000001 %
    assert desired("kv:50", *kv(0.9, 0.7), SILENT) == 3
    assert desired("kv:50", *kv(0.1, 0.1, 0.1), SILENT) == 2
    assert desired("kv:50", *kv(0.9, 0.7), STARTING) == 3  # capacity on the way: 160 % over three
    assert desired("kv:50", *kv(1.0, 1.0), STARTING) == 4
    assert desired("kv:50", *kv(0.1, 0.1), STARTING) == 1  # and no reason to stay: 20 % over two
    assert desired("kv:50", *kv(None, None)) == 2


@pytest.mark.parametrize(("version", "count"), [((1, 32), 11), ((1, 33), 10)])
def test_the_controller_that_is_matched_is_the_policys(version, count):
    """11 requests on ten replicas at a target of 1: at the very edge of the tolerance."""
    policy = replace(parse_policy("queue:1"), controller=Controller(version=version))
    assert decide(policy, fleet(serving("a", 11.0), spec=10), AT_ONCE)[0].desired == count


@pytest.mark.parametrize("nothing", [math.nan, math.inf, -0.1, 2.0**53])
def test_what_is_no_share_is_no_value(nothing):
    """NaN, infinite, negative and impossibly large shares are holes: the count stays, or the others decide."""
    assert desired("kv:50", *kv(nothing, nothing)) == 2
    assert desired("cpu:60", *cpu(nothing, nothing)) == 2
    assert desired("kv:50", *kv(0.9, 0.9, nothing)) == 4
    assert desired("cpu:60", *cpu(1.2, 1.2, nothing)) == 4


def test_replicas_as_pods():
    """Where a goal is measured on Pods; each asks for one core."""
    replicas = (serving("a"), SILENT, STARTING, Replica("d", Phase.DRAINING))
    core = (("engine", 1000),)
    pods = (
        Pod("a", requests_milli=core),
        Pod("s", requests_milli=core),
        Pod("n", phase="Pending", requests_milli=core),
        Pod("d", deleting=True, requests_milli=core),
    )
    for policy in ("kv:50", "queue:4+cpu:60"):
        assert pods_of(parse_policy(policy), replicas) == pods
    assert pods_of(parse_policy("queue:4+ttft:1"), replicas) == ()


def test_kv_of_draining_replicas_does_not_count():
    """They leave, and their cache with them."""
    leaving = Replica("d", Phase.DRAINING, inflight=9.0, kv=1.0)
    assert desired("kv:50", *kv(0.5, 0.5), leaving) == 2
    assert desired("kv:50", *kv(0.1, 0.1), leaving) == 1


def test_cpu_is_the_utilisation_of_the_requests():
    """90 % over 60 % on two is 3; a replica without a value is missing."""
    assert desired("cpu:60", *cpu(0.9, 0.9)) == 3
    assert desired("cpu:60", *cpu(1.5, 0.9)) == 4
    assert desired("cpu:60", *cpu(0.1, None)) == 2
    assert desired("cpu:60", *cpu(None, None)) == 2


@pytest.mark.parametrize("goals", ["cpu:60", "kv:50", "ttft:1", "work:100", "work:learned"])
def test_a_metric_without_a_sample_at_zero_is_refused_there(goals):
    """With minimum 0 it would never wake; beside a request metric it may stand."""
    with pytest.raises(PolicyError, match="would never wake"):
        parse_policy(f"{goals},min=0")
    check_policy(parse_policy(f"{goals}+queue:4,min=0"))
    metric = parse_policy(goals).goals[0]
    with pytest.raises(PolicyError, match="would never wake"):
        check_policy(ScalePolicy((metric,), min_replicas=0))


def test_a_metric_that_could_not_be_read_lets_nothing_fall():
    """The queue asks for 1, nobody tells of the KV cache: the count stays; a rise still goes."""
    assert desired("queue:4+kv:50", *kv(None, None, None)) == 3
    busy = [serving(f"r{n}", 9.0) for n in range(3)]
    assert desired("queue:4+kv:50", *busy) == 7


def test_a_second_metric_without_a_sample_at_zero_does_not_hold_it_there():
    """The held requests decide."""
    decision, _ = decide(parse_policy("queue:4+kv:50,min=0"), fleet(spec=0, held=Held(5.0)), ScaleState())
    assert (decision.desired, decision.reason) == (2, "activate_from_zero")


def test_running_alone_wakes_for_held_requests():
    """They do not run, but they want to."""
    decision, _ = decide(ScalePolicy((Goal(MetricName.RUNNING, 4.0),), 0), fleet(spec=0, held=Held(9.0)), AT_ONCE)
    assert (decision.desired, decision.reason) == (1, "activate_from_zero")


def test_at_zero_without_an_activator_the_load_is_an_explicit_zero():
    """The count was read and is 0; an activator that does not answer is no value at all."""
    decision, _ = decide(parse_policy("queue:4,min=0"), fleet(spec=0), AT_ONCE)
    assert (decision.inflight, decision.demand, decision.desired, decision.coverage) == (0.0, 0.0, 0, 1.0)
    decision, _ = decide(parse_policy("queue:4,min=0"), fleet(spec=0, held=Held(None)), AT_ONCE)
    assert (decision.inflight, decision.demand, decision.desired, decision.reason) == (None, None, 0, "no_samples")


@pytest.mark.parametrize("look_at", [fleet(SILENT, spec=0), fleet(spec=0, failure="refused")])
def test_at_zero_what_should_answer_and_does_not_is_no_zero(look_at):
    """A replica that is still there and silent, or a source that failed."""
    decision, _ = decide(parse_policy("queue:4,min=0"), look_at, AT_ONCE)
    assert (decision.inflight, decision.desired, decision.reason) == (None, 0, "no_samples")


def test_a_large_backlog_at_zero_is_more_than_one():
    """5 held at a target of 4 are 2 replicas."""
    decision, _ = decide(parse_policy("queue:4,min=0"), fleet(spec=0, held=Held(5.0)), ScaleState())
    assert (decision.current, decision.desired, decision.hpa, decision.reason) == (0, 2, 2, "activate_from_zero")
