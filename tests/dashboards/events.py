"""At which event of the scenario the series of each panel must move, and how: what a person would look for in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.dashboards import scenario
from tests.dashboards.history import Answer
from tests.dashboards.scenario import COLD_START_S, STEP_S

Span = tuple[float, float]

NEW_READY_S = 2 * COLD_START_S
"""Until the replicas of a scale-up serve."""

EVENTS: Mapping[str, Span] = {
    "burst": (scenario.BURST[0], scenario.BURST[0] + 300),
    "scale-up": (scenario.BURST[0], scenario.BURST[0] + NEW_READY_S + 60),
    "scale-down": (scenario.BURST[1] + 300, scenario.BURST[1] + 540),
    "cut drain": (scenario.BURST[1] + 300, scenario.BURST[1] + 600),
    "time-out": scenario.TIME_OUT,
    "stall": (scenario.HANG[0], scenario.HANG[1]),
    "outage": scenario.OUTAGE,
    "dark": scenario.DARK,
    "rollout": (scenario.ROLLOUT, scenario.ROLLOUT + 480),
    "wake": (scenario.WAKE[0], scenario.WAKE[0] + NEW_READY_S + 60),
    "asleep": (scenario.WAKE[1] + 300, scenario.WAKE[1] + 600),
    "inert": scenario.INERT,
}
"""When each event is, in seconds after the scenario's start; with the time that its consequences take."""

BEFORE_S = 120


@dataclass(frozen=True)
class Move:
    """What a panel's series do at an event.

    Attributes:
        event: of EVENTS.
        how: `rises`, `falls` (the sum of its series), `appears`, `vanishes` (any series), `turns` (a series is there
            that was not, or has a value that it had not), or `steady` (data, and no event to wait for).
        number: of the panel's query.
    """

    event: str
    how: str
    number: int = 0


STEADY = Move("burst", "steady")

MOVES: Mapping[str, Mapping[str, Move]] = {
    "infscale-fleet": {
        "Waiting requests": Move("burst", "rises"),
        "Time to first token, p95": Move("burst", "rises"),
        "Short of the recommendation": Move("scale-up", "rises"),
        "Silent replicas": Move("outage", "rises"),
        "Refused requests": STEADY,  # the stand-in engine refuses none: 0
        "Last evaluation": Move("inert", "rises"),
        "Required, recommended, ready": Move("burst", "rises"),
        "Replicas by phase": Move("scale-up", "turns"),
        "Why the count is what it is": Move("burst", "turns"),
        "Workloads": Move("burst", "rises"),
        "In flight against the target": Move("burst", "rises"),
        "Time to first token": Move("burst", "rises", 2),
        "Tokens": Move("burst", "rises"),
        "Time between tokens": Move("wake", "rises", 1),
        "How full": Move("burst", "rises"),
        "Replica-minutes of the last hour": Move("scale-up", "rises"),
        "Cold start, p90 of a day": Move("wake", "rises"),
    },
    "infscale-replica": {
        "Engines not read": Move("dark", "rises"),
        "Hanging or too busy": Move("stall", "rises"),
        "Longest queue": Move("burst", "rises"),
        "Fullest KV cache": Move("burst", "rises"),
        "Oldest values": Move("time-out", "rises"),
        "Failed reads": Move("outage", "rises"),
        "State of each replica": Move("stall", "turns"),
        "Waiting": Move("burst", "rises"),
        "In flight": Move("burst", "rises"),
        "Running": Move("burst", "rises"),
        "KV cache": Move("burst", "rises"),
        "Generated tokens": Move("burst", "rises"),
        "Prompt tokens": Move("burst", "rises"),
        "Ended requests": Move("burst", "rises"),
        "Slots in use": Move("burst", "rises"),
        "Time to first token, p95": Move("burst", "rises"),
        "Time in the queue, p95": Move("burst", "rises"),
        "Time between tokens, p95": Move("dark", "vanishes"),
        "Failed reads by reason": Move("time-out", "appears"),
        "Time of a read": Move("time-out", "rises"),
        "CPU of the engine": Move("dark", "vanishes"),
        "Engines": Move("scale-up", "turns"),
    },
    "infscale-decision": {
        "1. Known": Move("burst", "rises"),
        "2. Missing": Move("outage", "rises"),
        "3. Held": Move("wake", "rises"),
        "4. Demand": Move("burst", "rises"),
        "5. Target": STEADY,
        "6. Replicas now": Move("scale-up", "rises"),
        "7. Ratio": Move("burst", "rises"),
        "8. Proposal": Move("burst", "rises"),
        "9. Down window": Move("burst", "rises"),
        "10. Before limits": Move("burst", "rises"),
        "11. Minimum": STEADY,
        "12. Maximum": STEADY,
        "A plain HPA": Move("scale-up", "rises"),
        "Recommended": Move("scale-up", "rises"),
        "Asked for": Move("scale-up", "rises"),
        "Last evaluation": Move("inert", "rises"),
        "Recommended, asked for, ready": Move("scale-up", "rises", 3),
        "Reason": Move("dark", "turns"),
        "Known, held, demand": Move("burst", "rises", 3),
        "Who gave a value": Move("outage", "turns"),
        "Coverage": Move("dark", "falls"),
        "Demand against the target of all replicas": Move("scale-up", "rises", 1),
        "Ratio and tolerance": Move("burst", "rises"),
        "Proposal, down window, before limits": Move("scale-down", "falls", 1),
        "Proposal less the count": Move("burst", "rises"),
        "Within the limits": Move("scale-down", "falls", 1),
        "Evaluations by reason": Move("burst", "turns"),
    },
    "infscale-drain": {
        "Requests cut": Move("cut drain", "rises"),
        "Drains not idle": Move("cut drain", "rises"),
        "Blind replicas": STEADY,  # no replica of the scenario is misconfigured: 0
        "Draining now": Move("scale-down", "rises"),
        "Drains ended": Move("rollout", "rises"),
        "Drain time, p95": Move("cut drain", "rises"),
        "Phase of each replica": Move("rollout", "turns"),
        "Asked for, ready, starting, draining": Move("scale-down", "falls"),
        "In flight of replicas that drain": Move("scale-down", "appears"),
        "Drains by outcome": Move("scale-down", "appears"),
        "Requests cut by outcome": Move("cut drain", "appears"),
        "Drains of the time shown": Move("cut drain", "rises"),
        "Cold starts": Move("rollout", "appears"),
        "Cold start, p90 of a day": Move("wake", "turns"),
        "Versions of infscale": Move("scale-up", "rises"),
    },
    "infscale-activator": {
        "Requests refused": Move("wake", "rises"),
        "Room used": Move("wake", "rises"),
        "Held now": Move("wake", "rises"),
        "Time held, p95": Move("wake", "appears"),
        "Activators": STEADY,
        "Held, and how many may be": Move("wake", "rises"),
        "What became of them": Move("wake", "appears"),
        "Ready and recommended replicas": Move("wake", "rises"),
        "Time held": Move("wake", "rises"),
    },
}
"""Each panel of each dashboard, by its title."""


