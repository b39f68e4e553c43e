"""From a sweep over concurrencies to the target per replica: where more requests at once no longer bring more tokens.

`infscale load --sweep 1,2,4,...` runs the levels; this is the arithmetic, without any socket.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

NEAR_BEST = 0.9
"""A level with this share of the best throughput is as good: what is above it mostly waits longer. Not nearer to 1: at
exactly as many requests as slots, a slot idles for a few percent of the time while its client asks again, and a window
holds no whole number of the clients' common rounds, which is 2 % in 16 s of rounds of 1.3 s with 0.3 s of prefill."""
LATE_SHARE = 0.05
"""More late requests than this break the SLO: it is held at the 95th percentile."""
TARGET_SHARE = 0.75
"""Of the knee. The HPA acts from 1.1 x target on (its tolerance), that is 0.83 of the knee; the rest is for the
requests that come while a new replica starts."""


@dataclass(frozen=True)
class Level:
    """What one concurrency gave.

    Attributes:
        concurrency: requests at once.
        output_tokens_per_s: throughput.
        ttft_p95_s: None without any first token.
        late_share: of the requests whose first token missed the SLO, failed ones included; 0 to 1.
        errors: requests that failed.
    """

    concurrency: int
    output_tokens_per_s: float
    ttft_p95_s: float | None
    late_share: float
    errors: int

    @property
    def holds(self) -> bool:
        """Whether the SLO holds here and nothing fails."""
        return self.late_share <= LATE_SHARE and not self.errors and self.output_tokens_per_s > 0


@dataclass(frozen=True)
class Knee:
    """The result of a sweep.

    Attributes:
        concurrency: the knee; None if not even the lowest level holds.
        target: requests per replica to scale on; None without a knee.
        why: the reasoning, sentences for a person.
    """

    concurrency: int | None
    target: int | None
    why: tuple[str, ...]


def find_knee(levels: Sequence[Level], slo_ttft_s: float) -> Knee:
    """Return the knee of levels in rising order: the least one that holds and has nearly the best throughput.

    Args:
        levels: at least one.
        slo_ttft_s: infinite where there is none; the levels are judged already, this is for the words.
    """
    held = list(takewhile(lambda level: level.holds, levels))
    broken = levels[len(held)] if len(held) < len(levels) else None
    if not held:
        return Knee(None, None, (f"{_breaks(levels[0], slo_ttft_s)}: there is no knee to scale on.",))
    best = max(level.output_tokens_per_s for level in held)
    knee = next(level for level in held if level.output_tokens_per_s >= NEAR_BEST * best)
    why = [
        f"{knee.concurrency} requests at once give {knee.output_tokens_per_s:,.0f} output tokens/s, "
        f"the least level within {1 - NEAR_BEST:.0%} of the best ({best:,.0f})."
    ]
    if broken is not None:
        why.append(f"{_breaks(broken, slo_ttft_s)}.")
    elif knee is levels[-1]:
        why.append("Throughput still grew at the largest level: sweep further for the true knee.")
    target = max(1, math.floor(TARGET_SHARE * knee.concurrency))
    why.append(
        f"Target {target} is {TARGET_SHARE:.0%} of it: the HPA's tolerance lets the load rise to 1.1 x target before "
        "it acts, and more comes while a new replica starts. Take less where traffic grows fast or starts take long."
    )
    return Knee(knee.concurrency, target, tuple(why))


def _breaks(level: Level, slo_ttft_s: float) -> str:
    """What is wrong at a level."""
    at = f"At {level.concurrency} at once"
    if level.errors:
        return f"{at} {level.errors} requests failed"
    if level.late_share > LATE_SHARE:
        return f"{at} {level.late_share:.0%} of the first tokens come after {slo_ttft_s:g} s"
    return f"{at} no token came"
