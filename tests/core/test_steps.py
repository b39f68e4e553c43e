"""What a decision says of itself, whole: each step in words, the reason and the HPA's conditions, as golden files."""

from __future__ import annotations

import math
from dataclasses import replace

from infscale.core.decide import decide_hpa
from infscale.core.decision import Decision
from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import AT_ONCE, ScaleState
from infscale.core.observation import Measurement, Observation
from infscale.core.policy import DEFAULT_SCALE_UP, Behavior, Controller, MetricTarget, Policy, Source, TargetType
from infscale.core.replicas import Buckets, Fleet, Held, Phase, Replica
from infscale.core.scale_decision import ScaleDecision
from infscale.core.state import Recommendation, State
from tests.core.workload import fleet, serving

SILENT, STARTING = Replica("s", Phase.SILENT), Replica("n", Phase.STARTING)


def steps_of(decision: Decision | ScaleDecision) -> str:
    """A line for each step."""
    return "".join(
        f"    {step.name} {step.before} -> {step.after} [{step.reason}] {step.words}\n" for step in decision.steps
    )


def busy(count: int, inflight: float = 8.0, **fields) -> tuple[Replica, ...]:
    """So many replicas with so many requests each."""
    return tuple(serving(f"r{n}", inflight, **fields) for n in range(count))


def four_of(tokens: float, **fields) -> tuple[Replica, ...]:
    """Four replicas that have generated so many tokens each."""
    return busy(4, 1.0, generation_tokens=tokens, prompt_tokens=0.0, **fields)


