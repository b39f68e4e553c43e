"""Arrivals and lengths: exact where they are even, of the right mean and spread where they are random."""

from __future__ import annotations

import itertools
import random
from statistics import mean, stdev

import pytest

from infscale.checks import Place
from infscale.errors import ConfigError, UsageError
from infscale_sim.distribution import delay_of, lengths_of, process_of
from infscale_sim.scenario import load_scenario
from infscale_sim.traffic import Lengths, Process, Rate, Request, Requests, synthetic

HERE = Place("test")


def test_even_arrivals_stand_where_the_integral_says():
    """The k-th request comes where the integral of the rate is k - 0.5, on ramps too."""
    requests = load_scenario("default").requests()
    arrival_s = requests.arrival_s

    assert len(requests) == 15_555
    assert arrival_s[0] == pytest.approx(0.5 / 3)
    assert arrival_s[539] == pytest.approx(539.5 / 3)
    ramp = arrival_s[540 + 99] - 180  # 3 t + 0.075 t^2 = 99.5
    assert 3 * ramp + 0.075 * ramp * ramp == pytest.approx(99.5)
    assert arrival_s[15_509] < 960 < 1320 < arrival_s[15_510] == pytest.approx(1322)
    assert list(requests.prompt_tokens[:6]) == [64, 160, 96, 192, 128, 64]
    assert list(requests.output_tokens[:8]) == [400, 200, 600, 300, 500, 240, 560, 400]


def test_rate_at_an_instant():
    """Linear between points, the later value at a jump, 0 outside."""
    rate = Rate([(10.0, 2.0), (20.0, 4.0), (20.0, 9.0), (30.0, 9.0)])

    assert [rate.at(t) for t in (5, 10, 15, 20, 30, 31)] == [0, 2, 3, 9, 9, 0]
    assert rate.total == 30 + 90


@pytest.mark.parametrize(("process", "cv"), [(Process("poisson"), 1.0), (Process("gamma", cv=3.0), 3.0)])
def test_random_arrivals_have_their_mean_and_spread(process, cv):
    """Gaps of the mean 1/rate with the coefficient of variation asked for; the same for the same seed."""
    lengths = Lengths("cycle", (1,))
    first, second = (
        [r.arrival_s for r in synthetic(Rate([(0, 20), (2000, 20)]), process, lengths, lengths, 2000, seed=3)]
        for _ in range(2)
    )
    gaps = [b - a for a, b in itertools.pairwise(first)]

    assert first == second
    assert mean(gaps) == pytest.approx(1 / 20, rel=0.05)
    assert stdev(gaps) / mean(gaps) == pytest.approx(cv, rel=0.05)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"distribution": "lognormal", "mean": 900, "cv": 1.2}, 900),
        ({"distribution": "exponential", "mean": 300}, 300),
        ({"distribution": "uniform", "least": 10, "most": 30}, 20),
        ({"cycle": [64, 160, 96, 192, 128], "mean": 2000}, 2000),
        ([100, 300], 200),
        (128, 128),
    ],
)
def test_lengths_have_their_mean(value, expected):
    """Each way to write token counts gives the mean that it says."""
    drawn = list(itertools.islice(lengths_of(value, HERE).draw(random.Random(1)), 40_000))

    assert mean(drawn) == pytest.approx(expected, rel=0.03)
    assert min(drawn) >= 1


def test_scaled_cycles_round_half_to_even():
    """112.5 tokens are 112 and 187.5 are 188."""
    lengths = lengths_of({"cycle": [400, 200, 600, 300, 500, 240, 560], "mean": 150}, HERE)

    assert lengths.values == (150, 75, 225, 112, 188, 90, 210)


def test_cold_starts():
    """Seconds, or a distribution of them; without a value those of the hardware."""
    assert delay_of(None, HERE, 91.0).draw(random.Random(1)) == 91.0
    assert delay_of(30, HERE, 91.0).draw(random.Random(1)) == 30.0
    drawn = delay_of({"distribution": "uniform", "least": 60, "most": 120}, HERE, 91.0)
    assert 60 <= min(drawn.draw(random.Random(n)) for n in range(50)) < 70


@pytest.mark.parametrize(
    ("make", "value", "message"),
    [
        (process_of, "evn", "no such choice 'evn', did you mean 'even'"),
        (process_of, {"process": "gamma", "cv": 0}, "cv: expected a number from 0.01 to 100, got 0"),
        (lengths_of, [], "expected at least one value"),
        (lengths_of, [1.5], "[0]: expected whole tokens, got 1.5"),
        (lengths_of, {"distribution": "lognormal", "mean": 9}, "lognormal needs mean and cv; cv is missing"),
        (lengths_of, {"distribution": "uniform", "least": 9, "most": 3}, "most: expected at least 9, got 3"),
        (lengths_of, {"distribution": "uniform", "least": 0, "most": 3}, "least: expected a number from 1"),
        (lengths_of, {"distribution": "uniform", "least": 1, "most": 1e12}, "most: expected a number from 1 to 1e+06"),
        (lengths_of, {"distribution": "lognormal", "mean": 9, "cv": 1e200}, "cv: expected a number from 0 to 100"),
        (lengths_of, "many", "expected a number, got 'many'"),
    ],
)
def test_bad_traffic_is_refused(make, value, message):
    """The error says what was expected, and where."""
    with pytest.raises(ConfigError) as error:
        make(value, HERE)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([Request(2.0, 1, 1), Request(1.0, 1, 1)], "request 2 arrives at 1 s, after one at 2 s"),
        ([Request(1.0, 1, 0)], "request 1: expected at least one prompt and one output token"),
        ([Request(float("nan"), 1, 1)], "request 1 arrives at nan s"),
    ],
)
def test_requests_out_of_order_or_empty_are_refused(requests, message):
    """A trace has to be in order, and each request has tokens."""
    with pytest.raises(UsageError, match=message):
        Requests.of(requests)
