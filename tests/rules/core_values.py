"""What the rules must record for a story: the decision core's own numbers, computed by the core and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from infscale.core.decide import decide_hpa
from infscale.core.demand import demand_of, look
from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import ScaleState
from infscale.core.numbers import MAX_INT32, to_milli
from infscale.core.observation import Measurement, Observation
from infscale.core.replicas import Fleet
from infscale.core.scaling import MetricName
from infscale.core.signals import hpa_policy
from infscale.core.stabilise import with_behavior
from infscale.core.state import State
from tests.rules.story import Story, fleets, number

Values = dict[str, float]
"""A recorded name to its value; a name that is not there must not be recorded."""

PROPOSED, DOWN, STABILISED = (
    "workload:infscale_proposed_replicas:hpa",
    "workload:infscale_proposed_replicas:max5m",
    "workload:infscale_stabilised_replicas:hpa",
)
PHASES = "workload_phase:infscale_replicas:count"
NAMES = (
    "workload:infscale_expected_replicas:count",
    "workload:infscale_missing_replicas:count",
    "workload:infscale_coverage:ratio",
    "workload:infscale_known_requests:sum",
    "workload:infscale_inflight_requests:sum",
    "workload:infscale_demand_requests:sum",
    "infscale_workload_demand_requests",
    PROPOSED,
    DOWN,
    STABILISED,
    PHASES,
)
"""All that is compared."""


def core_values(story: Story) -> Iterator[Values]:
    """The core's numbers at each step."""
    policy = parse_policy(f"queue:{number(story.target)},min=0,downwindow=300")
    hpa = hpa_policy(replace(policy, plain=True))
    memory, state = ScaleState(), State(recommendations=())
    for fleet in fleets(story):
        decision, memory = decide(policy, fleet, memory)
        values = _measured(fleet, story.target, decision.inflight, decision.demand)
        if decision.demand is None:
            measurement = Measurement(failure="no demand")
        else:
            measurement = Measurement(samples_milli=(to_milli(decision.demand),))
        status = fleet.status_replicas or 0
        spec = status if fleet.spec_replicas is None else fleet.spec_replicas
        log = state.recommendations or ()
        asked, state = decide_hpa(hpa, Observation(fleet.now_s, spec, status, (measurement,)), state)
        if asked.proposal is not None:
            values[PROPOSED] = asked.proposal
            # Of a count above every proposal the window leaves the largest recent one.
            values[DOWN] = with_behavior(log, fleet.now_s, MAX_INT32, asked.proposal, *hpa.windows_s)[0]
            values[STABILISED] = next(step.after for step in asked.steps if step.name == "stabilise")
        yield values


def _measured(fleet: Fleet, target: float, inflight: float | None, demand: float | None) -> Values:
    view = look(fleet)
    requests = demand_of(MetricName.QUEUE, target, view)
    values: Values = {}
    if requests.expected:
        values["workload:infscale_expected_replicas:count"] = requests.expected
        values["workload:infscale_missing_replicas:count"] = requests.missing
        values["workload:infscale_coverage:ratio"] = requests.given / requests.expected
        values["workload:infscale_known_requests:sum"] = requests.known
    if inflight is not None:
        values["workload:infscale_inflight_requests:sum"] = inflight
    if demand is not None:
        values["workload:infscale_demand_requests:sum"] = demand
        values["infscale_workload_demand_requests"] = demand
    for phase in ("serving", "silent", "starting", "draining"):
        if count := getattr(view.counts, phase):
            values[f'{PHASES}{{phase="{phase}"}}'] = count
    return values
