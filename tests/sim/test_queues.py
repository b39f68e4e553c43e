"""The engine against closed forms of queueing theory; the seeds are fixed, the bounds are four standard errors."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import mean, stdev

import pytest

from infscale_sim.hardware import Gpu, Hardware
from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.simulate import run
from infscale_sim.traffic import Lengths, Process, Rate

BASE = load_scenario("default")
BATCHES = 30


def waits(scenario: Scenario, policy: str = "static:1") -> tuple[float, float]:
    """The mean time before the first token but for the first tenth, and its standard error from batch means."""
    requests = scenario.requests()
    result = run(scenario, policy, requests)
    values = [first - at for first, at in zip(result.run.first_s, requests.arrival_s, strict=True) if first < math.inf]
    values = values[len(values) // 10 :]
    size = len(values) // BATCHES
    means = [mean(values[index * size : (index + 1) * size]) for index in range(BATCHES)]
    return mean(means), stdev(means) / math.sqrt(BATCHES)


def poisson(hardware: Hardware, per_s: float, requests: int, prompt: Lengths, output: Lengths) -> Scenario:
    """A long steady stream of about so many requests."""
    horizon_s = requests / per_s
    return replace(
        BASE,
        rate=Rate([(0.0, per_s), (horizon_s, per_s)]),
        process=Process("poisson"),
        prompt=prompt,
        output=output,
        horizon_s=horizon_s,
        hardware=hardware,
        seed=11,
    )


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_server_with_constant_service(load):
    """One slot, answers of one token, prompts of one length: M/D/1, whose mean wait is load * D / (2 * (1 - load))."""
    hardware = replace(BASE.hardware, slots=1)
    service_s = 990 * hardware.prefill_token_s
    scenario = poisson(hardware, load / service_s, 60_000, Lengths("cycle", (990,)), Lengths("cycle", (1,)))

    measured, error = waits(scenario)

    assert measured == pytest.approx(service_s + load * service_s / (2 * (1 - load)), abs=4 * error)
    assert error < 0.1 * measured


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (4, 0.8)])
def test_several_servers_with_exponential_service(servers, load):
    """So many slots, instant prompts, steps that all take equally long, exponential answers: M/M/c, Erlang's C."""
    gpu = Gpu(memory_gb=80, bandwidth_gb_per_s=3350, dense_tflops=990, mfu=1e9)
    hardware = replace(BASE.hardware, gpu=gpu, slots=servers, kv_bytes_per_value=1e-9)
    tokens = 2000
    service_s = tokens * hardware.weights_step_s
    offered = load * servers
    lengths = Lengths("exponential", mean=tokens, most=10**9)
    scenario = poisson(hardware, offered / service_s, 40_000, Lengths("cycle", (1,)), lengths)

    measured, error = waits(scenario)

    tail = offered**servers / math.factorial(servers) / (1 - load)
    chance = tail / (sum(offered**n / math.factorial(n) for n in range(servers)) + tail)
    assert measured == pytest.approx(chance * service_s / (servers * (1 - load)), abs=4 * error)
    assert error < 0.1 * measured
