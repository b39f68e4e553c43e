"""The consolidation guard: a scale-down goes only as far as the replicas left can carry the present work.

It looks at tokens per second, not at the demand that the proposal came from, which the proposal always passes. Without
it a fleet whose batches are small falls, overloads and rises again (2-1-2). Used by `core.layer`, off without `guard=`.
"""

from __future__ import annotations

from infscale.core.decision import Reason, Step
from infscale.core.numbers import ratio, whole_up
from infscale.core.work import Load


def guarded(share: float, load: Load, knee: float | None, current: int, replicas: int) -> Step:
    """The count that a scale-down from `current` may go to, at most `share` of the knee rate on each replica left.

    A replica without a rate counts as carrying just that. Without a knee, or where no engine counts its tokens, it does
    nothing and says so.
    """
    if knee is None or not load.counting:
        lacks = "the knee is not learned yet" if load.counting else "no replica counts its tokens"
        return Step("guard", replicas, replicas, None, f"{replicas}: the guard does nothing, {lacks}")
    tokens_per_s = load.filled(share * knee)
    needed = whole_up(ratio(tokens_per_s, share * knee))
    after = max(replicas, min(current, needed))
    words = f"{tokens_per_s:.6g} tokens/s need {needed} at {share:.6g} of {knee:.6g} each"
    if after == replicas:
        return Step("guard", replicas, replicas, None, f"{replicas}: {words}")
    return Step("guard", replicas, after, Reason.GUARD, f"{after} instead of {replicas}: {words}")
