"""What `infscale decide` prints: a table and a line for a person, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infscale.cli.sources import cell, whole
from infscale.cli.table import aligned
from infscale.core.grammar import describe, policy_text
from infscale.core.replicas import Replica
from infscale.core.scale_decision import ScaleDecision
from infscale.core.scaling import ScalePolicy
from infscale.errors import printable
from infscale.reads import Rates

_COLUMNS = ("name", "engine", "state", "inflight", "running", "waiting", "kv", "tokens_per_second", "cpu")
_HEADINGS = {"name": "SOURCE", "tokens_per_second": "TOKENS/S"}


@dataclass(frozen=True)
class Seen:
    """One source as it was read.

    Attributes:
        replica: what it is to the decision.
        engine: its engine's name; empty where it is not known.
        rates: what moved since the run before.
        warnings: sentences for a person.
        error: why it could not be read; None where it was.
    """

    replica: Replica
    engine: str
    rates: Rates
    warnings: tuple[str, ...] = ()
    error: str | None = None

    @property
    def name(self) -> str:
        """The source as it was given."""
        return self.replica.name

    def row(self) -> dict[str, Any]:
        """The source in the form of the JSON output."""
        replica, moved = self.replica, self.rates
        return {
            "name": replica.name,
            "engine": self.engine or None,
            "state": replica.state,
            "phase": replica.phase.value,
            "running": whole(replica.running),
            "waiting": whole(replica.waiting),
            "inflight": whole(replica.inflight),
            "kv": whole(replica.kv),
            "tokens_per_second": _short(moved.tokens_per_second),
            "cpu": _short(moved.cpu_ratio),
            "error": self.error,
        }


def as_text(policy: ScalePolicy, decision: ScaleDecision, seen: Sequence[Seen], *, explain: bool) -> Iterator[str]:
    """A row for each source, the decision, and with `explain` its steps."""
    if seen:
        heading = [_HEADINGS.get(key, key.upper()) for key in _COLUMNS]
        rows = [[cell(row[key]) for key in _COLUMNS] for row in (one.row() for one in seen)]
        yield from aligned([heading, *rows], right=range(3, len(_COLUMNS)))
    change = f"current {decision.current} -> desired {decision.desired}"
    yield f"{describe(policy)}: {change} ({decision.direction}; {decision.reason.value})"
    if explain:
        yield from (f"  {number}. {printable(words)}" for number, words in enumerate(_steps(decision), 1))


def as_json(policy: ScalePolicy, decision: ScaleDecision, seen: Sequence[Seen], warnings: Sequence[str]) -> str:
    """All of it as one object."""
    answer = {
        "desired": decision.desired,
        "current": decision.current,
        "proposal": decision.proposal,
        "hpa": decision.hpa,
        "reason": decision.reason.value,
        "direction": decision.direction,
        "steps": _steps(decision),
        "demand": whole(decision.demand),
        "coverage": whole(decision.coverage),
        "policy": policy_text(policy),
        "replicas": [one.row() for one in seen],
        "warnings": list(warnings),
    }
    return json.dumps(answer, indent=1, allow_nan=False)


def _steps(decision: ScaleDecision) -> list[str]:
    return [step.words for step in decision.steps]


def _short(value: float | None) -> float | None:
    """Six digits behind the point are more than two runs can tell."""
    return None if value is None else whole(round(value, 6))
