"""The oracle between the bound and all schedules, and what both say of known cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infscale_sim.bound import allowed_misses, bound_minutes, demand_of
from infscale_sim.oracle import Answer, solve, solve_all
from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.schedule import price
from infscale_sim.simulate import compare, run
from infscale_sim.traffic import Request, Requests
from tests.sim.small_scenarios import every_schedule, scenario_with, small_scenario

DEFAULT = load_scenario("default")
REQUESTS = DEFAULT.requests()
BUDGETS_PERCENT = (0.0, 1.0, 10.0)
STEADY = [[0, 1], [600, 1]]


@pytest.fixture(scope="module")
def default() -> list[Answer]:
    """The default scenario's answers without a miss and within 1 %."""
    return solve_all(DEFAULT, REQUESTS, (0.0, 1.0))


def bound(scenario: Scenario, misses: int = 0) -> float:
    """The bound for a scenario's own requests."""
    return bound_minutes(scenario, demand_of(scenario, scenario.requests()), misses)


@pytest.mark.parametrize("seed", range(12))
def test_bound_exhaustive_oracle(seed):
    """Bound <= the best of all schedules <= oracle, for every budget; and where one exists, the oracle finds one."""
    scenario = small_scenario(seed, looks=4)
    requests = scenario.requests()
    everything = every_schedule(scenario, requests)

    for percent, answer in zip(BUDGETS_PERCENT, solve_all(scenario, requests, BUDGETS_PERCENT), strict=True):
        within = [s.replica_minutes for s in everything if s.misses <= allowed_misses(requests, percent)]
        if not within:
            assert answer.replica_minutes is None
            continue
        assert answer.replica_minutes is not None
        assert answer.bound_replica_minutes <= min(within) + 1e-9
        assert min(within) - 1e-9 <= answer.replica_minutes <= 1.15 * min(within)


def test_small_cases_are_of_many_kinds():
    """The cases above have a schedule or not, and an oracle that is the best of all in most of those that have."""
    best = found = missing = 0
    for seed in range(12):
        scenario = small_scenario(seed, looks=3)
        requests = scenario.requests()
        budget = allowed_misses(requests, 10)
        within = [s.replica_minutes for s in every_schedule(scenario, requests) if s.misses <= budget]
        answer = solve(scenario, requests, 10)
        found += bool(within)
        missing += not within
        best += bool(within) and answer.replica_minutes == min(within)

    assert missing >= 1
    assert found >= 6
    assert best >= found - 1


def test_default_figures(default):
    """About 29 replica-minutes for no miss and 25 for 1 %, each within a few percent of what no schedule can beat."""
    never, seldom = default

    assert never.replica_minutes == pytest.approx(29.1, abs=0.5)
    assert seldom.replica_minutes == pytest.approx(24.4, abs=0.7)
    assert 0.95 * never.replica_minutes <= never.bound_replica_minutes <= never.replica_minutes
    assert 0.92 * seldom.replica_minutes <= seldom.bound_replica_minutes <= seldom.replica_minutes


def test_oracle_is_a_run_of_the_engine(default):
    """The schedule, played again, misses and costs what the oracle says."""
    for answer, most in zip(default, (0, 155), strict=True):
        again = price(DEFAULT, REQUESTS, answer.schedule.counts)

        assert again == answer.schedule
        assert again.misses <= most
        assert again.replica_minutes == answer.replica_minutes


def test_rows_within_the_budget_have_a_ratio(default):
    """The oracle as a policy has ratio 1; a policy above the budget has none; the bound stands beside all."""
    seldom = default[1]
    rows = list(compare(DEFAULT, ("oracle", "static:2", "queue:24"), REQUESTS, answer=seldom))

    assert rows[0].oracle_ratio == 1.0
    assert rows[0].slo_misses == seldom.schedule.misses
    assert rows[1].oracle_ratio == pytest.approx(50 / seldom.replica_minutes)
    assert rows[2].oracle_ratio is None
    assert {row.bound_replica_minutes for row in rows} == {seldom.bound_replica_minutes}


