"""What went wrong elsewhere, each with its public report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import AT_ONCE, ScaleState
from infscale.core.replicas import Buckets, Held, Phase, Replica
from tests.core.workload import Workload, asked, fleet, serving

QUEUE = parse_policy("queue:4,max=20,downwindow=0")


def silent(name: str) -> Replica:
    """A replica that served once and does not answer."""
    return Replica(name, Phase.SILENT)


def test_no_cascade_while_replicas_load():
    """vllm-project/aibrix#2670: 2, 4, 8, 16 while the first new replica was still loading."""
    workload = Workload("queue:4,max=64", cold_start_s=300, replicas=2)
    workload.load = 16
    workload.advance(15)
    assert workload.replicas == 4
    workload.advance(285)
    assert workload.replicas == 4


def test_no_cascade_of_latency_while_replicas_load():
    """vllm-project/aibrix#2670 with latency: starting replicas do not multiply what the others need."""
    policy = parse_policy("ttft:1,max=64,downwindow=0")
    layout = (0.5, 1.0, 2.0, 4.0, float("inf"))
    counts, state, spec, counted = [0.0] * 5, AT_ONCE, 2, []
    for step in range(6):
        counts = [old + new for old, new in zip(counts, (0, 0, 10, 10, 10), strict=True)]
        replicas = [serving(name, 1.0, ttft=(Buckets(layout, tuple(counts)),)) for name in ("a", "b")]
        starting = [Replica(f"s{n}", Phase.STARTING) for n in range(spec - 2)]
        decision, state = decide(policy, fleet(*replicas, *starting, now_s=15.0 * step), state)
        spec = asked(decision)
        counted.append(spec)
    assert counted == [2, 4, 4, 4, 4, 4]


def test_no_oscillation_between_two_and_one():
    """ai-dynamo/dynamo#9294: 2 replicas with small batches read low, 1 overloads, and so on for ever."""
    plain = _two_one_two("queue:8,max=4,downwindow=30,up=4/15")
    guarded = _two_one_two("queue:8,max=4,downwindow=30,up=4/15,guard=0.85,knee=1000")
    assert set(plain) == {1, 2}
    assert plain.count(1) > 3
    assert set(guarded) == {2}


def _two_one_two(policy: str) -> list[int]:
    """The counts of 20 minutes of 1,200 tokens/s: on two replicas 3 in flight each, on one the queue grows."""
    state, spec, queue, tokens, counts = ScaleState(), 2, 6.0, {"a": 0.0, "b": 0.0}, []
    for step in range(80):
        names = ["a", "b"][:spec]
        queue = 6.0 if spec == 2 else queue + 3.0
        for name in names:
            tokens[name] += 15.0 * min(1000.0, 1200.0 / spec)
        replicas = [serving(name, queue / spec, generation_tokens=tokens[name]) for name in names]
        decision, state = decide(parse_policy(policy), fleet(*replicas, now_s=15.0 * step), state)
        spec = min(2, asked(decision))
        counts.append(spec)
    return counts[4:]


def test_one_silent_replica_freezes_nothing():
    """vllm-project/aibrix#617: one Pod without metrics stopped all scaling, up and down."""
    busy = [serving(f"r{n}", 8.0) for n in range(3)]
    decision, _ = decide(QUEUE, fleet(*busy, silent("gone")), AT_ONCE)
    assert (decision.desired, decision.demand) == (6, 24.0)
    idle = [serving(f"r{n}", 0.0) for n in range(3)]
    decision, _ = decide(QUEUE, fleet(*idle, silent("gone")), AT_ONCE)
    assert (decision.desired, decision.demand) == (1, 4.0)


@pytest.mark.parametrize("replicas", [(silent("a"), silent("b"), silent("c")), ()])
def test_missing_metrics_are_not_zero_load(replicas):
    """kedacore/keda#3065: an empty query result scaled a busy workload down."""
    decision, _ = decide(QUEUE, fleet(*replicas, spec=3), AT_ONCE)
    assert (decision.desired, decision.reason, decision.inflight) == (3, "no_samples", None)


def test_series_of_deleted_pods_do_not_count():
    """llm-d/llm-d-autoscaling#368: stale series of Pods that were gone kept the count up.

    A lost peer stays silent for a while. More such peers than the count is, and still they alone raise nothing.
    """
    here = [serving(f"r{n}", 3.8) for n in range(3)]
    gone = [silent(f"gone{n}") for n in range(2)]
    decision, _ = decide(QUEUE, fleet(*here, *gone, spec=3), AT_ONCE)
    assert decision.desired == 3
    leaving = [Replica(f"d{n}", Phase.DRAINING, inflight=40.0) for n in range(2)]
    decision, _ = decide(QUEUE, fleet(*here, *leaving, spec=3), AT_ONCE)
    assert decision.desired == 3
    assert decision.inflight == pytest.approx(11.4)


def test_an_outage_does_not_scale_down():
    """kubernetes/kubernetes#105187: with the metrics' source down the count fell."""
    workload = Workload("queue:4,max=8,downwindow=60", replicas=6)
    workload.load = 24
    workload.advance(60)
    workload.silent = set(workload.born_s)
    workload.advance(900)
    assert (workload.replicas, workload.reason) == (6, "no_samples")
    # Back, with the clients still away: the window starts with the first look, not with the last before the outage.
    workload.silent, workload.load = set(), 0
    workload.advance(45)
    assert workload.replicas == 6
    workload.load = 24
    workload.advance(300)
    assert workload.replicas == 6


def test_one_broken_metric_of_two_does_not_scale_down():
    """kubernetes/kubernetes#105187: the metric that was left asked for less, and less it was."""
    policy = parse_policy("queue:4+kv:80,downwindow=0")
    decision, _ = decide(policy, fleet(*[serving(f"r{n}") for n in range(4)]), AT_ONCE)
    assert (decision.desired, decision.reason) == (4, "partial_samples")


def test_an_outage_of_most_still_lets_it_rise():
    """kubernetes/kubernetes#105187, the other way: what is known alone asks for more."""
    decision, _ = decide(QUEUE, fleet(serving("a", 24.0), silent("b"), silent("c")), AT_ONCE)
    assert decision.desired == 6
    assert decision.coverage == pytest.approx(1 / 3)


def test_held_requests_wake_a_workload_at_zero():
    """llm-d PR #2492: requests pending before a workload at zero woke nothing."""
    policy = parse_policy("queue:4,min=0,up=100%/15,upwindow=60")
    decision, _ = decide(policy, fleet(spec=0, held=Held(1)), AT_ONCE)
    assert (decision.desired, decision.reason) == (1, "activate_from_zero")
    decision, _ = decide(replace(policy, behavior=None), fleet(spec=0, held=Held(5)), ScaleState())
    assert (decision.desired, decision.reason) == (2, "activate_from_zero")
