"""Lookahead: the demand carried on by the slope of the last minutes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.lookahead import MOST_SAMPLES, least_squares, projected, sampled, theil_sen
from infscale.core.memory import AT_ONCE, Sample, ScaleState
from infscale.core.replicas import Held, Phase, Replica
from infscale.core.scale_decision import ScaleDecision
from infscale.core.scaling import Fit
from tests.core.workload import Workload, fleet, serving

POLICY = parse_policy("queue:4,max=100,lookahead=60,up=100/15")


def series(*requests: float, every_s: float = 15.0) -> tuple[Sample, ...]:
    """Samples 15 s apart."""
    return tuple(Sample(every_s * n, value) for n, value in enumerate(requests))


def looks(*loads: float, spec: int = 4, silent: int = 0) -> ScaleDecision:
    """The last decision of looks 15 s apart at a count that stays; silent replicas only at the last."""
    state, decision = AT_ONCE, None
    for step, load in enumerate(loads):
        gone = [Replica(f"s{n}", Phase.SILENT) for n in range(silent)] if step == len(loads) - 1 else []
        seen = [serving(f"r{n}", load / spec) for n in range(spec - len(gone))]
        decision, state = decide(POLICY, fleet(*seen, *gone, now_s=15.0 * step), state)
    assert decision is not None
    return decision


@pytest.mark.parametrize(
    ("samples", "slope"),
    [
        (series(), 0.0),
        (series(5), 0.0),
        (series(0, 15, 30, 45), 1.0),
        (series(0, 15, 900, 45, 60), 1.0),
        (series(30, 15, 0), -1.0),
        ((Sample(0.0, 1.0), Sample(0.0, 9.0)), 0.0),
    ],
)
def test_the_slope_is_the_median_of_all_pairs(samples, slope):
    """One outlier does not move it; one instant has no slope."""
    assert theil_sen(samples) == pytest.approx(slope)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20, unique=True), st.floats(-5, 5), st.floats(0, 50))
def test_both_fits_find_a_straight_line(times, slope, start):
    """Whatever the instants."""
    times = sorted(round(time_s, 1) for time_s in times)
    samples = [Sample(time_s, start + slope * time_s) for time_s in times]
    if times[0] == times[-1]:
        return
    assert theil_sen(samples) == pytest.approx(slope, abs=1e-6)
    assert least_squares(samples) == pytest.approx(slope, abs=1e-6)


def test_least_squares_of_the_last_samples():
    """What a scenario of the simulator may ask for."""
    policy = replace(POLICY, fit=Fit.LEAST_SQUARES, fit_samples=4)
    samples = series(900, 900, 39, 39, 39, 40)
    assert projected(40.0, samples, 15.0, policy) == pytest.approx(40.3)
    assert projected(40.0, samples, 15.0, replace(policy, fit=Fit.THEIL_SEN)) == pytest.approx(40 + 1 / 6)
    assert least_squares(series(1)) == least_squares(series()) == 0.0


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=20), st.floats(1, 600))
def test_the_projection_is_never_below_the_present_nor_above_twice(loads, ahead_s):
    """Never negative either."""
    value = projected(loads[-1], series(*loads), ahead_s, POLICY)
    assert loads[-1] <= value <= 2 * loads[-1]


def test_a_rise_is_carried_on():
    """4 more each 15 s, 60 s on: 32 and 16."""
    decision = looks(16.0, 20.0, 24.0, 28.0, 32.0, spec=8)
    assert (decision.demand, decision.projection, decision.proposal) == (32.0, 48.0, 12)
    assert (decision.reason, decision.hpa) == ("lookahead", 8)
    assert decision.steps[1].name == "lookahead"
    assert decision.steps[1].words.startswith("12 instead of 8: the projected demand: queue: 48 over 4")


def test_a_fall_is_not():
    """The present demand is the least."""
    decision = looks(32.0, 28.0, 24.0, 20.0)
    assert (decision.demand, decision.projection) == (20.0, 20.0)


def test_a_hole_is_not_growth():
    """What is assumed of a silent replica does not enter the samples, nor is it carried on."""
    decision = looks(10.0, 10.0, 10.0, 10.0, silent=1)
    assert (decision.demand, decision.projection, decision.desired) == (11.5, 11.5, 3)
    rising = looks(12.0, 13.0, 14.0, 15.0, 16.0, silent=1)
    assert rising.demand == 16.0
    assert rising.projection == 16.0


def test_samples_are_kept_for_the_window_and_thinned():
    """An evaluation each second keeps 40 over 120 s; the present one is always the last."""
    samples: tuple[Sample, ...] = ()
    for second in range(1000):
        samples = sampled(samples, float(second), float(second), 0.0)
        assert samples[-1] == Sample(float(second), float(second))
    assert len(samples) <= MOST_SAMPLES
    assert 110.0 <= samples[-1].time_s - samples[0].time_s <= 120.0
    assert sampled(samples, 5000.0, 1.0, 0.0) == (Sample(5000.0, 1.0),)
    assert len(sampled(series(*range(30)), 450.0, 1.0, 300.0)) == 21


@pytest.mark.parametrize("policy", ["queue:4,lookahead=60", "queue:4,lookahead=auto"])
def test_samples_are_of_looks_that_saw_everything(policy):
    """A hole, below the coverage or above it, an activator that is silent or no value at all: none is added or lost."""
    silent = Replica("s", Phase.SILENT)
    state, busy = AT_ONCE, (serving("a", 4.0), serving("b", 5.0))
    assert decide(parse_policy(policy), fleet(silent), state)[1].samples == {}
    for now_s in (0.0, 15.0):
        _, state = decide(parse_policy(policy), fleet(*busy, now_s=now_s, held=Held(1.0)), state)
    assert state.samples == {"queue": (Sample(0.0, 10.0), Sample(15.0, 10.0))}
    for look_at in (
        fleet(*busy, silent),
        fleet(*busy, *(replace(silent, name=f"s{n}") for n in range(5))),
        fleet(*busy, held=Held(None)),
        fleet(silent),
        fleet(*busy, failure="refused"),
    ):
        assert decide(parse_policy(policy), replace(look_at, now_s=30.0), state)[1].samples == state.samples


@pytest.mark.parametrize(
    ("gap_s", "kept"),
    [(10.0, [0.0, 10.0, 20.0]), (10.1, [0.0, 10.1, 20.0]), (9.5, [0.0, 20.0]), (9.99, [0.0, 20.0]), (1.0, [0.0, 20.0])],
)
def test_samples_closer_than_a_38th_of_the_window_give_way(gap_s, kept):
    """A window of 380 s: 10 s apart they stay, and the 40 span it."""
    samples = (Sample(0.0, 1.0), Sample(gap_s, 2.0))
    assert [sample.time_s for sample in sampled(samples, 20.0, 3.0, 380.0)] == kept


def test_no_more_than_40_samples_even_where_the_window_grew():
    """Closer ones of a shorter window are still there; the last count."""
    samples = sampled(series(*range(60)), 1000.0, 1.0, 3600.0)
    assert [sample.time_s for sample in samples] == [15.0 * n for n in range(20, 59)] + [1000.0]
    assert len(samples) == MOST_SAMPLES


def test_a_second_look_at_the_same_instant_replaces_the_first():
    """Two samples at one instant have no slope between them."""
    assert sampled((Sample(0.0, 1.0), Sample(15.0, 2.0)), 15.0, 3.0, 60.0) == (Sample(0.0, 1.0), Sample(15.0, 3.0))


def test_auto_is_off_until_three_cold_starts_were_measured():
    """Then it is their 90th percentile."""
    state = ScaleState(cold_starts_s=(60.0, 70.0))
    assert state.cold_start_s == 0.0
    assert replace(state, cold_starts_s=(60.0, 70.0, 80.0)).cold_start_s == pytest.approx(78.0)
    workload = Workload("queue:4,max=8,lookahead=auto,downwindow=0", cold_start_s=45)
    workload.load = 20
    workload.advance(60)
    assert workload.state.cold_starts_s == (45.0,) * 4
    for _ in range(9):
        workload.load += 1
        workload.advance(15)
    assert workload.decision is not None
    assert workload.decision.projection == pytest.approx(29.0 + 3.0)


@pytest.mark.parametrize(
    ("name", "created_s", "served_s", "looked_s", "starts_s"),
    [
        ("seen", 0.0, 50.0, 40.0, (50.0,)),
        ("seen", 0.0, 50.0, 39.9, ()),  # more than 60 s since the last look: it may have served all the while
        ("seen", 0.0, None, 40.0, (100.0,)),
        ("seen", 0.0, 100.0, 40.0, (100.0,)),
        ("seen", 0.0, 100.1, 40.0, ()),  # served in the future
        ("seen", 50.0, 50.0, 40.0, ()),
        ("seen", 60.0, 50.0, 40.0, ()),
        ("young", 40.1, 50.1, 40.0, (10.0,)),  # came and served since the last look
        ("young", 40.0, 50.0, 40.0, ()),
        ("seen", None, 50.0, 40.0, ()),
    ],
)
def test_which_starts_are_measured(name, created_s, served_s, looked_s, starts_s):
    """Of one that was seen starting, or is younger than the last look, with times that can be."""
    state = replace(AT_ONCE, evaluated_s=looked_s, starting=("seen",))
    other = serving("other", created_s=99.0, served_s=99.5)
    started = serving(name, created_s=created_s, served_s=served_s)
    decision, _ = decide(parse_policy("queue:4"), fleet(started, other, now_s=100.0), state)
    assert decision.cold_starts_s == pytest.approx((*starts_s, *((0.5,) if looked_s >= 40.0 else ())))


def test_cold_starts_are_measured_once_and_only_where_they_were_seen():
    """Not of replicas that served at the first look, nor over a long gap between two."""
    policy = parse_policy("queue:4")
    served = serving("a", 1.0, created_s=-900.0, served_s=-100.0)
    decision, state = decide(policy, fleet(served, Replica("b", Phase.STARTING)), AT_ONCE)
    assert decision.cold_starts_s == ()
    ready = serving("b", 1.0, created_s=-50.0, served_s=10.0)
    young = serving("c", 1.0, created_s=1.0)
    decision, after = decide(policy, fleet(served, ready, young, now_s=15.0), state)
    assert (decision.cold_starts_s, after.cold_starts_s) == ((60.0, 14.0), (60.0, 14.0))
    decision, _ = decide(policy, fleet(served, ready, young, now_s=30.0), after)
    assert decision.cold_starts_s == ()
    decision, _ = decide(policy, fleet(served, ready, now_s=100.0), state)
    assert decision.cold_starts_s == ()
