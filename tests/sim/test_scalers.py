"""The policies of a run: one grammar, the scenario's defaults, and the autoscalers to compare with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infscale.core.replicas import Fleet, Held, Phase, Replica
from infscale.errors import PolicyError
from infscale_sim.knative import Knative
from infscale_sim.policies import Core, Scaler, scaler_of
from infscale_sim.scenario import load_scenario

BASE = load_scenario("default")
DEFAULTS = BASE.defaults


def fleet(now_s: float, inflight: float, replicas: int, held: float = 0.0) -> Fleet:
    """So many serving replicas that share the requests."""
    seen = [
        Replica(f"r{n}", Phase.SERVING, inflight=inflight / replicas, running=inflight / replicas, waiting=0.0)
        for n in range(replicas)
    ]
    return Fleet(now_s, replicas, replicas, replicas, tuple(seen), Held(held))


def core(text: str) -> Core:
    """The scaler of a policy of infscale's own, with its behaviour spelled out."""
    scaler = scaler_of(text, DEFAULTS)
    assert isinstance(scaler, Core)
    return scaler


def rules(text: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The scaling policies that a policy ends with, up and down, as (value, period)."""
    behavior = core(text).policy.behavior
    assert behavior is not None
    up, down = ([(p.value, p.period_s) for p in r.policies] for r in (behavior.scale_up, behavior.scale_down))
    return up, down


def test_scenario_holds_where_the_policy_says_nothing():
    """Bounds, windows and cooldown come from the scenario; a policy's own take their place."""
    policy, own, plain = (core(text).policy for text in ("queue:24", "queue:24,min=2,max=3,cooldown=9", "hpa:cpu:60"))

    assert (policy.min_replicas, policy.max_replicas, policy.cooldown_s, policy.fit_samples) == (1, 8, 120, 5)
    assert (own.min_replicas, own.max_replicas, own.cooldown_s) == (2, 3, 9)
    assert (plain.max_replicas, plain.cooldown_s, plain.behavior) == (8, None, policy.behavior)
    assert policy.behavior is not None
    assert policy.behavior.scale_down.stabilization_window_s == 300


def test_behaviour_is_replaced_direction_by_direction():
    """A policy's down keys replace the scenario's list for down and leave up; short forms combine."""
    up, down = [(100, 15), (4, 15)], [(100, 15)]

    assert rules("queue:24") == (up, down)
    assert rules("queue:24,downpods=1") == (up, [(1, 15)])
    assert rules("queue:24,downpods=1,downpercent=50") == (up, [(1, 15), (50, 15)])
    assert rules("queue:24,up=2/60") == ([(2, 60)], down)


def test_a_default_written_out_beats_the_scenario():
    """`downwindow=300` is the HPA's own default, and still replaces a scenario's 60."""
    defaults = replace(DEFAULTS, behavior={"downwindow": 60})
    scaler = scaler_of("queue:24,downwindow=300", defaults)

    assert isinstance(scaler, Core)
    assert scaler.policy.behavior is not None
    assert scaler.policy.behavior.scale_down.stabilization_window_s == 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("static:two", "'two' at character 8: static: expected a whole number of replicas"),
        ("static:20000", "static: expected a whole number of replicas up to 10,000"),
        ("queue:24,max=20000", "max: at most 10,000 replicas are simulated"),
        ("kpa:queue:24,min=9", "the maximum 8 is below the minimum 9"),
        ("statics:2", "did you mean 'static'"),
        ("keda:queue:24,pol=3", "'pol' at character 15: no such key"),
        ("keda:queue:24,poll=0", "poll: expected seconds above 0"),
        ("kpa:cpu:60", "kpa takes one metric, queue"),
        ("kpa:queue:24,downpods=1", "no such key"),
        ("kpa:queue:24,panicat=1", "panicat: expected a factor above 1, as 2"),
        ("queue:24,min=9", "the maximum 8 is below the minimum 9"),
        ("cpu:60,min=0", "would never wake"),
    ],
)
def test_bad_policy_is_refused(text, message):
    """One line that says what is wrong."""
    with pytest.raises(PolicyError) as error:
        scaler_of(text, DEFAULTS)

    assert message in str(error.value)


def test_sync_grid():
    """First at 15 s, then every 15 s, whatever rounding does to the times."""
    times, now_s = [], 0.0
    for _ in range(1000):
        now_s = DEFAULTS.next_sync_s(now_s)
        times.append(now_s)

    assert times == [15.0 * n for n in range(1, 1001)]
    tenths = replace(DEFAULTS, first_s=0.1, period_s=0.1)
    now_s = 0.0
    for n in range(1, 1001):
        now_s = tenths.next_sync_s(now_s)
        assert now_s == pytest.approx(n / 10)


def decided(scaler: Scaler, *looks: tuple[float, float, int]) -> list[int]:
    """The counts at (time, requests, replicas); at 0 replicas the requests are held."""
    return [
        scaler.decide(fleet(t, requests if n else 0.0, n, 0.0 if n else requests)).replicas for t, requests, n in looks
    ]


def test_keda_polls_and_lets_go_of_everything():
    """At 0 a poll wakes; after the cooldown the count goes to 0 straight from 3; between polls nothing moves at 0."""
    scaler = scaler_of("keda:queue:24,min=0,poll=30,cooldown=60", DEFAULTS)
    scaler.start(0)

    assert decided(scaler, (15, 5, 0), (30, 5, 0), (45, 60, 1)) == [0, 1, 3]
    assert decided(scaler, (60, 60, 3), (90, 0, 3), (120, 0, 3), (135, 0, 3), (150, 0, 3)) == [3, 3, 3, 3, 0]
    assert scaler.next_s(45.0) == 60.0
    assert scaler_of("keda:queue:24,poll=10", DEFAULTS).next_s(15.0) == 20.0


@pytest.mark.parametrize("poll", ["0.1", "7.3", "2000"])
def test_keda_polls_at_any_interval(poll):
    """Poll follows poll whatever rounding does to the times, and each of them is one that wakes."""
    scaler = scaler_of(f"keda:queue:24,min=0,poll={poll}", replace(DEFAULTS, first_s=1e9))
    now_s = 0.0
    for n in range(1, 1001):
        now_s = scaler.next_s(now_s)
        assert now_s == pytest.approx(n * float(poll))
        assert decided(scaler, (now_s, 5, 0)) == [1]


def test_knative_panics_and_calms_down():
    """Twice the capacity within 6 s is panic: up at once, never down, until a stable window after the last reason."""
    autoscaler = Knative(target=10)

    assert [autoscaler.decide(float(t), 5, 1) for t in range(2, 12, 2)] == [(1, "stable")] * 5
    assert autoscaler.decide(12.0, 60, 1) == (3, "panic")  # (5 + 5 + 60) / 3 over 10
    assert autoscaler.decide(14.0, 60, 3) == (5, "panic")
    assert [autoscaler.decide(float(t), 0, 5)[0] for t in range(16, 74, 2)] == [5] * 29
    assert autoscaler.decide(76.0, 0, 5) == (2, "stable")  # 0 asked for, at most halved


def test_knative_rates():
    """The mean over the window counts, and one look takes away at most half of what is ready."""
    autoscaler = Knative(target=10, stable_s=20)
    for t in range(0, 20, 2):
        autoscaler.decide(float(t), 40, 4)

    assert autoscaler.decide(20.0, 0, 4) == (4, "stable")
    assert autoscaler.decide(22.0, 0, 8) == (4, "stable")