def moved(answer: Answer, move: Move) -> bool:
    """Whether a query's series did at the event what they must."""
    since, until = EVENTS[move.event]
    before, after = (since - BEFORE_S, since - STEP_S), (since, until)
    return _CHECKS[move.how](answer, before, after)


def _sums(answer: Answer, span: Span) -> list[float]:
    return [value for at, value in answer.totals.items() if span[0] <= at <= span[1]]


def _seen(answer: Answer, span: Span) -> set[tuple[str, str]]:
    """Every (series, value) in a span."""
    start = scenario.START_S
    return {
        (str(one["metric"]), value)
        for one in answer.series
        for when, value in one["values"]
        if span[0] <= when - start <= span[1]
    }


def _rises(answer: Answer, before: Span, after: Span) -> bool:
    return max(_sums(answer, after), default=0.0) > max(_sums(answer, before), default=0.0)


def _falls(answer: Answer, before: Span, after: Span) -> bool:
    return min(_sums(answer, after), default=0.0) < min(_sums(answer, before), default=0.0)


def _appears(answer: Answer, before: Span, after: Span) -> bool:
    return not _seen(answer, before) and bool(_seen(answer, after))


def _vanishes(answer: Answer, before: Span, after: Span) -> bool:
    steps = (after[1] - after[0]) / STEP_S
    return bool(_sums(answer, before)) and len(_sums(answer, after)) < steps


def _turns(answer: Answer, before: Span, after: Span) -> bool:
    return bool(_seen(answer, before)) and bool(_seen(answer, after) - _seen(answer, before))


def _steady(answer: Answer, _before: Span, _after: Span) -> bool:
    return bool(answer.series)


_CHECKS: Mapping[str, Callable[[Answer, Span, Span], bool]] = {
    "rises": _rises,
    "falls": _falls,
    "appears": _appears,
    "vanishes": _vanishes,
    "turns": _turns,
    "steady": _steady,
}
