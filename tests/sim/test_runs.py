"""What holds in every run: nothing is lost, nothing depends on chance, what the cluster's rules say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infscale_sim.cluster import Cluster
from infscale_sim.distribution import Delay
from infscale_sim.outcome import Fate
from infscale_sim.policies import scaler_of
from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.simulate import run
from infscale_sim.traffic import Lengths, Process, Rate, Request, Requests

BASE = load_scenario("default")


def scenario(**changes) -> Scenario:
    """Five requests a second for a minute, then two minutes to finish them."""
    quiet = {"rate": Rate([(0.0, 5.0), (60.0, 5.0)]), "horizon_s": 180.0, "policies": ("static:1",)}
    return replace(BASE, **{**quiet, **changes})


def finished(chosen: Scenario, policy: str) -> Cluster:
    """A cluster at the end of its run."""
    cluster = Cluster(chosen, chosen.requests(), scaler_of(policy, chosen.defaults))
    cluster.run()
    return cluster


@pytest.mark.parametrize("prefill", ["stall", "chunked"])
@pytest.mark.parametrize("reserve_gb", [4.0, 55.7])
def test_tokens_in_are_tokens_out(prefill, reserve_gb):
    """Every request is served once: the replicas' counters add up to the tokens asked for, preempted or not."""
    hardware = replace(BASE.hardware, prefill=prefill, reserve_gb=reserve_gb)
    chosen = scenario(hardware=hardware, horizon_s=1000.0)
    cluster = finished(chosen, "static:2")

    assert max(cluster.book.done_s) < 1000
    assert sum(replica.generated for replica in cluster.ready) == sum(cluster.book.output)
    assert sum(replica.prompted for replica in cluster.ready) == sum(cluster.book.prompt)
    assert [replica.outstanding for replica in cluster.ready] == [0, 0]
    assert [(replica.context, len(replica.queue)) for replica in cluster.ready] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("prefill", ["stall", "chunked"])
def test_every_request_ends_in_one_outcome(prefill):
    """Served, late, cut, rejected, timed out or under way at the horizon: together all there are."""
    hardware = replace(BASE.hardware, slots=4, prefill=prefill)
    chosen = scenario(
        hardware=hardware, horizon_s=70.0, start=0, held_limit=60, held_timeout_s=12.0, grace_s=0.2,
        rate=Rate([(0.0, 9.0), (40.0, 9.0), (40.0, 3.0), (70.0, 3.0)]), cold_start=Delay("constant", 15.0),
        victim="random",
        defaults=replace(BASE.defaults, behavior={"downwindow": 0}),
    )  # fmt: skip
    result = run(chosen, "queue:2,min=0,cooldown=30")
    outcome = result.run
    fates = [outcome.fate.count(fate) for fate in Fate]
    answered = sum(
        first_s <= done_s <= 70 and fate == Fate.SERVED
        for first_s, done_s, fate in zip(outcome.first_s, outcome.done_s, outcome.fate, strict=True)
    )
    under_way = sum(
        done_s > 70 and fate == Fate.SERVED for done_s, fate in zip(outcome.done_s, outcome.fate, strict=True)
    )

    assert all(count > 0 for count in fates)
    assert answered + under_way + sum(fates[1:]) == result.requests
    assert result.slo_misses >= sum(fates[1:])
    for request, fate in enumerate(outcome.fate):
        if fate in (Fate.REJECTED, Fate.TIMED_OUT):
            assert outcome.first_s[request] == outcome.done_s[request] == math.inf
        if fate == Fate.CUT:
            assert outcome.done_s[request] == math.inf


def test_same_seed_same_result():
    """Random traffic, cold starts, balancing and victims: the same seed gives the same run, another one another."""
    chosen = scenario(
        process=Process("gamma", cv=2.0), output=Lengths("lognormal", mean=300, cv=1.5), balance="random2",
        victim="random", cold_start=Delay("exponential", mean=20.0), defaults=replace(BASE.defaults, period_s=5.0),
    )  # fmt: skip
    first, second, other = (run(replace(chosen, seed=seed), "queue:3,downwindow=0") for seed in (5, 5, 6))

    assert first.row() == second.row()
    assert list(first.run.done_s) == list(second.run.done_s)
    assert first.run.moments == second.run.moments
    assert other.row() != first.row()
    assert (first.seed, other.seed) == (5, 6)


def test_round_robin_goes_around():
    """Ten requests over three replicas are four, three and three."""
    requests = Requests.of(Request(float(n), 1000, 1) for n in range(10))
    chosen = scenario(balance="round_robin")
    cluster = Cluster(chosen, requests, scaler_of("static:3", chosen.defaults))
    cluster.run()

    assert sorted(replica.prompted for replica in cluster.ready) == [3000, 3000, 4000]