def test_no_policy_beats_the_bound(default):
    """Not even with replicas that are ready at the start, as many as it likes."""
    for policy in ("static:2", "static:3", "queue:24,lookahead=90", "hpa:cpu:25"):
        result = run(DEFAULT, policy, REQUESTS)

        assert result.slo_misses == 0
        assert result.replica_minutes >= default[0].bound_replica_minutes


def test_bound_falls_with_the_budget():
    """More misses never make the bound larger, and with all of them nothing is needed."""
    demand = demand_of(DEFAULT, REQUESTS)
    bounds = [bound_minutes(DEFAULT, demand, misses) for misses in (0, 1, 15, 155, 1555, 15_555)]

    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[3] > bounds[4] > bounds[5] == 0.0


def test_one_replica_for_steady_traffic():
    """A request every second needs a replica all the time but for the SLO before the first; so both say."""
    scenario = scenario_with(rate=STEADY, horizon_s=600)
    answer = solve(scenario, scenario.requests(), 0)

    assert answer.replica_minutes == pytest.approx(10, abs=0.26)
    assert answer.bound_replica_minutes == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize(("silence_s", "saved_s"), [(80, 0), (300, 209)])
def test_silence_pays_when_it_is_longer_than_a_cold_start(silence_s, saved_s):
    """A gap saves its length less a cold start (91 s), to some seconds in the bound and two syncs in the oracle."""
    end_s = 400 + silence_s
    scenario = scenario_with(
        rate=[[0, 1], [200, 1], [200, 0], [200 + silence_s, 0], [200 + silence_s, 1], [end_s, 1]], horizon_s=end_s
    )
    answer = solve(scenario, scenario.requests(), 0)

    assert answer.bound_replica_minutes * 60 == pytest.approx(end_s - saved_s, abs=8)
    assert answer.replica_minutes is not None
    assert answer.bound_replica_minutes * 60 <= answer.replica_minutes * 60 <= end_s - saved_s + 30


def test_work_of_a_full_batch_is_what_the_engine_takes():
    """The work of requests in full batches is at most the time that a replica takes, and not much less."""
    scenario = scenario_with(horizon_s=200)
    requests = Requests.of(Request(0.0, 128, 400) for _ in range(1280))
    work_s = sum(demand_of(scenario, requests).works)
    done = run(scenario, "static:1", requests).run

    assert work_s <= max(done.done_s) <= 1.02 * work_s


def test_overload_needs_more_replicas():
    """At 1.5 times what a replica can do at the most, the bound wants two nearly all the time, and three at 2.5."""
    work_s = sum(demand_of(DEFAULT, REQUESTS).works) / len(REQUESTS)
    for load, replicas in ((1.5, 2), (2.5, 3)):
        rate = load / work_s
        scenario = scenario_with(rate=[[0, rate], [600, rate]], horizon_s=600)

        assert 0.95 * replicas * 10 <= bound(scenario) <= replicas * 10


def test_requests_that_always_miss_use_the_budget_up():
    """A prompt that takes longer than the SLO misses on every schedule; the rest may miss that much less."""
    scenario = scenario_with(rate=STEADY, horizon_s=600)
    some = [Request(float(second), 60_000 if second % 50 == 0 else 100, 10) for second in range(500)]
    requests = Requests.of(some)
    answer = solve(scenario, requests, 1)

    assert demand_of(scenario, requests).impossible == 10
    assert answer.replica_minutes is None
    assert answer.schedule.misses >= 10
    assert run(scenario, "oracle", requests, answer).slo_misses == answer.schedule.misses


def test_nothing_to_do_costs_next_to_nothing():
    """Without a request the replica at the start goes at the first sync."""
    scenario = scenario_with(rate=STEADY, horizon_s=600)
    answer = solve(scenario, Requests.of([]), 0)

    assert answer.replica_minutes == pytest.approx(15 / 60)
    assert answer.bound_replica_minutes == 0.0


def test_same_answer_every_time():
    """With random cold starts and victims too: the search has no randomness of its own."""
    scenario = replace(small_scenario(5, looks=4), seed=3)
    requests = scenario.requests()

    assert solve_all(scenario, requests, BUDGETS_PERCENT) == solve_all(scenario, requests, BUDGETS_PERCENT)
