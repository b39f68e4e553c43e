"""What a search found, as text for people and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from infscale.core.scaling import ScalePolicy
from infscale.errors import UsageError
from infscale_sim.policies import Core, scaler_of
from infscale_sim.tune.cases import Case, Cases
from infscale_sim.tune.manifests import Workload, as_manifests, hpa, missing, scaled_object
from infscale_sim.tune.plot import Point, picture, table
from infscale_sim.tune.search import Search, Tried
from infscale_sim.tune.space import shortened
from infscale_sim.tune.trial import Cost, cost_of

_PROVED = 20
"""About how many policies are looked at for a sturdier one."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The chosen policy on one case that the search did not see."""

    seed: int
    requests: int
    misses: int
    replica_minutes: float

    @property
    def miss_percent(self) -> float:
        """Of its requests."""
        return _percent(self.misses, self.requests)


@dataclass(frozen=True, slots=True)
class Sturdy:
    """The cheapest policy of those tried that held on more traffic too, and how it does on what is held out."""

    point: Point
    held_out: Sequence[HeldOut]


@dataclass(frozen=True, slots=True)
class Findings:
    """All that is told.

    Attributes:
        budget_percent: of misses.
        tried, frontier, chosen: the policies as points, `chosen` one of the frontier.
        stopped: how many more were given up.
        is_interrupted: whether Ctrl-C ended the search.
        policy: the chosen one, with all that the scenario adds.
        workload: for the manifests.
        held_out, how: the checks, and what they are.
        sturdy: where the chosen one fails on a check, one that may be trusted more; None where there is none.
        expressed: what the manifests alone come to on the searched cases; None where they say all of the policy.
    """

    budget_percent: float
    tried: Sequence[Point]
    frontier: Sequence[Point]
    chosen: Point
    stopped: int
    is_interrupted: bool
    policy: ScalePolicy
    workload: Workload
    held_out: Sequence[HeldOut]
    how: str
    sturdy: Sturdy | None
    expressed: Point | None

    @property
    def is_within(self) -> bool:
        """Whether the chosen policy keeps within the budget where it was searched."""
        return self.chosen.miss_percent <= self.budget_percent


def most_checks(cases: Cases) -> int:
    """How many runs `findings_of` makes at most."""
    return 2 * len(cases.held_out) + 2 * _PROVED * len(cases.proving) + len(cases.searched)


def findings_of(
    found: Search, cases: Cases, budget_percent: float, workload: Workload, checked: Callable[[], None] = lambda: None
) -> Findings:
    """Look at what a search found; the chosen policy is run on the held-out cases, unless Ctrl-C ended the search.

    Args:
        found: the search.
        cases: what it ran on, and what it is checked on.
        budget_percent: of misses.
        workload: for the manifests.
        checked: called after each run.

    Raises:
        UsageError: nothing was run to the end.
    """
    best = found.closest()
    if best is None:
        raise UsageError("interrupted before the first policy was run to its end: nothing is known yet")
    defaults = cases.searched[0].scenario.defaults
    text = found.space.text(best.candidate)
    scaler = scaler_of(text, defaults)
    assert isinstance(scaler, Core)  # noqa: S101 - the space has no other form

    def point(one: Tried) -> Point:
        """A candidate as the report shows it."""
        return _point(one.cost, shortened(found.space.text(one.candidate), defaults), cases.searched)

    def held_on(those: Sequence[Case], text: str) -> Iterator[HeldOut]:
        """The policy on cases that the search has not seen."""
        for case in those:
            yield _held_out(case, text)
            checked()

    held_out = [] if found.is_interrupted else list(held_on(cases.held_out, text))
    sturdy = None
    if best.cost.misses <= found.budget and not all(check.miss_percent <= budget_percent for check in held_out):
        sturdy = _sturdier(found, budget_percent, partial(held_on, cases.proving))
    return Findings(
        budget_percent=budget_percent,
        tried=[_point(one.cost, "", cases.searched) for one in found.tried.values()],
        frontier=list(map(point, found.frontier())),
        chosen=point(best),
        stopped=found.stopped,
        is_interrupted=found.is_interrupted,
        policy=scaler.policy,
        workload=workload,
        held_out=held_out,
        how=cases.how,
        sturdy=None
        if sturdy is None
        else Sturdy(point(sturdy), list(held_on(cases.held_out, found.space.text(sturdy.candidate)))),
        expressed=None if found.is_interrupted else _expressed(scaler.policy, text, cases.searched),
    )


