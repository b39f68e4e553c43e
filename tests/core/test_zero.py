"""To zero and back: what is idle, how long, and what wakes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import AT_ONCE
from infscale.core.replicas import Buckets, Fleet, Held, Phase, Replica
from infscale.core.scale_decision import ScaleDecision
from tests.core.workload import fleet, serving

POLICY = parse_policy("queue:4,min=0,cooldown=60,downwindow=0")


def after(seconds: float, look: Fleet, last: Fleet | None = None, policy=POLICY) -> ScaleDecision:
    """The decision at `last` (as `look` if not given) so long after a first look, with looks each 15 s before it."""
    state, now_s = AT_ONCE, 0.0
    while now_s < seconds:
        _, state = decide(policy, replace(look, now_s=now_s), state)
        now_s += 15.0
    return decide(policy, replace(last or look, now_s=now_s), state)[0]


def test_unknown_last_activity_starts_the_cooldown_now():
    """The first look at an idle workload is not its end."""
    assert (after(0, fleet(serving("a"))).desired, after(0, fleet(serving("a"))).reason) == (1, "cooldown")
    assert "idle for 45 of 60 s" in after(45, fleet(serving("a"))).steps[-1].words
    assert after(45, fleet(serving("a"))).desired == 1
    assert (after(60, fleet(serving("a"))).desired, after(60, fleet(serving("a"))).reason) == (0, "idle_to_zero")


def test_a_source_may_know_the_last_activity():
    """Across a restart: what it says counts instead of now; what lies in the future is now."""
    idle = fleet(serving("a"), now_s=1000.0)
    assert decide(POLICY, replace(idle, last_activity_s=940.0), AT_ONCE)[0].desired == 0
    assert decide(POLICY, replace(idle, last_activity_s=941.0), AT_ONCE)[0].desired == 1
    assert decide(POLICY, replace(idle, last_activity_s=5000.0), AT_ONCE)[0].desired == 1


def test_the_default_cooldown_is_the_larger_of_300_s_and_three_cold_starts():
    """Without measured ones, 300 s."""
    policy = parse_policy("queue:4,min=0")
    idle = fleet(serving("a"), now_s=1000.0)
    assert decide(policy, replace(idle, last_activity_s=700.0), AT_ONCE)[0].desired == 0
    slow = replace(AT_ONCE, cold_starts_s=(110.0, 110.0, 110.0))
    assert decide(policy, replace(idle, last_activity_s=700.0), slow)[0].desired == 1
    assert decide(policy, replace(idle, last_activity_s=670.0), slow)[0].desired == 0


def test_many_go_to_one_first():
    """Then to zero; the windows and limits do not hold that."""
    policy = parse_policy("queue:4,min=0,cooldown=60,downwindow=3600,downpods=1")
    decision = after(60, fleet(*[serving(f"r{n}") for n in range(5)]), policy=policy)
    assert (decision.desired, decision.reason) == (1, "idle_to_zero")


def test_scale_down_that_is_disabled_stays_so():
    """Neither to one nor to zero."""
    policy = parse_policy("queue:4,min=0,cooldown=60,downselect=disabled")
    assert after(600, fleet(serving("a"), serving("b")), policy=policy).desired == 2


@pytest.mark.parametrize(
    "doubt",
    [
        fleet(serving("a"), Replica("b", Phase.SILENT)),
        fleet(serving("a"), held=Held(None)),
        fleet(serving("a"), held=Held(1.0)),
        fleet(serving("a", 1.0)),
        fleet(serving("a", 0.0, waiting=1.0)),
        fleet(serving("a", 1.0, state="stale")),
        fleet(serving("a"), failure="refused"),
        fleet(Replica("a", Phase.STARTING)),
        fleet(serving("a"), Replica("d", Phase.DRAINING, inflight=1.0), spec=1),
        fleet(Replica("a", Phase.DRAINING), spec=1),
    ],
)
def test_only_what_is_certainly_idle_goes(doubt):
    """A hole, an activator that does not answer, any request, a stale engine: the cooldown begins anew."""
    idle = fleet(serving("a"))
    doubt = replace(doubt, spec_replicas=1)
    assert after(75, idle, doubt).desired == 1
    assert after(600, doubt).desired == 1
    state = AT_ONCE
    for step in range(4):
        _, state = decide(POLICY, replace(idle, now_s=15.0 * step), state)
    _, state = decide(POLICY, replace(doubt, now_s=60.0), state)
    decision, _ = decide(POLICY, replace(idle, now_s=75.0), state)
    assert (decision.desired, decision.reason) == (1, "cooldown")


def test_the_last_replica_may_be_the_one_that_drains():
    """It is withdrawn, and when nothing is left on it the count is 0."""
    draining = Replica("a", Phase.DRAINING, inflight=0.0)
    assert after(60, fleet(draining, spec=1)).desired == 0
    assert after(600, fleet(replace(draining, inflight=2.0), spec=1)).desired == 1


def test_requests_between_two_looks_are_activity():
    """Nothing is in flight at any look, but the token counters move."""
    state = AT_ONCE
    for step in range(20):
        busy = serving("a", generation_tokens=10.0 * step, prompt_tokens=0.0)
        decision, state = decide(POLICY, fleet(busy, now_s=15.0 * step), state)
        assert decision.desired == 1
    for step in range(20, 25):
        decision, state = decide(POLICY, fleet(busy, now_s=15.0 * step), state)
    assert decision.desired == 0


def test_a_restart_is_no_activity_unless_it_served_since():
    """Counters that begin anew at 0 tell of no request."""
    state = AT_ONCE
    for step, tokens in enumerate((50.0, 50.0, 0.0, 0.0, 0.0)):
        seen = fleet(serving("a", generation_tokens=tokens), now_s=15.0 * step)
        decision, state = decide(POLICY, seen, state)
    assert decision.desired == 0
    seen = fleet(serving("a", generation_tokens=60.0), serving("b", generation_tokens=5.0), now_s=75.0)
    _, state = decide(POLICY, seen, state)
    for counters in ({"generation_tokens": 1.0}, {"generation_tokens": 0.0, "prompt_tokens": 1.0}):
        restarted = fleet(serving("a", **counters), serving("b", generation_tokens=5.0), now_s=90.0)
        assert decide(POLICY, restarted, state)[1].last_activity_s == 90.0


def test_counters_that_come_or_go_are_no_activity():
    """An engine counts from its first request on; a histogram beside them tells nothing of idleness."""
    policy = parse_policy("queue:4+ttft:1,min=0,cooldown=60,downwindow=0")
    state = AT_ONCE
    for step, tokens in enumerate((None, None, 5.0, 5.0, None)):
        seen = serving("a", generation_tokens=tokens, ttft=(Buckets((1.0, math.inf), (1.0, 2.0)),))
        decision, state = decide(policy, fleet(seen, now_s=15.0 * step), state)
    assert (decision.desired, decision.reason) == (0, "idle_to_zero")


def test_a_count_above_zero_is_never_zero_without_the_cooldown():
    """Also where the metric does not see what runs."""
    policy = parse_policy("waiting:4,min=0,cooldown=60,downwindow=0")
    decision = after(600, fleet(serving("a", 3.0), serving("b", 3.0)), policy=policy)
    assert (decision.desired, decision.reason) == (1, "cooldown")
    assert "not certain that it is idle" in decision.steps[-1].words


@pytest.mark.parametrize("behavior", ["up=100%/15", "upwindow=600", "uppods=1,upselect=min"])
def test_a_held_request_wakes_whatever_the_limits(behavior):
    """A percentage of nothing is nothing, and an up window would wait."""
    state = AT_ONCE
    policy = parse_policy(f"queue:4,min=0,{behavior}")
    _, state = decide(policy, fleet(spec=0, held=Held(0.0)), state)
    decision, _ = decide(policy, fleet(spec=0, held=Held(9.0), now_s=15.0), state)
    assert (decision.desired, decision.reason) == (1, "activate_from_zero")


def test_a_scale_up_that_is_disabled_does_not_wake():
    """That was asked for."""
    policy = parse_policy("queue:4,min=0,upselect=disabled")
    decision, _ = decide(policy, fleet(spec=0, held=Held(9.0)), AT_ONCE)
    assert decision.desired == 0


def test_the_workload_wakes_though_its_source_failed():
    """What is held is known."""
    decision, _ = decide(POLICY, fleet(spec=0, held=Held(9.0), failure="refused"), AT_ONCE)
    assert (decision.desired, decision.reason) == (3, "activate_from_zero")
