"""The built-in comparisons: the published numbers, and why they are so."""

from __future__ import annotations

import pytest

from infscale_sim.scenario import SCENARIOS, load_scenario
from infscale_sim.simulate import Result, compare, run

DEFAULT = load_scenario("default")
PROMPTS = load_scenario("prompts")


@pytest.fixture(scope="module")
def default() -> dict[str, Result]:
    """The default comparison by policy."""
    return {result.policy: result for result in compare(DEFAULT, DEFAULT.policies)}


def test_default_traffic(default):
    """The integral of the rate is 15,555 requests, and all policies see them."""
    assert {result.requests for result in default.values()} == {15_555}
    assert {result.seed for result in default.values()} == {None}


def test_cpu_60_never_scales(default):
    """CPU says 30 to 46 % whatever waits, so a target of 60 never scales and misses about nine in ten."""
    result = default["hpa:cpu:60"]

    assert 13_200 <= result.slo_misses <= 13_700
    assert (result.replica_minutes, result.peak_replicas, result.scale_events) == (pytest.approx(25.0), 1, 0)


def test_cpu_25_runs_everything(default):
    """One busy replica is above a target of 25, so everything runs; it misses none and costs the most."""
    result = default["hpa:cpu:25"]

    assert result.slo_misses == 0
    assert 143 <= result.replica_minutes <= 147
    assert (result.peak_replicas, result.scale_events) == (8, 7)


def test_queue_misses_on_the_ramp(default):
    """Queue depth scales in time but for the cold start: about 2 % on the ramp, at little more than half the cost."""
    result = default["queue:24"]
    late = [
        arrival_s
        for arrival_s, first_s in zip(DEFAULT.requests().arrival_s, result.run.first_s, strict=True)
        if first_s - arrival_s > 2
    ]

    assert 280 <= result.slo_misses <= 420
    assert 76 <= result.replica_minutes <= 86
    assert 6 <= result.peak_replicas <= 8
    assert result.scale_events == 7
    assert 180 < min(late) <= max(late) < 360


def test_lookahead_buys_them_earlier(default):
    """Projected over the cold start, the ramp is met."""
    result = default["queue:24,lookahead=90"]

    assert result.slo_misses <= 80
    assert (result.peak_replicas, result.scale_events) == (8, 9)


def test_zero_saves_silence_and_pays_after_it(default):
    """Scale to zero saves the silent minutes; the first requests after it wait for a sync and a cold start."""
    queue, zero = default["queue:24"], default["queue:24,min=0,cooldown=120"]

    assert zero.slo_misses - queue.slo_misses == pytest.approx(26, abs=1)
    assert zero.replica_minutes - queue.replica_minutes == pytest.approx(-4.2, abs=0.3)
    assert zero.scale_events == 9


def test_static(default):
    """Two replicas for 25 minutes cost 50, and miss none here."""
    result = default["static:2"]

    assert (result.slo_misses, result.replica_minutes, result.scale_events) == (0, pytest.approx(50.0), 0)


def test_prompts_show_what_queue_depth_cannot_see():
    """Small batches read as low concurrency; the window lets go of what is needed, again and again. Three cures."""
    policies = ("queue:24", "queue:24,downpods=1", "queue:24+work:learned", "queue:24,guard=0.85")
    queue, *cures = (run(PROMPTS, policy) for policy in policies)

    assert PROMPTS.prompt.values == tuple(round(n * 2000 / 128) for n in (64, 160, 96, 192, 128))
    assert PROMPTS.output.values == tuple(round(n * 150 / 400) for n in (400, 200, 600, 300, 500, 240, 560))
    assert 19_000 <= queue.slo_misses <= 23_000
    assert queue.replica_minutes == pytest.approx(469, abs=5)
    assert queue.scale_events == 24
    for cure in cures:
        assert cure.slo_misses <= 5, cure.policy
        assert cure.replica_minutes <= 0.9 * queue.replica_minutes, cure.policy
    assert [round(cure.replica_minutes) for cure in cures] == [314, 316, 315]


def test_built_in_scenario_as_a_file(tmp_path):
    """The built-in file given by its path means the same, and keys that are left out have its values."""
    by_path = load_scenario(str(SCENARIOS / "default.yaml"))
    empty = tmp_path / "short.yaml"
    empty.write_text("horizon_s: 1500\n")

    rows = [run(scenario, "queue:24").row() for scenario in (DEFAULT, by_path, load_scenario(str(empty)))]

    assert rows[0] == rows[1] == rows[2]