def test_held_requests_wait_for_the_first_replica():
    """With nothing ready requests are held, and all get their first token as soon as one is: in order."""
    chosen = scenario(start=0, rate=Rate([(0.0, 1.0), (10.0, 1.0)]), cold_start=Delay("constant", 30.0))
    result = run(chosen, "queue:24,min=0")

    assert [moment.held for moment in result.run.moments[:2]] == [10, 10]
    assert list(result.run.first_s) == sorted(result.run.first_s)
    assert 45 < result.run.first_s[0] < result.run.first_s[-1] < 46


def test_old_gauges_delay_decisions():
    """With gauges that are 14 s old the same ramp is seen a sync later."""
    now, later = (run(replace(BASE, delay_s=delay_s), "queue:24") for delay_s in (0.0, 14.0))
    first = [next(m.time_s for m in r.run.moments if m.desired > 1) for r in (now, later)]

    assert first[1] - first[0] in (15.0, 30.0)


def test_gauges_older_than_a_period():
    """A delay of two and a half periods shows what was there then, not what the last look but one saw."""
    chosen = scenario(delay_s=37.5, rate=Rate([(0.0, 0.0), (20.0, 0.0), (20.0, 40.0), (180.0, 40.0)]))
    result = run(chosen, "queue:2")

    assert next(moment.time_s for moment in result.run.moments if moment.desired > 1) == 60.0


def test_starting_replicas_leave_first_and_cost_until_then():
    """A replica that is given up while it loads costs from its decision to that, and serves nothing."""
    burst = Rate([(0.0, 60.0), (20.0, 60.0), (20.0, 0.0), (180.0, 0.0)])
    chosen = scenario(rate=burst, cold_start=Delay("constant", 1000.0))
    result = run(chosen, "queue:24,downwindow=0")
    spans = result.run.spans

    assert len(spans) > 2
    assert all(span.ended_s < span.ready_s for span in spans[1:])
    assert result.replica_minutes == pytest.approx(sum(span.ended_s - span.created_s for span in spans) / 60)
    assert result.replica_minutes < 180 / 60 * len(spans)


def test_drain_ends_with_the_last_token_and_a_cut_with_the_grace():
    """A leaving replica finishes what it has; with a grace period shorter than that it is cut, and the cut counted."""
    requests = Requests.of([Request(1.0, 100, 4000), Request(29.0, 100, 4000)])
    chosen = scenario(start=2, defaults=replace(BASE.defaults, behavior={"downwindow": 0}))
    drained = run(chosen, "queue:24", requests)
    cut = run(replace(chosen, grace_s=5.0), "queue:24", requests)

    left = drained.run.spans[1] if drained.run.spans[1].left_s < 180 else drained.run.spans[0]
    assert left.left_s == 15.0
    assert left.ended_s >= left.left_s
    assert drained.slo_misses == 0
    assert max(drained.run.done_s) < 100
    assert cut.run.fate.count(Fate.CUT) == (left.ended_s > 20)


def test_slow_tokens_miss_where_an_itl_is_promised():
    """With a promise on the time between tokens, full batches miss that kept their first token."""
    loose = run(scenario(), "static:1")
    strict = run(scenario(slo=replace(BASE.slo, itl_s=0.0072)), "static:1")

    assert loose.slo_misses == 0
    assert 0 < strict.slo_misses < strict.requests


def test_request_that_fits_nowhere_is_rejected():
    """A prompt beyond the KV cache is refused at once and is a miss; the others go on."""
    requests = Requests.of([Request(1.0, 100, 10), Request(2.0, 500_000, 10), Request(3.0, 100, 10)])
    result = run(scenario(), "static:1", requests)

    assert list(result.run.fate) == [Fate.SERVED, Fate.REJECTED, Fate.SERVED]
    assert result.slo_misses == 1


def test_no_request_at_all():
    """A scenario without a request has no misses and no times."""
    result = run(scenario(rate=Rate([(0.0, 0.0), (60.0, 0.0)])), "queue:24")

    assert (result.requests, result.slo_misses, result.slo_miss_percent, result.ttft_p50_s) == (0, 0, 0.0, None)


def test_policies_see_what_the_page_would_say():
    """kv, ttft and token rates come from the replicas: policies on them scale up under load."""
    chosen = scenario(rate=Rate([(0.0, 40.0), (150.0, 40.0)]), cold_start=Delay("constant", 10.0))

    for policy in ("kv:3", "ttft:0.5", "work:2000", "hpa:running:20"):
        result = run(chosen, policy)
        assert result.peak_replicas > 1, policy
