"""The search: what it finds, what it gives up, and what it checks on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infscale_sim.distribution import Delay
from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.traffic import Process, Rate
from infscale_sim.tune.cases import JITTER_S, Case, cases_of, resampled
from infscale_sim.tune.manifests import Workload
from infscale_sim.tune.report import as_mapping, as_text, findings_of
from infscale_sim.tune.search import Search, budget_of, search
from infscale_sim.tune.space import Axis, Space, shortened, space_of
from infscale_sim.tune.trial import Cost, Limits, cost_of, try_policy
from infscale_sim.tune.workers import Workers

SCENARIO = """
rate: [[0, 0.4], [60, 0.4], [120, 4], [200, 4], [200, 0.4], [240, 0.4], [240, 0], [360, 0], [360, 0.4], [400, 0.4]]
horizon_s: 410
cluster: {max: 4, cold_start_s: 30}
replica: {slots: 8}
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """Eight minutes with a ramp, a fall and a silence."""
    path = tmp_path_factory.mktemp("tune") / "waves.yaml"
    path.write_text(SCENARIO)
    return load_scenario(str(path))


@pytest.fixture(scope="module")
def cases(scenario) -> tuple[Case, ...]:
    """What is searched on: nothing is random, so one case."""
    return cases_of(scenario, (), 2).searched


def small_space() -> Space:
    """A space of 9 x 4 x 3 x 2 policies, of which the first grid takes 12."""
    return Space(
        (
            Axis("target", tuple(f"queue:{target}" for target in range(1, 10)), (1, 4, 7)),
            Axis("lookahead", tuple(f"lookahead={seconds}" for seconds in (0, 15, 30, 60)), (0, 2)),
            Axis(
                "rate down", ("downwindow=60", "downwindow=120", "downwindow=60,downpods=1"), (0, 1), is_ordered=False
            ),
            Axis("zero", ("min=1", "min=0,cooldown=60"), (0,), is_ordered=False),
        ),
        ("max=4",),
    )


@pytest.fixture(scope="module")
def exhaustive(cases) -> dict[str, Cost]:
    """Every policy of the small space, run to its end."""
    space = small_space()
    return {space.text(candidate): cost_of(cases[0], space.text(candidate)) for candidate in space.all()}


def found_in(space: Space, cases: tuple[Case, ...], budget: int, runs: int = 1000, workers: int = 1) -> Search:
    """A search."""
    with Workers(cases, workers) as trials:
        return search(space, budget, trials, runs=runs)


def cheapest(exhaustive: dict[str, Cost], budget: int) -> float:
    """The replica-minutes of the best of all policies."""
    return min(cost.replica_minutes for cost in exhaustive.values() if cost.misses <= budget)


@pytest.mark.parametrize("percent", [0.0, 3.0, 10.0])
def test_search_finds_what_exhaustive_search_finds(cases, exhaustive, percent):
    """A small space is searched whole: the best is the best of all, and most are given up on the way to it."""
    found = found_in(small_space(), cases, budget_of(len(cases[0].requests), percent))
    best = found.best()

    assert best is not None
    assert best.cost.replica_minutes == cheapest(exhaustive, found.budget)
    assert len(found.tried) + found.stopped == len(found.seen) == len(exhaustive)
    assert found.stopped > len(exhaustive) / 2


@pytest.mark.parametrize("percent", [0.0, 3.0, 10.0])
def test_search_of_a_part_comes_close(cases, exhaustive, percent):
    """With runs for half of the space, refinement alone comes within 3 % of the best of all."""
    found = found_in(small_space(), cases, budget_of(len(cases[0].requests), percent), runs=108)
    best = found.best()

    assert best is not None
    assert best.cost.replica_minutes <= 1.03 * cheapest(exhaustive, found.budget)


def test_only_what_is_no_better_is_given_up(cases, exhaustive):
    """A trial that is given up would have cost at least as much as a policy of the limits, in both."""
    ordered = sorted(exhaustive.values())
    limits = Limits(
        [ordered[0]]
        + [
            cost
            for index, cost in enumerate(ordered)
            if index and cost.misses < min(before.misses for before in ordered[:index])
        ]
    )
    given_up = [text for text in list(exhaustive)[::5] if try_policy(cases, text, limits) is None]

    assert len(given_up) > 5
    for text in given_up:
        cost = exhaustive[text]
        assert any(c.replica_minutes <= cost.replica_minutes and c.misses <= cost.misses for c in limits.frontier), text


def test_trial_that_goes_on_costs_what_a_run_costs(cases, exhaustive):
    """Looking whether to go on changes nothing."""
    text = next(iter(exhaustive))

    assert try_policy(cases, text, Limits()) == exhaustive[text]


def test_frontier_is_what_nothing_beats(cases):
    """Rising in replica-minutes, falling in misses, and no other run is at most both."""
    found = found_in(small_space(), cases, 0, runs=60)
    frontier = [one.cost for one in found.frontier()]

    assert frontier == sorted(frontier)
    assert [cost.misses for cost in frontier] == sorted({cost.misses for cost in frontier}, reverse=True)
    for one in found.tried.values():
        assert any(c.replica_minutes <= one.cost.replica_minutes and c.misses <= one.cost.misses for c in frontier)


def test_number_of_workers_changes_nothing(cases):
    """Two processes give what one gives, given-up runs included."""
    one, two = (found_in(small_space(), cases, 10, runs=40, workers=workers) for workers in (1, 2))

    assert (one.tried, one.stopped, one.seen) == (two.tried, two.stopped, two.seen)


