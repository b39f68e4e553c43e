"""Quantiles as PromQL has them, held against promtool, which runs Prometheus' own engine."""

from __future__ import annotations

import json
import math
import random
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.core.quantiles import histogram_quantile, percentile

INF = math.inf
BOUNDS = (0.25, 0.5, 1.0, 2.5, INF)


def test_half_way_through_a_bucket():
    """20 observations, rank 19: 18 below 0.5 and 2 from there to 1.0 put the 95th percentile at 0.75."""
    assert histogram_quantile(0.95, BOUNDS, (10, 18, 20, 20, 20)) == 0.75


@pytest.mark.parametrize(
    ("quantile", "bounds", "counts", "value"),
    [
        (0.5, BOUNDS, (4, 4, 4, 4, 4), 0.125),  # the first bucket begins at 0
        (0.9, BOUNDS, (0, 0, 0, 5, 10), 2.5),  # in +Inf: the last finite bound
        (0.5, (-1.0, 1.0, INF), (4, 4, 4), -1.0),  # a first bound of 0 or less
        (0.5, BOUNDS, (4, 2, 8, 8, 8), 0.25),  # a count below the one before it is raised to it
        (0.0, BOUNDS, (2, 4, 4, 4, 4), 0.0),
        (1.0, BOUNDS, (2, 4, 4, 4, 4), 0.5),
        (-0.1, BOUNDS, (2, 4, 4, 4, 4), -INF),
        (1.1, BOUNDS, (2, 4, 4, 4, 4), INF),
        (0.25, (2.0, INF), (5, 10), 1.0),  # two buckets are enough
        (0.0, (0.0, 1.0, INF), (0, 5, 10), 0.0),  # a first bound of 0, and nothing in it
    ],
)
def test_the_edges(quantile, bounds, counts, value):
    """First bucket, +Inf bucket, torn counts, quantiles out of 0 to 1."""
    assert histogram_quantile(quantile, bounds, counts) == value


@pytest.mark.parametrize(
    ("quantile", "bounds", "counts"),
    [
        (0.9, BOUNDS, (0, 0, 0, 0, 0)),
        (0.9, (-1.0, INF), (0, 0)),
        (0.9, (0.5, 1.0), (1, 2)),
        (0.9, (INF,), (3,)),
        (0.9, (), ()),
        (math.nan, BOUNDS, (1, 2, 3, 4, 5)),
        (0.0, BOUNDS, (0, 1, 1, 1, 1)),
    ],
)
def test_no_quantile(quantile, bounds, counts):
    """No observation, no +Inf bucket, one bucket, a quantile that is none, and Prometheus' own 0/0."""
    assert math.isnan(histogram_quantile(quantile, bounds, counts))


def test_the_same_as_prometheus(tmp_path):
    """To the last digit, on 300 pairs of reads of which the difference is taken."""
    rng = random.Random(20)
    series, cases = [], []
    for number in range(300):
        finite = sorted({rng.choice((0.001, 0.02, 0.25, 0.5, 1, 1.5, 2.5, 7.5, 60, 640)) for _ in range(6)})
        bounds = (*map(float, finite), INF)
        before = _cumulative(rng, len(bounds), rng.choice((0, 5, 10_000)))
        # Mostly as engines count, now and then torn; a bucket that fell would be a restart to `ttft`, not to PromQL.
        added = _cumulative(rng, len(bounds), rng.choice((1, 3, 40, 5_000)))
        if number % 10 == 0:
            added[0] += 2
        if added[-1] == 0:
            added[-1] = 1
        after = [old + new for old, new in zip(before, added, strict=True)]
        quantile = rng.choice((0.01, 0.5, 0.9, 0.95, 0.99, 1.0))
        for bound, old, new in zip(bounds, before, after, strict=True):
            le = "+Inf" if bound == INF else repr(bound)
            series.append({"series": f'h_bucket{{n="{number}",le="{le}"}}', "values": f"{old} {new}"})
        expression = f'histogram_quantile({quantile}, h_bucket{{n="{number}"}} - h_bucket{{n="{number}"}} offset 1m)'
        value = histogram_quantile(quantile, bounds, added)
        cases.append(
            {
                "expr": expression,
                "eval_time": "1m",
                "exp_samples": [{"labels": f'{{n="{number}"}}', "value": value}],
            }
        )
    _promtool(tmp_path, series, cases)


@given(st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=9), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
def test_a_percentile_lies_between_its_neighbours(values, quantile):
    """Not outside of the values, 0 and 1 being the least and the largest, and in the middle for two."""
    result = percentile(values, quantile)
    assert min(values) - 1e-9 <= result <= max(values) + 1e-9
    if quantile in (0.0, 1.0):
        assert result == (min(values) if quantile == 0.0 else max(values))
    assert percentile([values[0], values[-1]], 0.5) == pytest.approx((values[0] + values[-1]) / 2)


def test_percentiles_are_the_same_as_prometheus(tmp_path):
    """PromQL's `quantile` over series, to the last digit."""
    rng = random.Random(7)
    series, cases = [], []
    for number in range(40):
        values = [round(rng.uniform(1, 500), 3) for _ in range(rng.randint(1, 20))]
        series += [
            {"series": f'v{{n="{number}",i="{index}"}}', "values": str(value)} for index, value in enumerate(values)
        ]
        for quantile in (0.9, 0.95):
            expected = [{"labels": "{}", "value": percentile(values, quantile)}]
            cases.append(
                {"expr": f'quantile({quantile}, v{{n="{number}"}})', "eval_time": "0s", "exp_samples": expected}
            )
    _promtool(tmp_path, series, cases)


def _cumulative(rng: random.Random, buckets: int, most: int) -> list[int]:
    counts = [rng.randint(0, most) if rng.random() < 0.7 else 0 for _ in range(buckets)]
    return [sum(counts[: index + 1]) for index in range(buckets)]


def _promtool(folder, series, cases) -> None:
    """Let Prometheus' engine evaluate each case; it fails with what differs. JSON is YAML."""
    test = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": cases}]}
    path = folder / "quantiles.yml"
    path.write_text(json.dumps(test))
    run = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, timeout=50, check=False)
    assert run.returncode == 0, (run.stdout + run.stderr)[-3000:]
