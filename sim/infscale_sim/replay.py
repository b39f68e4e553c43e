"""A trace in the place of a scenario's own traffic. `infscale simulate --trace` and `infscale tune --trace` call."""

from __future__ import annotations

import math
from dataclasses import replace

from infscale.core.scaling import Fit
from infscale_sim.hardware import Hardware
from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.traces.trace import Trace
from infscale_sim.traffic import Lengths, Process, Requests


def cluster_of(
    name: str | None, traced: bool, *, hardware: Hardware | None = None, seed: int | None = None
) -> Scenario:
    """The scenario of a command: the one that is named, else the default.

    The default scenario has a fit of its own for lookaheads; where its traffic is not what is run, that of the decision
    core takes its place, so that a trace is scaled as the recommender would have scaled it.

    Args:
        name: as `load_scenario` takes it; None: the user named none.
        traced: whether a trace replaces its traffic.
        hardware: as `load_scenario` takes it.
        seed: as `load_scenario` takes it.
    """
    scenario = load_scenario(name or "default", hardware=hardware, seed=seed)
    if name is not None or not traced:
        return scenario
    return replace(scenario, defaults=replace(scenario.defaults, fit=Fit.THEIL_SEN, fit_samples=None))


def replay(scenario: Scenario, trace: Trace) -> tuple[Scenario, Requests]:
    """The scenario with a trace's requests: its name, its end, and whether its seed counts.

    A trace says nothing of its end, so it ends at the first whole second at which the last request has had its time to
    first token: each request can be judged.

    Raises:
        TraceError: a row cannot be used.
    """
    requests = Requests.of(trace)
    random = trace.seed is not None
    traced = replace(
        scenario,
        name=trace.name,
        process=Process("poisson" if random else "even"),  # only tells whether the requests depend on the seed
        prompt=Lengths("cycle"),
        output=Lengths("cycle"),
        horizon_s=math.floor(requests.arrival_s[-1] + scenario.slo.ttft_s) + 1.0,
        seed=trace.seed if trace.seed is not None else scenario.seed,
    )
    return traced, requests
