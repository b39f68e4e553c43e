"""The quantiles are the core's `histogram_quantile`, of the worst bucket layout, over random histograms."""

from __future__ import annotations

import math
import random
from pathlib import Path

from infscale.core.quantiles import histogram_quantile
from tests.rules.promtool import differences, promtool, write
from tools.prometheus_rule import RULES

STEPS = 24
LAYOUTS = (
    (0.1, 0.5, 1.0),
    (0.1, 0.5, 1.0, 10.0),
    (0.25, 0.5, 1.0),
    (0.1, 0.5, 2.0),
    (0.001, 0.01, 0.5, 1.0, 5.0, 60.0),
)
"""Finite bounds. Some differ in the first bound alone, some in the last, some in the number."""

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
FAMILIES = ("time_to_first_token", "inter_token_latency")


def test_quantiles_of_random_histograms(tmp_path: Path) -> None:
    """Forty workloads of replicas with like and unlike buckets, engines and models; within a millionth of a second."""
    dice = random.Random(3)
    series, expected = [], []
    for number in range(40):
        family = dice.choice(FAMILIES)
        merged: dict[tuple[str, tuple[float, ...]], list[int]] = {}
        for pod in range(dice.randrange(1, 6)):
            bounds, engine = dice.choice(LAYOUTS), dice.choice(("vllm", "sglang"))
            counts = _counts(dice, len(bounds) + 1)
            series += _histogram(family, f"w{number}", f"p{pod}", engine, bounds, counts, dice.choice((1, 2)))
            sums = merged.setdefault((engine, bounds), [0] * len(counts))
            for position, count in enumerate(counts):
                sums[position] += count
        for name, quantile in QUANTILES.items():
            worst = max(
                (
                    value
                    for (_, bounds), counts in merged.items()
                    if not math.isnan(value := histogram_quantile(quantile, (*bounds, math.inf), counts))
                ),
                default=None,
            )
            expected.append(_check(family, name, f"w{number}", worst))
    group = {"interval": "15s", "input_series": series, "promql_expr_test": expected}
    done = promtool("test", "rules", write(tmp_path / "latency.json", [group], [RULES / "latency.yaml"]))
    assert done.returncode == 0, differences(done.stdout)


def _counts(dice: random.Random, buckets: int) -> list[int]:
    """New requests each 15 s, cumulative; now and then none."""
    rising, counts = 0, []
    idle = dice.random() < 0.2
    for _ in range(buckets):
        rising += 0 if idle else dice.choice((0, 0, 1, 7, 30))
        counts.append(rising)
    return counts


def _histogram(
    family: str, workload: str, pod: str, engine: str, bounds: tuple[float, ...], counts: list[int], jobs: int
) -> list[dict[str, str]]:
    """The series of one replica, under as many jobs."""
    own = f'namespace="llm",workload="{workload}",pod="{pod}",engine="{engine}",model_name="m"'
    return [
        {
            "series": f'infscale_{family}_seconds_bucket{{job="{job}",{own},le="{le}"}}',
            "values": f"0+{count}x{STEPS}",
        }
        for job in range(jobs)
        for le, count in zip((*map(str, bounds), "+Inf"), counts, strict=True)
    ]


def _check(family: str, name: str, workload: str, value: float | None) -> dict[str, object]:
    """The recorded quantile is there and close to the core's, or is not there."""
    recorded = f'workload:infscale_{family}_seconds:{name}_rate5m{{workload="{workload}"}}'
    samples = [{"labels": f'{{workload_namespace="llm",workload="{workload}"}}', "value": 1}]
    return {
        "expr": recorded if value is None else f"abs({recorded} - {value!r}) < bool 0.000001",
        "eval_time": "6m",
        "exp_samples": [] if value is None else samples,
    }
