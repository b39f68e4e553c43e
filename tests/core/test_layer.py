"""The layer around the HPA: it changes nothing that was not asked for, and what always holds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from infscale.core.decide import decide_hpa
from infscale.core.decision import Reason
from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import AT_ONCE, ScaleState
from infscale.core.numbers import to_milli
from infscale.core.observation import Measurement, Observation
from infscale.core.replicas import Fleet, Held, Phase, Replica
from infscale.core.signals import hpa_policy
from infscale.core.state import Recommendation, ScaleEvent, State
from tests.core.workload import asked, fleet, serving, through_json

POLICIES = [
    "queue:4,min=1,max=12",
    "queue:4.5,min=2,max=9,downwindow=30,downpods=1",
    "queue:4,min=0,max=8,up=2/15+50%/30,upwindow=15,downtolerance=0.2",
    "queue:3+waiting:1,max=30,downwindow=0,upselect=min",
    "running:7,max=30,downselect=disabled",
]
past = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 20)), max_size=6)
"""(age in seconds, count)."""
hpa_states = st.builds(
    lambda log, up, down: State(
        None if log is None else tuple(Recommendation(count, -float(age)) for age, count in log),
        tuple(ScaleEvent(1 + count, -float(age)) for age, count in up),
        tuple(ScaleEvent(1 + count, -float(age)) for age, count in down),
    ),
    st.none() | past,
    past,
    past,
)
requests = st.integers(0, 12).map(float)
answering = st.lists(st.tuples(requests, requests), min_size=1, max_size=8).map(
    lambda values: tuple(
        serving(f"r{n}", running + waiting, running=running, waiting=waiting)
        for n, (running, waiting) in enumerate(values)
    )
)
anything = st.lists(
    st.tuples(st.sampled_from(Phase), requests, st.sampled_from(["ok", "ok", "stale"])), max_size=8
).map(
    lambda rows: tuple(
        serving(f"r{n}", value, state=state) if phase is Phase.SERVING else Replica(f"r{n}", phase, inflight=value)
        for n, (phase, value, state) in enumerate(rows)
    )
)


def state_of(hpa: State) -> ScaleState:
    """A memory with that of the HPA, and the same of the plain HPA beside it."""
    return ScaleState(hpa=hpa, plain=hpa.recommendations)


def observed(policy: str, replicas: tuple[Replica, ...], spec: int, held: float) -> Observation:
    """The sums as an HPA gets them from its metrics API."""
    names = [goal.metric.value for goal in parse_policy(policy).goals]
    fields = {"queue": "inflight", "waiting": "waiting", "running": "running"}
    sums = [
        sum(getattr(replica, fields[name]) for replica in replicas) + (0 if name == "running" else held)
        for name in names
    ]
    return Observation(0.0, spec, spec, tuple(Measurement((to_milli(value),)) for value in sums))


@given(st.sampled_from(POLICIES), answering, hpa_states, st.integers(0, 9), requests)
def test_with_nothing_asked_for_it_decides_as_the_hpa(policy, replicas, hpa, extra, held):
    """Every replica answers: the same count, steps and memory, which also is what it says of the plain HPA."""
    scale = replace(parse_policy(policy), min_replicas=max(1, parse_policy(policy).min_replicas))
    spec = len(replicas) + extra
    want, after = decide_hpa(hpa_policy(scale), observed(policy, replicas, spec, held), hpa)
    got, state = decide(scale, fleet(*replicas, spec=spec, held=Held(held)), state_of(hpa))
    assert (got.desired, got.hpa, got.proposal) == (want.replicas, want.replicas, want.proposal)
    assert (got.reason, got.steps, got.direction) == (want.reason, want.steps, want.direction)
    assert state.hpa == after
    assert state.plain == after.recommendations


@given(st.sampled_from(POLICIES), anything, hpa_states, st.integers(0, 9), requests)
def test_a_plain_policy_is_the_hpa(policy, replicas, hpa, spec, held):
    """`hpa:` fills nothing in and holds nothing: silent replicas are just not in the sum."""
    scale = parse_policy("hpa:" + policy)
    known = tuple(replica for replica in replicas if replica.phase is Phase.SERVING)
    got, state = decide(scale, fleet(*replicas, spec=spec, held=Held(held)), state_of(hpa))
    observation = observed(policy, known, spec, held)
    if not known and (spec or any(replica.phase is Phase.SILENT for replica in replicas)):
        kept = [Measurement((to_milli(held),)) if held and "running" not in policy else Measurement()]
        observation = replace(observation, measurements=tuple(kept * len(scale.goals)))
    want, after = decide_hpa(hpa_policy(scale), observation, hpa)
    assert (got.desired, got.hpa, got.proposal, got.reason) == (
        want.replicas,
        want.replicas,
        want.proposal,
        want.reason,
    )
    assert state.hpa == after


@given(
    st.sampled_from(POLICIES),
    st.lists(st.tuples(anything, st.floats(0, 90), requests | st.none()), min_size=1, max_size=12),
    st.integers(0, 9),
    st.sampled_from(["", ",lookahead=60", ",guard=0.85,knee=100", ",lookahead=auto,cooldown=30"]),
)
def test_what_always_holds(policy, looks, spec, extras):
    """Bounds, steps that add up, the same output for the same input, and a state that survives JSON."""
    scale, state, now_s = parse_policy(policy + extras), ScaleState(), 0.0
    for replicas, seconds, held in looks:
        now_s += seconds
        seen = fleet(*replicas, spec=spec, now_s=now_s, held=Held(held))
        decision, after = decide(scale, seen, state)
        assert decide(scale, seen, through_json(state)) == (decision, after)
        state = after
        counts = [spec] + [step.after for step in decision.steps]
        assert [step.before for step in decision.steps] == counts[:-1]
        assert counts[-1] == decision.desired
        if scale.min_replicas <= spec <= scale.max_replicas:
            assert scale.min_replicas <= asked(decision) <= scale.max_replicas
        stale = any(replica.state == "stale" and replica.phase is Phase.SERVING for replica in replicas)
        if stale or held is None or decision.inflight is None:
            assert asked(decision) >= min(spec, scale.max_replicas)
        spec = asked(decision)


def test_the_plain_hpa_has_a_memory_of_its_own():
    """What it would do rests on what it would have proposed, not on what the layer did."""
    policy = parse_policy("queue:4,max=20,downwindow=60,lookahead=60")
    state, told = ScaleState(), []
    for step in range(9):
        load = 4.0 + 2.0 * step
        seen = fleet(serving("a", load), spec=4, now_s=15.0 * step)
        decision, state = decide(policy, seen, state)
        told.append((decision.hpa, decision.desired, decision.reason))
    assert told[0] == (4, 4, Reason.STABILISED)
    assert told[-1] == (5, 7, Reason.LOOKAHEAD)
    assert state.plain != state.hpa.recommendations


def test_the_plain_hpa_knows_of_the_changes_that_were_made():
    """Its limits count them: one Pod was added 5 s ago, and one in 15 s may be."""
    policy = parse_policy("queue:4,max=9,uppods=1,lookahead=60")
    state = ScaleState(hpa=State((), (ScaleEvent(1, 0.0),)), plain=())
    decision, _ = decide(policy, fleet(serving("a", 8.0), serving("b", 8.0), now_s=5.0), state)
    assert (decision.hpa, decision.desired, decision.reason) == (2, 2, Reason.RATE_LIMITED)


def test_a_count_that_is_held_is_remembered_beside_what_was():
    """As a proposal of itself: it holds for one window from here, and what was proposed before still counts."""
    policy = parse_policy("queue:4,max=9,downwindow=60")
    _, state = decide(policy, fleet(serving("a", 8.0)), AT_ONCE)
    _, state = decide(policy, fleet(Replica("a", Phase.SILENT), now_s=15.0), state)
    assert state.hpa.recommendations == (Recommendation(2, 0.0), Recommendation(1, 15.0))
    _, state = decide(policy, fleet(Replica("a", Phase.SILENT), now_s=75.1), state)
    assert state.hpa.recommendations == (Recommendation(2, 0.0), Recommendation(1, 75.1))


def test_a_count_outside_the_bounds_goes_there_at_once():
    """No guard, no cooldown and no hole stands against the bounds."""
    policy = parse_policy("queue:4,min=0,max=3,guard=0.85,knee=1")
    decision, _ = decide(policy, fleet(Replica("a", Phase.SILENT), spec=9), ScaleState())
    assert (decision.desired, decision.reason, decision.hpa) == (3, "max", 3)
    decision, _ = decide(parse_policy("queue:4"), Fleet(0.0, 0, held=Held(9.0)), ScaleState())
    assert (decision.desired, decision.reason) == (0, "disabled")
