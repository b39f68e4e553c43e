"""Work: tokens per second over what one replica can do.

Queue depth does not see it: with many replicas batches are small and latency is low, so concurrency reads low while the
traffic needs them all. The rates come from counters that the state keeps; `core.signals` proposes by them, `core.guard`
holds a scale-down by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infscale.core.decision import Invalid, Proposal, Reason
from infscale.core.demand import View, fill, usable
from infscale.core.memory import Mark, Memory, ScaleState
from infscale.core.numbers import ratio, whole_up
from infscale.core.quantiles import percentile
from infscale.core.replicas import Replica
from infscale.core.scaling import MetricName, ScalePolicy

RATE_S = 60.0
MARK_SPACING_S = 12.0
"""Marks closer than this are thinned: six of them and the latest read span the 60 s."""

SHARE = 0.85
"""How much of its capacity a replica is meant to carry: beyond the knee latency grows faster than throughput."""

MOST_LEARNED = 256
MOST_LEARNED_AT_ONCE = 16
_LEARN_S = 10.0
_LEARNED_QUANTILE = 0.95


@dataclass(frozen=True, slots=True)
class Load:
    """What the replicas carry.

    Attributes:
        tokens_per_s: the sum over the replicas with a rate; prompt tokens weighted.
        given: how many have a rate: counters at two reads with no restart between.
        expected: how many should.
        counting: how many have counters at all.
    """

    tokens_per_s: float
    given: int
    expected: int
    counting: int

    def filled(self, each: float) -> float:
        """With `each` tokens per second for every replica without a rate, as `demand.fill` has it."""
        return fill(self.tokens_per_s, self.expected - self.given, each, self.expected)


def mark_of(replica: Replica, now_s: float) -> Mark | None:
    """The counters of a replica at this read; None where it has none."""
    generation, prompt = replica.generation_tokens, replica.prompt_tokens
    if not usable(generation) and not usable(prompt):
        return None
    waiting = usable(replica.waiting) and replica.waiting > 0
    return Mark(now_s, generation if usable(generation) else 0.0, prompt if usable(prompt) else 0.0, waiting)


def marked(marks: tuple[Mark, ...], mark: Mark) -> tuple[Mark, ...]:
    """The marks with the latest one added, as far back as the youngest that is 60 s old.

    A counter that fell is a restart: what was before it is dropped.
    """
    kept = [old for old in marks if old.time_s < mark.time_s]
    if kept and fell(kept[-1], mark):
        kept = []
    if len(kept) >= 2 and kept[-1].time_s - kept[-2].time_s < MARK_SPACING_S:
        thinned = kept.pop()
        mark = Mark(mark.time_s, mark.generation_tokens, mark.prompt_tokens, mark.waiting and thinned.waiting)
    kept.append(mark)
    while len(kept) > 2 and mark.time_s - kept[1].time_s >= RATE_S:
        kept.pop(0)
    return tuple(kept)


def fell(before: Mark, after: Mark) -> bool:
    """Whether a counter went down, which only a restart does."""
    return after.generation_tokens < before.generation_tokens or after.prompt_tokens < before.prompt_tokens


def rate_of(marks: tuple[Mark, ...], prompt_weight: float) -> float | None:
    """Tokens per second over the marks, about the last 60 s; None with fewer than two."""
    if len(marks) < 2:
        return None
    first, last = marks[0], marks[-1]
    generation = last.generation_tokens - first.generation_tokens
    prompt = last.prompt_tokens - first.prompt_tokens
    return (generation + prompt * prompt_weight) / (last.time_s - first.time_s)


def load_of(policy: ScalePolicy, view: View, memories: Mapping[str, Memory], now_s: float) -> Load:
    """The load of the serving replicas whose counters were read now."""
    current = [memory.marks for memory in _memories(view.serving, memories) if _read_at(memory, now_s)]
    rates = [rate for marks in current if (rate := rate_of(marks, policy.prompt_weight)) is not None]
    return Load(sum(rates), len(rates), view.expected, len(current))


def learned(policy: ScalePolicy, view: View, state: ScaleState, now_s: float) -> tuple[float, ...]:
    """The learned loads with those of the replicas that had waiting requests all through the time of their rate.

    Only then was the replica the limit: a rate over a minute of which it idled the first half would be half of what it
    can do. A large fleet adds 16 of its loads at once, evenly by rank, so that a minute of it does not fill the memory.
    """
    loads = sorted(
        rate
        for memory in _memories(view.serving, state.replicas)
        if _read_at(memory, now_s)
        and memory.marks[-1].time_s - memory.marks[0].time_s >= _LEARN_S
        and all(mark.waiting for mark in memory.marks)
        and (rate := rate_of(memory.marks, policy.prompt_weight))
    )
    if len(loads) > MOST_LEARNED_AT_ONCE:
        last = len(loads) - 1
        loads = [loads[index * last // (MOST_LEARNED_AT_ONCE - 1)] for index in range(MOST_LEARNED_AT_ONCE)]
    return (*state.learned, *loads)[-MOST_LEARNED:]


def knee_of(policy: ScalePolicy, loads: tuple[float, ...]) -> float | None:
    """Tokens per second that one replica carries: the work target, `knee=`, or learned; None while unknown."""
    given = next((goal.target for goal in policy.goals if goal.metric is MetricName.WORK), None)
    if given is not None:
        return given
    if policy.knee is not None:
        return policy.knee
    return percentile(loads, _LEARNED_QUANTILE) if loads else None


def propose_work(load: Load, knee: float | None) -> Proposal | Invalid | None:
    """ceil(load / (capacity * 0.85)); None while the capacity is unknown, which is no recommendation."""
    if load.given == 0:
        lacks = "a second read of the token counters" if load.counting else "token counters"
        return Invalid(Reason.NO_SAMPLES, f"work: no replica has {lacks}")
    if knee is None:
        return None
    tokens_per_s = load.filled(knee * SHARE)
    replicas = whole_up(ratio(tokens_per_s, knee * SHARE))
    words = f"work: {tokens_per_s:.6g} tokens/s over {SHARE} of {knee:.6g} per replica, proposes {replicas}"
    return Proposal(replicas, False, words, 0)


def _memories(replicas: Iterable[Replica], memories: Mapping[str, Memory]) -> Iterable[Memory]:
    return (memories[replica.name] for replica in replicas if replica.name in memories)


def _read_at(memory: Memory, now_s: float) -> bool:
    return bool(memory.marks) and memory.marks[-1].time_s == now_s
