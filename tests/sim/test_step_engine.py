"""The event engine against the step-by-step reference, on the default scenario and on random ones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from infscale_sim.distribution import Delay
from infscale_sim.policies import scaler_of
from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.simulate import Result, run
from infscale_sim.traffic import Lengths, Process, Rate, Requests
from tests.sim.step_engine import StepCluster

POLICIES = (
    *("queue:6", "queue:3,lookahead=30", "queue:8,min=0,cooldown=20", "hpa:queue:5", "hpa:cpu:12", "hpa:cpu:31"),
    *(
        "waiting:2",
        "running:4,downwindow=30",
        "keda:queue:6,min=0,poll=10,cooldown=20",
        "kpa:queue:6,min=0",
        "static:2",
    ),
)


def compared(scenario: Scenario, policy: str) -> tuple[Result, StepCluster]:
    """Both engines on one scenario; they must agree in all that a run tells."""
    requests = scenario.requests()
    steps = StepCluster(scenario, requests, scaler_of(policy, scenario.defaults))
    steps.run()
    events = run(scenario, policy, requests)

    changes = [(m.time_s, m.desired) for m in events.run.moments if m.desired != m.replicas]
    assert changes == steps.counts, policy
    step_s = scenario.hardware.decode_step_s(scenario.hardware.slots, 3000)
    horizon_s = scenario.horizon_s
    for one, first_s, done_s, fate in zip(
        steps.sequences, events.run.first_s, events.run.done_s, events.run.fate, strict=True
    ):
        assert fate == steps.fate[one.request]
        assert min(first_s, horizon_s) == pytest.approx(min(one.first_s, horizon_s), abs=step_s)
        assert min(done_s, horizon_s) == pytest.approx(min(one.done_s, horizon_s), abs=step_s)
    assert events.replica_minutes == pytest.approx(steps.replica_minutes, abs=step_s)
    assert events.slo_misses == misses(scenario, steps)
    return events, steps


def misses(scenario: Scenario, steps: StepCluster) -> int:
    """Requests without a first token in time."""
    return sum(
        steps.fate[one.request] != 0
        or one.first_s > scenario.horizon_s
        or one.first_s - one.arrival_s > scenario.slo.ttft_s + 1e-9
        for one in steps.sequences
    )


def random_scenario(seed: int) -> Scenario:
    """A small scenario with something hard in it: full slots, no room for KV, silence, cuts, chunks."""
    draw = random.Random(seed)
    base = load_scenario("default")
    prefill = draw.choice(("stall", "stall", "chunked"))
    hardware = replace(
        base.hardware,
        slots=draw.choice((1, 3, 8, 24)),
        prefill=prefill,
        step_tokens=draw.choice((64, 256, 2048)),
        reserve_gb=draw.choice((4.0, 55.7, 55.9)),  # of room for 396,728, 2,288 and 762 tokens
    )
    horizon_s = draw.choice((60.0, 120.0))
    times = sorted(draw.uniform(0, horizon_s) for _ in range(3))
    peak = draw.choice((2.0, 8.0, 20.0))
    points = [(0.0, draw.uniform(0, peak)), *((time_s, draw.uniform(0, peak)) for time_s in times)]
    points += [(times[-1], 0.0), (horizon_s, 0.0)] if draw.random() < 0.4 else [(horizon_s, peak / 2)]
    return replace(
        base,
        rate=Rate(points),
        process=Process(draw.choice(("even", "poisson", "gamma")), cv=2.0),
        prompt=draw.choice((base.prompt, Lengths("lognormal", mean=200, cv=1, most=900))),
        output=draw.choice((base.output, Lengths("uniform", least=1, most=200), Lengths("exponential", mean=60))),
        horizon_s=horizon_s,
        hardware=hardware,
        start=draw.choice((1, 2, 4)),
        grace_s=draw.choice((base.grace_s, 0.0, 2.0, 10.0)),
        cold_start=Delay("constant", draw.choice((0.0, 7.0, 20.0, 30.0))),
        defaults=replace(base.defaults, behavior={**base.defaults.behavior, "downwindow": draw.choice((0, 30))}),
        seed=seed,
    )


def test_default_scenario_agrees():
    """On the default scenario both engines give the same requests, decisions and times."""
    compared(load_scenario("default"), "queue:24,min=0,cooldown=120")


@pytest.mark.parametrize("seed", range(50))
def test_random_scenarios_agree(seed):
    """On random scenarios both engines give the same requests, decisions and times."""
    compared(random_scenario(seed), random.Random(seed).choice(POLICIES))


def test_random_scenarios_are_hard():
    """Among the random scenarios some preempt, cut, reject and scale to zero, or they would prove little."""
    fates, zeros, resumed = set(), 0, 0
    for seed in range(50):
        scenario = random_scenario(seed)
        events = run(scenario, random.Random(seed).choice(POLICIES))
        fates |= set(events.run.fate)
        zeros += any(moment.desired == 0 for moment in events.run.moments)
        resumed += events.requests > 0 and scenario.hardware.kv_tokens < 3000

    assert fates >= {0, 1, 3}
    assert zeros >= 3
    assert resumed >= 10


def test_preemption_agrees():
    """A cache that holds what was admitted but not what it grows to preempts the youngest, in both engines."""
    base = load_scenario("default")
    scenario = replace(
        base,
        rate=Rate([(0.0, 6.0), (60.0, 6.0)]),
        horizon_s=120.0,
        hardware=replace(base.hardware, reserve_gb=55.9),
        prompt=Lengths("cycle", values=(20, 60, 40)),
        output=Lengths("cycle", values=(300, 200, 400)),
    )
    requests: Requests = scenario.requests()

    events, _ = compared(scenario, "static:1")

    assert len(requests) == events.requests == 360
    gaps = [done_s - first_s for done_s, first_s in zip(events.run.done_s, events.run.first_s, strict=True)]
    assert max(gap for gap in gaps if gap < 120) > 400 * scenario.hardware.decode_step_s(1, 762) + 0.5
