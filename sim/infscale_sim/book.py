"""What the replicas of a run share, and what one of them shows: plain records around the hot loop.

`infscale_sim.cluster` makes the `Book`, the replicas write into it; `infscale_sim.fleet` reads the `Gauges`.
"""

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass

NEVER = math.inf
"""The time of what has not happened."""


@dataclass(frozen=True, slots=True)
class Book:
    """What the replicas of a run share: the requests, and when each got its first and its last token.

    Attributes:
        arrival_s, prompt, output: when each arrives, and its tokens.
        first_s, done_s: NEVER where it has not come; may lie ahead of the simulated time, since both are known before.
    """

    arrival_s: Sequence[float]
    prompt: Sequence[int]
    output: Sequence[int]
    first_s: MutableSequence[float]
    done_s: MutableSequence[float]


@dataclass(frozen=True, slots=True)
class Gauges:
    """What a replica's metrics page says at an instant.

    Attributes:
        running, waiting: requests.
        kv: share of the KV cache in use.
        generation_tokens, prompt_tokens: counters.
        running_s, busy_s: the time integrals of `running` and of whether anything ran, since it was ready.
    """

    running: int
    waiting: int
    kv: float
    generation_tokens: int
    prompt_tokens: int
    running_s: float
    busy_s: float
