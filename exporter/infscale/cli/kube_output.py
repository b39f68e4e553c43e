"""What `infscale kube` prints of a turn: the workload, a row for each Pod, the decision, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator

from infscale.cli.sources import cell, whole
from infscale.cli.table import aligned
from infscale.core.grammar import describe
from infscale.core.scaling import ScalePolicy
from infscale.errors import printable
from infscale.kube_command import Turn
from infscale.pod_pages import PodSeen

_HEADINGS = ("POD", "READY", "ENGINE", "STATE", "INFLIGHT", "RUNNING", "WAITING", "KV", "TOKENS/S", "CPU")


def as_text(policy: ScalePolicy, turn: Turn, *, explain: bool) -> Iterator[str]:
    """The lines of one turn."""
    look, decision = turn.look, turn.decision
    ready = f"ready with metrics {look.ready_with_metrics}"
    yield f"{look.workload}: spec.replicas {look.workload.spec_replicas}, pods {len(look.pods)}, {ready}"
    if look.pods:
        rows = [[cell(value) for value in _row(seen)] for seen in look.pods]
        yield from aligned([list(_HEADINGS), *rows], right=range(4, len(_HEADINGS)))
    change = f"current {decision.current} -> desired {decision.desired}"
    yield f"{describe(policy)}: {change} ({decision.direction}; {decision.reason.value})"
    if explain:
        yield from (f"  {number}. {printable(step.words)}" for number, step in enumerate(decision.steps, 1))
    if turn.change:
        yield outcome_of(turn)


def outcome_of(turn: Turn) -> str:
    """What came of a change, in one line."""
    decision = turn.decision
    change = f"{turn.look.workload} from {decision.current} to {decision.desired}"
    if turn.scaled is None:
        return f"would scale {change}: nothing is changed without --apply"
    if turn.scaled.applied:
        return f"scaled {change}"
    if turn.scaled.part_way is not None:
        change = f"{turn.look.workload} from {decision.current} to {turn.scaled.part_way}"
        return f"scaled {change}, {decision.desired} was decided"
    return f"not scaled: {turn.look.workload} stays at {decision.current}, {decision.desired} was decided"


def _row(seen: PodSeen) -> tuple[object, ...]:
    pod, replica = seen.pod, seen.replica
    ready = "leaving" if pod.deleting else {"True": "yes", None: "no"}.get(pod.ready, "no")
    moved = (seen.rates.tokens_per_second, seen.rates.cpu_ratio)
    values = (replica.inflight, replica.running, replica.waiting, replica.kv)
    short = [None if value is None else whole(round(value, 6)) for value in moved]
    return (pod.name, ready, seen.engine or None, replica.state, *map(whole, values), *short)
