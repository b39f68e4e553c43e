"""The policies of a run, by the one grammar: infscale's own and `hpa:` through the decision core, and the others.

`scaler_of` makes a `Scaler` of a policy's text. What a scenario says of bounds and behaviour holds where the policy
says nothing of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from infscale.core.checks import faults
from infscale.core.grammar import Part, allowed, parse_form, policy_text, read_goal, read_number, read_settings
from infscale.core.layer import decide
from infscale.core.memory import ScaleState
from infscale.core.replicas import Fleet
from infscale.core.scaling import Goal, MetricName, ScalePolicy
from infscale.core.settings import Number, Value, policy_of
from infscale.core.state import Recommendation, State
from infscale_sim.defaults import MOST_REPLICAS, SAME_S, Defaults
from infscale_sim.fleet import Needs
from infscale_sim.knative import Knative


@dataclass(frozen=True, slots=True)
class Choice:
    """How many replicas, why (`infscale.core.decision.Reason`, or a word of the scaler's own), and in words."""

    replicas: int
    reason: str
    words: str = ""


class Scaler(Protocol):
    """What a run asks for the count. It may remember; a run makes its own.

    Attributes:
        needs: what it looks at beside requests.
    """

    needs: Needs

    def start(self, replicas: int) -> int:
        """The count at the start, where the scenario has so many."""
        ...

    def next_s(self, now_s: float) -> float:
        """When it looks next, after now. Depends on nothing but now."""
        ...

    def decide(self, fleet: Fleet) -> Choice:
        """How many replicas it wants."""
        ...


def scaler_of(text: str, defaults: Defaults, knee: Callable[[float], float] | None = None) -> Scaler:
    """A new scaler for a policy.

    Args:
        text: the policy.
        defaults: the scenario's.
        knee: gives what a replica carries, by the weight of a prompt token, where the policy has no number for it;
            None: the policy has to learn it.

    Raises:
        PolicyError: one line with the part that is wrong.
    """
    forms: dict[str, Callable[[Part], Scaler]] = {
        "static": lambda part: Static(read_number(part, _REPLICAS, "static: "), defaults),
        "keda": lambda part: _keda(part, defaults),
        "kpa": lambda part: _kpa(part, defaults),
    }
    policy = parse_form(text, forms)
    if not isinstance(policy, ScalePolicy):
        return policy
    whole = Part(text, text)
    _, rest = whole.partition(",")
    given = read_settings(rest.split(",") if rest else [], {})
    policy = _merged(policy.goals, given, defaults, whole, plain=policy.plain)
    if knee is not None and policy.knee is None and _measures(policy) and not policy.plain:
        policy = replace(policy, knee=knee(policy.prompt_weight))
    return Core(policy, defaults)


def _measures(policy: ScalePolicy) -> bool:
    """Whether the policy looks at token counters."""
    return policy.guard is not None or any(goal.metric is MetricName.WORK for goal in policy.goals)


def _merged(
    goals: tuple[Goal, ...], given: dict[str, Value], defaults: Defaults, whole: Part, *, plain: bool
) -> ScalePolicy:
    """The policy with what the scenario says where it says nothing itself."""
    settings: dict[str, Value] = {"min": defaults.min_replicas, "max": defaults.max_replicas, **defaults.behavior}
    if not plain:
        settings["cooldown"] = defaults.cooldown_s
    policy = policy_of(goals, {**settings, **given}, plain=plain)
    for fault in faults(policy):
        raise whole.error(f"{fault.key}: {fault.words}")
    if policy.max_replicas > MOST_REPLICAS:
        raise whole.error(f"max: at most {MOST_REPLICAS:,} replicas are simulated")
    return replace(policy, fit=defaults.fit, fit_samples=defaults.fit_samples)


class Core:
    """infscale's own policies and the HPA layer: what runs in the recommender, at every sync."""

    def __init__(self, policy: ScalePolicy, defaults: Defaults) -> None:
        metrics = {goal.metric for goal in policy.goals}
        self.needs = Needs(cpu=MetricName.CPU in metrics, tokens=_measures(policy), ttft=MetricName.TTFT in metrics)
        self.policy, self.defaults = policy, defaults
        self.state = ScaleState()

    @property
    def text(self) -> str:
        """The policy with all that the scenario adds."""
        return policy_text(self.policy)

    def start(self, replicas: int) -> int:
        """As the scenario has it; the log of proposals begins with it at 0."""
        first = (Recommendation(replicas, 0.0),)
        self.state = ScaleState(hpa=State(recommendations=first), plain=first)
        return replicas

    def next_s(self, now_s: float) -> float:
        """The next sync."""
        return self.defaults.next_sync_s(now_s)

    def decide(self, fleet: Fleet) -> Choice:
        """One evaluation of the decision core."""
        decision, self.state = decide(self.policy, fleet, self.state)
        count = fleet.spec_replicas or 0
        desired = count if decision.desired is None else decision.desired
        if desired == count:
            return Choice(count, decision.reason.value)
        return Choice(desired, decision.reason.value, "; ".join(step.words for step in decision.steps))


class Static:
    """A fixed count, ready at the start."""

    needs = Needs()

    def __init__(self, replicas: float, defaults: Defaults) -> None:
        self.replicas, self.defaults = int(replicas), defaults

    def start(self, replicas: int) -> int:
        """Its own count."""
        return self.replicas

    def next_s(self, now_s: float) -> float:
        """Every sync, for the timeline."""
        return self.defaults.next_sync_s(now_s)

    def decide(self, fleet: Fleet) -> Choice:
        """Always the same."""
        return Choice(self.replicas, "static")


class Keda:
    """KEDA: an HPA from 1 up at every sync, and activation from and to 0 at every poll.

    A poll that finds requests at 0 replicas asks for the minimum, at least 1. Once every poll for longer than the
    cooldown found none, the count goes to 0 straight from wherever it is, past the HPA's limits.

    Source: pkg/scaling/executor/scale_scaledobjects.go, `RequestScale`; the HPA's minimum is at least 1
    (`GetHPAMinReplicas`).
    """

    def __init__(self, policy: ScalePolicy, defaults: Defaults, poll_s: float, cooldown_s: float) -> None:
        self.least = policy.min_replicas
        self.hpa = Core(replace(policy, min_replicas=max(1, policy.min_replicas)), defaults)
        self.needs = self.hpa.needs
        self.poll_s, self.cooldown_s = poll_s, cooldown_s
        self.active_s = 0.0

    def start(self, replicas: int) -> int:
        """As the scenario has it."""
        return self.hpa.start(replicas)

    def next_s(self, now_s: float) -> float:
        """The next poll or sync."""
        return min(self.hpa.next_s(now_s), self._next_poll_s(now_s))

    def decide(self, fleet: Fleet) -> Choice:
        """KEDA's poll where one is due, then the HPA's sync where one is."""
        count, before_s = fleet.spec_replicas or 0, fleet.now_s - 10 * SAME_S
        if self._next_poll_s(before_s) <= fleet.now_s:
            if _requests(fleet) > 0:
                self.active_s = fleet.now_s
                if count == 0:
                    return Choice(max(1, self.least), "activate_from_zero", "a poll found requests")
            elif self.least == 0 and count > 0 and self.active_s + self.cooldown_s < fleet.now_s:
                return Choice(0, "idle_to_zero", f"no request for more than {self.cooldown_s:g} s")
        if count > 0 and self.hpa.next_s(before_s) <= fleet.now_s:
            return self.hpa.decide(fleet)
        return Choice(count, "no_samples")

    def _next_poll_s(self, now_s: float) -> float:
        # Without the allowance 0.7 // 0.1 is 6, and the poll after 0.7 s would be at 0.7 s for ever.
        return (math.floor((now_s + SAME_S) / self.poll_s) + 1) * self.poll_s


def _requests(fleet: Fleet) -> float:
    serving = (replica.inflight or 0.0 for replica in fleet.replicas if replica.phase == "serving")
    return sum(serving) + (fleet.held.requests or 0.0 if fleet.held else 0.0)


class Kpa:
    """Knative's autoscaler on the requests in flight."""

    needs = Needs()

    def __init__(self, autoscaler: Knative, least: int, most: int) -> None:
        self.autoscaler, self.least, self.most = autoscaler, least, most

    def start(self, replicas: int) -> int:
        """As the scenario has it."""
        return replicas

    def next_s(self, now_s: float) -> float:
        """The next tick."""
        tick_s = self.autoscaler.tick_s
        return (now_s // tick_s + 1) * tick_s

    def decide(self, fleet: Fleet) -> Choice:
        """What its windows ask for, within the bounds."""
        count = fleet.spec_replicas or 0
        asked, mode = self.autoscaler.decide(fleet.now_s, _requests(fleet), fleet.ready_replicas or 0)
        replicas = max(self.least, min(self.most, asked))
        return Choice(replicas, mode, f"the {mode} window asks for {asked}" if replicas != count else "")


_REPLICAS = Number(f"a whole number of replicas up to {MOST_REPLICAS:,}", lambda n: 0 <= n <= MOST_REPLICAS, whole=True)
_SECONDS = Number("seconds above 0", lambda n: n > 0)
_KEDA_KEYS = {"poll": _SECONDS, "cooldown": _SECONDS}
_KPA_KEYS = {
    "stable": _SECONDS,
    "panic": _SECONDS,
    "panicat": Number("a factor above 1, as 2", lambda n: n > 1),
    "min": _REPLICAS,
    "max": _REPLICAS,
}


def _keda(part: Part, defaults: Defaults) -> Scaler:
    goals, own, others = _form(part, _KEDA_KEYS)
    settings = read_settings(others, {})
    policy = _merged(goals, settings, defaults, part, plain=True)
    return Keda(policy, defaults, own.get("poll", 30.0), own.get("cooldown", 300.0))


def _kpa(part: Part, defaults: Defaults) -> Scaler:
    goals, own, others = _form(part, _KPA_KEYS)
    for piece in others:
        key, _ = piece.partition("=")
        raise key.error(f"no such key; {allowed(key.text, _KPA_KEYS)}")
    if len(goals) != 1 or goals[0].metric is not MetricName.QUEUE or goals[0].target is None:
        raise part.error("kpa takes one metric, queue, as kpa:queue:24")
    autoscaler = Knative(
        target=goals[0].target,
        stable_s=own.get("stable", 60.0),
        panic_s=own.get("panic", 6.0),
        panic_at=own.get("panicat", 2.0),
    )
    least, most = int(own.get("min", defaults.min_replicas)), int(own.get("max", defaults.max_replicas))
    if not least <= most:
        raise part.error(f"the maximum {most} is below the minimum {least}")
    return Kpa(autoscaler, least, most)


def _form(part: Part, keys: dict[str, Number]) -> tuple[tuple[Goal, ...], dict[str, float], list[Part]]:
    """The metrics of a form, the values of its own keys, and all other settings unread."""
    first, rest = part.partition(",")
    goals = tuple(read_goal(piece) for piece in first.split("+"))
    own, others = {}, []
    for piece in rest.split(",") if rest else []:
        key, value = piece.partition("=")
        if key.text in keys and value is not None:
            own[key.text] = read_number(value, keys[key.text], f"{key.text}: ")
        else:
            others.append(piece)
    return goals, own, others