TTFT = (Buckets((1.0, math.inf), (1.0, 2.0)),)
LAYER: dict[str, tuple[str, list[Fleet]]] = {
    "up": ("queue:4,max=9", [fleet(*busy(2))]),
    "within the tolerance": ("queue:4,max=9", [fleet(*busy(2, 4.0))]),
    "the window holds": ("queue:4,max=9", [fleet(*busy(4, 1.0))]),
    "an up window holds": ("queue:4,max=9,upwindow=60", [fleet(*busy(2))]),
    "the rate limits": ("queue:1,max=90,uppods=1", [fleet(*busy(2))]),
    "the maximum limits": ("queue:4,max=3", [fleet(*busy(2))]),
    "the minimum limits": ("queue:4,min=2,max=9,downwindow=0", [fleet(*busy(4, 0.5))]),
    "above the maximum": ("queue:4,max=3", [fleet(*busy(4))]),
    "below the minimum": ("queue:4,min=6", [fleet(*busy(4))]),
    "a silent replica": ("queue:4,max=9,downwindow=0", [fleet(*busy(3, 2.0), SILENT)]),
    "a silent replica alone raises nothing": ("queue:4,max=9", [fleet(*busy(3, 4.0), SILENT, spec=3)]),
    "silent replicas alone raise nothing, and hold": (
        "queue:4,max=9,downwindow=0",
        [fleet(*busy(2, 4.0), SILENT, replace(SILENT, name="t"), spec=3)],
    ),
    "held requests and no value": ("queue:4", [fleet(SILENT, replace(SILENT, name="t"), held=Held(1.0))]),
    "work not learned, beside the cache": (
        "work:learned+kv:50,downwindow=0",
        [fleet(*four_of(0.0, kv=0.1)), fleet(*four_of(150.0, kv=0.1), now_s=15.0)],
    ),
    "below the coverage": ("queue:4", [fleet(*busy(1, 0.0), SILENT, SILENT)]),
    "below the coverage, and up": ("queue:4", [fleet(*busy(1, 40.0), SILENT, SILENT)]),
    "nothing measured": ("queue:4", [fleet(SILENT, STARTING)]),
    "a source that failed": ("queue:4", [fleet(*busy(2), failure="prometheus: refused")]),
    "a metric of several": ("queue:4+kv:50,downwindow=0", [fleet(*busy(3, 0.0))]),
    "two metrics": ("queue:4+waiting:1", [fleet(*busy(2, 3.0, running=1.0, waiting=2.0))]),
    "ttft, not yet read twice, beside the queue": ("ttft:1+queue:4,downwindow=0", [fleet(*busy(3, 0.0))]),
    "work not learned, beside the queue": (
        "work:learned+queue:4,downwindow=0",
        [fleet(*four_of(0.0)), fleet(*four_of(150.0), now_s=15.0)],
    ),
    "cpu": ("cpu:60", [fleet(*busy(2, cpu_ratio=0.9))]),
    "the cache": ("kv:50", [fleet(*busy(2, kv=0.4), STARTING)]),
    "work not learned": ("work:learned", [fleet(*four_of(0.0)), fleet(*four_of(150.0), now_s=15.0)]),
    "ttft without a new request": ("ttft:1", [fleet(*busy(2, ttft=TTFT)), fleet(*busy(2, ttft=TTFT), now_s=15.0)]),
    "work": ("work:100", [fleet(*four_of(0.0)), fleet(*four_of(3000.0), now_s=15.0)]),
    "stale": ("queue:4,downwindow=0", [fleet(serving("a", 1.0, state="stale"), serving("b", 1.0, state="stale"))]),
    "stale at just the target": ("queue:4", [fleet(serving("a", 4.0, state="stale"))]),
    "the activator is silent": ("queue:4,downwindow=0", [fleet(*busy(2, 1.0), held=Held(None))]),
    "both": ("queue:4,downwindow=0", [fleet(*busy(2, 1.0, state="stale"), held=Held(None))]),
    "lookahead=auto before it is measured": ("queue:4,max=9,lookahead=auto", [fleet(*busy(2))]),
    "silent replicas alone raise nothing ahead either": (
        "queue:4,max=9,downwindow=0,lookahead=60",
        [fleet(*busy(2, 4.0), SILENT, replace(SILENT, name="t"), spec=3)],
    ),
    "lookahead": (
        "queue:4,max=20,lookahead=60",
        [fleet(*busy(2, 2.0 + step), now_s=15.0 * step) for step in range(4)],
    ),
    "the guard": (
        "queue:24,guard=0.85,knee=100,downwindow=0",
        [fleet(*four_of(0.0)), fleet(*four_of(750.0), now_s=15.0)],
    ),
    "the guard has nothing to say": (
        "queue:24,guard=0.85,knee=1000,downwindow=0",
        [fleet(*four_of(0.0)), fleet(*four_of(750.0), now_s=15.0)],
    ),
    "the guard at a count that stays": ("queue:1,guard=0.85,knee=100", [fleet(*busy(4, 1.0))]),
    "the guard and then the cooldown": (
        "queue:24,min=0,guard=0.85,knee=100,downwindow=0",
        [fleet(*busy(2, 0.0, generation_tokens=5.0), now_s=15.0 * step) for step in range(2)],
    ),
    "the guard without a knee": ("queue:24,guard=0.85,downwindow=0", [fleet(*four_of(0.0))]),
    "the guard without counters": ("queue:24,guard=0.85,knee=9,downwindow=0", [fleet(*busy(2, 1.0))]),
    "the cooldown": ("queue:4,min=0,downwindow=0", [fleet(*busy(1, 0.0))]),
    "idle to one": ("queue:4,min=0,cooldown=0,downwindow=0", [fleet(*busy(2, 0.0))]),
    "idle to zero": ("queue:4,min=0,cooldown=0,downwindow=0", [fleet(*busy(1, 0.0))]),
    "not certain that it is idle": ("waiting:4,min=0,cooldown=0,downwindow=0", [fleet(*busy(1, 3.0))]),
    "at zero, and nothing held": ("queue:4,min=0", [fleet(spec=0)]),
    "from zero": ("queue:4,min=0", [fleet(spec=0, held=Held(9.0))]),
    "from zero by one": ("queue:4,min=0", [fleet(spec=0, held=Held(1.0))]),
    "from zero against a limit": ("queue:4,min=0,up=100%/15", [fleet(spec=0, held=Held(9.0))]),
    "at zero, disabled": ("queue:4", [fleet(spec=0, held=Held(9.0))]),
    "no count": ("queue:4", [replace(fleet(*busy(2)), spec_replicas=None)]),
}