def test_interrupt_gives_the_best_so_far(cases):
    """Ctrl-C within a run ends the search with what is known by then."""

    def interrupt(found: Search) -> None:
        if len(found.seen) == 5:
            raise KeyboardInterrupt

    with Workers(cases, 1) as workers:
        found = search(small_space(), 1000, workers, runs=100, progress=interrupt)

    assert found.is_interrupted
    assert len(found.seen) == 5
    assert found.best() is not None


def test_no_more_runs_than_allowed(cases):
    """The number of runs is a bound."""
    assert len(found_in(small_space(), cases, 0, runs=7).seen) == 7


def test_budget_that_nothing_keeps_gives_the_fewest_misses(cases, exhaustive):
    """Where no policy is within the budget there is no best, and the closest misses least."""
    found = found_in(small_space(), cases, -1, runs=108)

    assert found.best() is None
    closest = found.closest()
    assert closest is not None
    assert closest.cost.misses == min(cost.misses for cost in exhaustive.values())


def test_resampled_arrivals_keep_the_shape(scenario):
    """About as many requests, in order, near those they come from; the same for a seed and others for another."""
    requests = scenario.requests()
    one, again, other = (resampled(requests, seed, scenario.horizon_s) for seed in (1, 1, 2))

    assert list(one.arrival_s) == list(again.arrival_s)
    assert list(one.arrival_s) != list(other.arrival_s)
    assert len(one) == pytest.approx(len(requests), abs=5 * len(requests) ** 0.5)
    silent = [arrival_s for arrival_s in one.arrival_s if 240 + JITTER_S < arrival_s < 360 - JITTER_S]
    assert silent == []
    pairs = set(zip(requests.prompt_tokens, requests.output_tokens, strict=True))
    assert set(zip(one.prompt_tokens, one.output_tokens, strict=True)) <= pairs


def test_fixed_traffic_is_checked_on_resampled_arrivals(scenario):
    """Without randomness there is one case to search on, and as many resamplings as seeds."""
    cases = cases_of(scenario, (), 3)

    assert (len(cases.searched), len(cases.proving), len(cases.held_out)) == (1, 3, 3)
    assert cases.how == "arrivals resampled with seeds 3 to 5"


def test_random_traffic_is_checked_on_other_seeds(scenario):
    """With random arrivals no seed is both searched on and checked on."""
    cases = cases_of(replace(scenario, process=Process("poisson"), seed=4), (), 2)

    assert [case.scenario.seed for case in cases.searched] == [4, 5]
    assert [case.scenario.seed for case in cases.held_out] == [6, 7]
    assert cases.how == "seeds 6 to 7, which the search did not see"
    every = (*cases.searched, *cases.proving, *cases.held_out)
    assert len({tuple(case.requests.arrival_s) for case in every}) == 6


def test_sturdier_policy_is_named_where_the_best_fails(scenario):
    """On half as much traffic again the best misses too much; a dearer one that holds there is named beside it."""
    busier = replace(scenario, rate=Rate([(time_s, 1.5 * rate) for time_s, rate in scenario.rate.points]))
    held_out = tuple(Case(replace(busier, seed=seed), busier.requests()) for seed in (1, 2))
    cases = replace(cases_of(scenario, (), 1), proving=held_out[:1], held_out=held_out[1:])
    found = found_in(small_space(), cases.searched, budget_of(len(cases.searched[0].requests), 5.0), runs=60)
    told = findings_of(found, cases, 5.0, Workload())

    assert told.is_within
    assert told.held_out[0].miss_percent > 5
    assert told.sturdy is not None
    assert told.sturdy.point.replica_minutes > told.chosen.replica_minutes
    assert told.sturdy.held_out[0].miss_percent <= 5
    assert any(
        f"not safe; the cheapest that held on as much traffic again: {told.sturdy.point.policy}" in line
        for line in as_text(told)
    )
    assert as_mapping(told)["sturdier"]["policy"] == told.sturdy.point.policy


def test_whole_space_can_be_run(scenario):
    """Every value of every axis is a policy, and its shortest text means the same in a run."""
    space = space_of(scenario, least=0, most=4, knee=8, knee_rate=4000.4)
    first = tuple(0 for _ in space.axes)
    case = Case(replace(scenario, horizon_s=60), scenario.requests())
    for move in (first, *space.moves(first, 1)):
        text = space.text(move)
        short = shortened(text, scenario.defaults)
        assert len(short) <= len(text)
        assert cost_of(case, short) == cost_of(case, text), text


def test_space_follows_the_scenario(scenario):
    """Targets reach above a full batch, lookaheads go by the cold start, and --min 1 leaves zero out."""
    space = space_of(scenario, least=1, most=4, knee=8, knee_rate=None)
    by_name = {axis.name: axis for axis in space.axes}

    assert by_name["target"].values[0] == "queue:1"
    assert by_name["target"].values[-1] == "queue:10"
    assert "lookahead=30" in by_name["lookahead"].values
    assert by_name["zero"].values == ("min=1",)
    assert by_name["guard"].values == ("", "guard=0.85")
    cold = Delay("uniform", least=20.0, most=60.0)  # 40 s on the mean
    drawn = space_of(replace(scenario, cold_start=cold), least=1, most=4, knee=8, knee_rate=None)
    assert "lookahead=40" in drawn.axes[1].values