def _sturdier(found: Search, budget_percent: float, proofs: Callable[[str], Iterator[HeldOut]]) -> Tried | None:
    """The cheapest of some of those within the budget that holds on all of the proving cases."""
    within = sorted((one for one in found.tried.values() if one.cost.misses <= found.budget), key=lambda one: one.order)
    for one in within[1 :: max(1, len(within) // _PROVED)]:
        if all(proof.miss_percent <= budget_percent for proof in proofs(found.space.text(one.candidate))):
            return one
    return None


def _expressed(policy: ScalePolicy, text: str, cases: Sequence[Case]) -> Point | None:
    if not list(missing(policy)):
        return None
    plain = as_manifests(policy, text)
    costs = [cost_of(case, plain) for case in cases]
    total = Cost(sum(cost.replica_minutes for cost in costs), sum(cost.misses for cost in costs))
    return _point(total, plain, cases)


def _held_out(case: Case, text: str) -> HeldOut:
    cost = cost_of(case, text)
    return HeldOut(case.scenario.seed, len(case.requests), cost.misses, cost.replica_minutes)


def _point(cost: Cost, policy: str, cases: Sequence[Case]) -> Point:
    requests = sum(len(case.requests) for case in cases)
    return Point(cost.replica_minutes / len(cases), _percent(cost.misses, requests), cost.misses, policy)


def _percent(misses: int, requests: int) -> float:
    return 100 * misses / requests if requests else 0.0


def as_text(found: Findings) -> Iterator[str]:
    """Lines for people."""
    yield f"{len(found.tried)} policies run, {found.stopped} more given up: another was as good for no more"
    if found.is_interrupted:
        yield "interrupted: the best so far"
    yield ""
    yield from table(found.frontier, found.chosen)
    yield ""
    yield from picture(found.tried, found.frontier, found.chosen, found.budget_percent)
    yield ""
    chosen = found.chosen
    if found.is_within:
        yield f"best within {found.budget_percent:g} % misses: {chosen.policy}"
    else:
        yield f"no policy keeps within {found.budget_percent:g} % misses; the fewest has: {chosen.policy}"
    yield f"  {chosen.miss_percent:.2f} % misses, {chosen.replica_minutes:,.1f} replica-min"
    yield from (f"  {line}" for line in confidence(found))
    yield ""
    yield from _manifests(found)


def confidence(found: Findings) -> Iterator[str]:
    """How sure the choice is, in words."""
    if not found.held_out:
        yield "not checked on other traffic"
        return
    yield from _spread(found, found.held_out)
    if not found.is_within or all(check.miss_percent <= found.budget_percent for check in found.held_out):
        return
    if found.sturdy is None:
        yield "not safe, and of what was tried nothing is: search with a smaller --miss-budget"
        return
    point = found.sturdy.point
    yield f"not safe; the cheapest that held on as much traffic again: {point.policy}"
    yield f"  {point.miss_percent:.2f} % misses, {point.replica_minutes:,.1f} replica-min"
    yield from (f"  {line}" for line in _spread(found, found.sturdy.held_out))


def _spread(found: Findings, checks: Sequence[HeldOut]) -> Iterator[str]:
    percents = [check.miss_percent for check in checks]
    minutes = [check.replica_minutes for check in checks]
    within = sum(percent <= found.budget_percent for percent in percents)
    yield f"checked on {found.how}: within the budget on {within} of {len(checks)}"
    yield (
        f"  misses {min(percents):.2f} to {max(percents):.2f} % (mean {sum(percents) / len(percents):.2f} %), "
        f"replica-min {min(minutes):,.1f} to {max(minutes):,.1f} (mean {sum(minutes) / len(minutes):,.1f})"
    )


def _manifests(found: Findings) -> Iterator[str]:
    yield "# KEDA"
    yield _yaml(scaled_object(found.policy, found.workload))
    yield "---"
    yield "# or an HPA, with an adapter that serves the series as an external metric"
    yield _yaml(hpa(found.policy, found.workload))
    lacking = list(missing(found.policy))
    if not lacking:
        yield ""
        yield "both say all of the policy"
        return
    yield ""
    yield "what they cannot say, and the recommender can (docs/recommender.md, form (b) or --apply):"
    yield from (f"  {line}" for line in lacking)
    if found.expressed is not None:
        point = found.expressed
        yield f"  as they stand: {point.miss_percent:.2f} % misses, {point.replica_minutes:,.1f} replica-min"


def _yaml(value: dict[str, Any]) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1000).rstrip()


def as_mapping(found: Findings) -> dict[str, Any]:
    """The findings for `--json`."""
    return {
        "policy": found.chosen.policy,
        "within_budget": found.is_within,
        "miss_budget_percent": found.budget_percent,
        **_row(found.chosen),
        "interrupted": found.is_interrupted,
        "policies_run": len(found.tried),
        "policies_given_up": found.stopped,
        "frontier": [{"policy": point.policy, **_row(point)} for point in found.frontier],
        "held_out": {"how": found.how, "runs": _runs(found.held_out)},
        "sturdier": None
        if found.sturdy is None
        else {
            "policy": found.sturdy.point.policy,
            **_row(found.sturdy.point),
            "held_out": _runs(found.sturdy.held_out),
        },
        "scaled_object": scaled_object(found.policy, found.workload),
        "hpa": hpa(found.policy, found.workload),
        "not_in_manifests": list(missing(found.policy)),
        "manifests_alone": None if found.expressed is None else _row(found.expressed),
    }


def _runs(checks: Sequence[HeldOut]) -> list[dict[str, Any]]:
    return [
        {
            "seed": check.seed,
            "requests": check.requests,
            "slo_misses": check.misses,
            "slo_miss_percent": round(check.miss_percent, 6),
            "replica_minutes": round(check.replica_minutes, 6),
        }
        for check in checks
    ]


def _row(point: Point) -> dict[str, Any]:
    return {
        "slo_misses": point.misses,
        "slo_miss_percent": round(point.miss_percent, 6),
        "replica_minutes": round(point.replica_minutes, 6),
    }
