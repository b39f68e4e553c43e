"""A small workload for tests: set the load, advance the clock, see what the core makes of it.

Replicas that are asked for are starting for their cold start, those that are given up are gone at once, and the load
spreads evenly over the serving ones. The state goes through JSON between any two evaluations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import ScaleState
from infscale.core.memory_json import from_json, to_json
from infscale.core.replicas import Fleet, Held, Phase, Replica
from infscale.core.scale_decision import ScaleDecision
from infscale.errors import StateError

STEP_S = 15.0


def refusals(
    read: Callable[[object], object], good: Mapping[str, object], changes: Iterable[Mapping[str, object]]
) -> str:
    """The whole line that a reader refuses each value with: `good` with each of the changes, without each key, None."""
    values: list[object] = [{**good, **change} for change in changes]
    values += [{name: value for name, value in good.items() if name != key} for key in good]
    lines = []
    for value in (*values, None):
        with pytest.raises(StateError) as refused:
            read(value)
        lines.append(f"{refused.value}\n")
    return "".join(lines)


def serving(name: str, inflight: float = 0.0, **fields) -> Replica:
    """A replica that answered: as many as fit in `running`, here all of them."""
    values = {"running": inflight, "waiting": 0.0, **fields}
    return Replica(name, Phase.SERVING, inflight=inflight, **values)


def fleet(*replicas: Replica, spec: int | None = None, now_s: float = 0.0, **fields) -> Fleet:
    """A look at these replicas; spec is how many are not leaving unless it is given."""
    count = sum(replica.phase is not Phase.DRAINING for replica in replicas)
    return Fleet(now_s, count if spec is None else spec, replicas=replicas, **fields)


def asked(decision: ScaleDecision | None) -> int:
    """The count that a decision asks for; there must be one."""
    assert decision is not None
    assert decision.desired is not None
    return decision.desired


def through_json(state: ScaleState) -> ScaleState:
    """The state as it comes back from a file."""
    return from_json(json.loads(json.dumps(to_json(state), allow_nan=False)))


@dataclass
class Workload:
    """See the module. `held` are the requests before it, None without an activator that answers."""

    policy: str
    cold_start_s: float = 60.0
    now_s: float = 0.0
    replicas: int = 1
    load: float = 0.0
    held: float | None = 0.0
    silent: set[str] = field(default_factory=set)
    state: ScaleState = field(default_factory=ScaleState)
    decision: ScaleDecision | None = None
    born_s: dict[str, float] = field(default_factory=dict)
    names: int = 0

    def __post_init__(self):
        """The replicas of the beginning serve already."""
        for _ in range(self.replicas):
            self._add(self.now_s - self.cold_start_s)

    @property
    def reason(self) -> str:
        """Why the count is what it is."""
        assert self.decision is not None
        return self.decision.reason.value

    @property
    def serving(self) -> int:
        """How many replicas serve."""
        assert self.decision is not None
        return self.decision.counts.serving

    def advance(self, seconds: float) -> Workload:
        """So many seconds on, with an evaluation each 15 s, the last at the end."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            self.decision, state = decide(parse_policy(self.policy), self.look(), self.state)
            self.state = through_json(state)
            if self.decision.desired is not None:
                self.scale(self.decision.desired)
        return self

    def scale(self, replicas: int) -> None:
        """Ask for so many; the youngest leave first."""
        while len(self.born_s) < replicas:
            self._add(self.now_s)
        while len(self.born_s) > replicas:
            del self.born_s[next(reversed(self.born_s))]
        self.replicas = replicas

    def look(self) -> Fleet:
        """What a fleet source sees now."""
        ready = [name for name, born_s in self.born_s.items() if self.now_s - born_s >= self.cold_start_s]
        seen = []
        for name, born_s in self.born_s.items():
            if name not in ready:
                seen.append(Replica(name, Phase.STARTING, created_s=born_s))
            elif name in self.silent:
                seen.append(Replica(name, Phase.SILENT))
            else:
                share = self.load / len(ready)
                seen.append(serving(name, share, created_s=born_s, served_s=born_s + self.cold_start_s))
        look = fleet(*seen, spec=self.replicas, now_s=self.now_s)
        return replace(look, held=Held(self.held))

    def _add(self, born_s: float) -> None:
        self.names += 1
        self.born_s[f"r{self.names}"] = born_s