def test_the_layer_says_what_it_did(golden):
    """Each case at its last look: the counts, why, and every step with its numbers."""
    text = ""
    for name, (policy, looks) in LAYER.items():
        state = ScaleState() if "window" in name else AT_ONCE
        for look_at in looks:
            decision, state = decide(parse_policy(policy), look_at, state)
        text += (
            f"{name}: {policy}\n  {decision.current} -> {decision.desired} [{decision.reason}] hpa {decision.hpa}, "
            f"proposal {decision.proposal}, in flight {decision.inflight}, demand {decision.demand}, "
            f"projection {decision.projection}, coverage {decision.coverage:.3g} {decision.note}\n{steps_of(decision)}"
        )
    golden("decision-steps.txt", text)


QUEUE = MetricTarget(Source.EXTERNAL, TargetType.AVERAGE_VALUE, 4000, "queue")
KNOWN = State(recommendations=())
NINE = Measurement((36000,))
REFUSED = Measurement(failure="refused")
SOURCES = {
    Source.OBJECT: TargetType.VALUE,
    Source.PODS: TargetType.AVERAGE_VALUE,
    Source.RESOURCE: TargetType.UTILIZATION,
    Source.CONTAINER_RESOURCE: TargetType.UTILIZATION,
}
HPA: dict[str, tuple[Policy, int, tuple[Measurement, ...], State]] = {
    "up": (Policy((QUEUE,)), 5, (NINE,), KNOWN),
    "at most double": (Policy((QUEUE,)), 2, (NINE,), KNOWN),
    "the maximum": (Policy((QUEUE,), 1, 3), 2, (NINE,), KNOWN),
    "the window": (Policy((QUEUE,)), 20, (NINE,), State((Recommendation(18, 0.0),))),
    "the window of behavior": (Policy((QUEUE,), behavior=Behavior()), 20, (NINE,), State((Recommendation(18, 0.0),))),
    "the up window of behavior": (
        Policy((QUEUE,), behavior=Behavior(replace(DEFAULT_SCALE_UP, stabilization_window_s=60))),
        *(5, (NINE,), State((Recommendation(6, 0.0),))),
    ),
    "refused": (Policy((QUEUE,)), 5, (REFUSED,), KNOWN),
    "one of two refused, down": (Policy((QUEUE, QUEUE)), 20, (NINE, REFUSED), KNOWN),
    "one of two refused, up": (Policy((QUEUE, QUEUE)), 5, (NINE, REFUSED), KNOWN),
    "no metric": (Policy(()), 5, (), KNOWN),
    "above the maximum": (Policy((QUEUE,), 1, 3), 5, (NINE,), KNOWN),
    "below the minimum": (Policy((QUEUE,), 7), 5, (NINE,), KNOWN),
    "disabled at zero": (Policy((QUEUE,)), 0, (NINE,), KNOWN),
    "from zero to the minimum": (
        *(Policy((QUEUE,), 12, controller=Controller(version=(1, 37))), 0, (NINE,)),
        replace(KNOWN, scaled_to_zero=True),
    ),
    "from zero to the minimum past the limits of behavior": (
        *(Policy((QUEUE,), 12, behavior=Behavior(), controller=Controller(version=(1, 37))), 0, (NINE,)),
        replace(KNOWN, scaled_to_zero=True),
    ),
    "a negative sum": (Policy((replace(QUEUE, source=Source.OBJECT),), 0), 5, (Measurement((-4000,)),), KNOWN),
    **{
        f"refused: {source}": (Policy((MetricTarget(source, kind, 50, resource="cpu"),)), 5, (REFUSED,), KNOWN)
        for source, kind in SOURCES.items()
    },
}


def test_the_hpa_layer_says_what_it_did(golden):
    """Each case: the counts, why, the conditions as the HPA would show them, and every step with its numbers."""
    text = ""
    for name, (policy, current, measurements, state) in HPA.items():
        decision, after = decide_hpa(policy, Observation(10.0, current, current, measurements), state)
        conditions = ", ".join(f"{c.type}={c.status} {c.reason}" for c in decision.conditions)
        log = [(entry.replicas, entry.time_s) for entry in after.recommendations or ()]
        text += (
            f"{name}\n  {current} -> {decision.replicas} [{decision.reason}] proposal {decision.proposal}; "
            f"{conditions}; remembers {log}\n{steps_of(decision)}"
        )
    golden("decision-steps-hpa.txt", text)
