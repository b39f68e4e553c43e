"""Small scenarios of many kinds, on which all schedules can be tried."""

from __future__ import annotations

import itertools
import random
from typing import Any

from infscale.checks import Place
from infscale.yaml_file import load_yaml
from infscale_sim.scenario import SCENARIOS, Scenario, scenario_of
from infscale_sim.schedule import Scheduled, price, syncs
from infscale_sim.traffic import Requests

BASE = load_yaml(str(SCENARIOS / "default.yaml"))
MOST = 3


def scenario_with(**values: Any) -> Scenario:
    """The default scenario with other values."""
    return scenario_of(values, BASE, Place("test"), "test")


def small_scenario(seed: int, looks: int) -> Scenario:
    """A few dozen requests, up to three replicas, so many decisions; the rest is drawn."""
    draw = random.Random(seed)
    period_s = draw.choice([10, 15, 20])
    end_s = period_s * (looks + 1) - 1
    ramp_s, quiet_s, late_s = end_s * draw.uniform(0.1, 0.5), end_s * 0.6, end_s * 0.85
    first, middle, last = draw.choice([0.2, 1, 2]), draw.choice([0.3, 2, 3]), draw.choice([0, 0.5])
    cluster: dict[str, Any] = {
        "start": draw.choice([0, 1, 2]),
        "min": 0,
        "max": MOST,
        "cold_start_s": draw.choice([0, 3, 12, 25, {"distribution": "uniform", "least": 5, "most": 20}]),
        "balance": draw.choice(["least_outstanding", "round_robin", "random2"]),
        "victim": draw.choice(["deletion_cost", "random"]),
    }
    if draw.random() < 0.25:
        cluster["grace_s"] = 3
    return scenario_with(
        horizon_s=end_s,
        sync={"first_s": period_s, "period_s": period_s},
        rate=[
            [0, first],
            [ramp_s, middle],
            [quiet_s, middle],
            [quiet_s, 0],
            [late_s, 0],
            [late_s, last],
            [end_s, last],
        ],
        arrivals=draw.choice(["even", "poisson"]),
        # A KV cache of 52 GB, or of half a gigabyte: 3,662 tokens, so that requests are preempted.
        replica={
            "slots": draw.choice([1, 4, 64]),
            "prefill": draw.choice(["stall", "stall", "chunked"]),
            "usable_memory": draw.choice([0.9, 0.256]),
        },
        prompt_tokens=draw.choice([[200, 100], [1500, 300]]),
        output_tokens=draw.choice([[20, 50], [300, 100], [1]]),
        cluster=cluster,
        slo={"ttft_s": draw.choice([1, 2, 5])},
        seed=seed,
    )


def every_schedule(scenario: Scenario, requests: Requests) -> list[Scheduled]:
    """What each schedule of the scenario's decisions misses and costs, by the engine."""
    looks = len(syncs(scenario))
    return [price(scenario, requests, counts) for counts in itertools.product(range(MOST + 1), repeat=looks)]
