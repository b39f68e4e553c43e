"""The policies of a case: what infscale does without tuning, its variants, and grids of the others.

Targets follow from the replica and the mean request by the arithmetic that `infscale load --sweep` has for a measured
engine, so that no target was looked up in the trace's results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from infscale_sim.hardware import Hardware
from infscale_sim.load_sweep import NEAR_BEST, TARGET_SHARE
from infscale_sim.traffic import Requests

DOWN = "down=1/60,downwindow=300"
"""What infscale's documents advise for the way down: a window of 300 s, then one replica a minute."""
BESIDE_WORK = 1.3
"""Of the target: the queue's beside `work`, which keeps the replicas that steady traffic needs, so that the queue only
has to see what piles up. Chosen on these traces: 1 keeps a third too much on Mooncake's, 1.5 misses 1.3 % on m-large.
"""
HPA_TARGETS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
HPA_CPU = (25, 30, 35, 40)
KPA_TARGETS = (0.35, 0.7)
"""Of the target. 0.7: Knative's target utilisation; half of it, since its windows are short."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy on the board.

    Attributes:
        family: whose it is: `infscale`, `signals` (infscale on one other signal), `hpa`, `keda`, `kpa`, `static`.
        policy: its text.
        is_fixed: it is what infscale advises before anything is known of the trace; the goal is judged by it.
        trouble: of `troubles.TROUBLES`; empty: none.
    """

    family: str
    policy: str
    is_fixed: bool = False
    trouble: str = ""


def knee_requests(hardware: Hardware, requests: Requests) -> int:
    """The least number of requests at once with nearly the best throughput, for requests of the mean lengths."""
    prompt, output = max(1.0, fmean(requests.prompt_tokens)), max(1.0, fmean(requests.output_tokens))
    most = max(1, min(hardware.slots, int(hardware.kv_tokens / (prompt + output))))

    def per_s(batch: int) -> float:
        step_s = hardware.decode_step_s(batch, prompt + output / 2)
        return batch / (batch * prompt * hardware.prefill_token_s + (output - 1) * step_s)

    best = max(map(per_s, range(1, most + 1)))
    return next(batch for batch in range(1, most + 1) if per_s(batch) >= NEAR_BEST * best)


def target_requests(hardware: Hardware, requests: Requests) -> int:
    """The target per replica that follows from the knee."""
    return max(1, math.floor(TARGET_SHARE * knee_requests(hardware, requests)))


def infscale(target: int) -> list[Entry]:
    """The advice first: work for what is steady, the queue for what piles up; each alone, and the queue's helpers."""
    half, twice = max(1, target // 2), 2 * target
    return [
        Entry("infscale", f"work:learned+queue:{round(BESIDE_WORK * target)},{DOWN}", is_fixed=True),
        Entry("infscale", f"work:learned+queue:{twice},{DOWN}"),
        Entry("infscale", f"work:learned+queue:{target},{DOWN}"),
        Entry("infscale", f"queue:{target},{DOWN}"),
        Entry("infscale", f"queue:{target},lookahead=90,{DOWN}"),
        Entry("infscale", f"queue:{target},lookahead=auto,{DOWN}"),
        Entry("infscale", f"queue:{target},guard=0.85,{DOWN}"),
        Entry("infscale", f"work:learned,{DOWN}"),
        Entry("infscale", f"queue:{half},{DOWN}"),
    ]


def signals(ttft_s: float) -> list[Entry]:
    """The queue alone without what runs, and the time to first token, at half the SLO."""
    return [Entry("signals", f"waiting:2,{DOWN}"), Entry("signals", f"ttft:{ttft_s / 2:g},{DOWN}")]


def hpa(target: int, shares: Iterable[float] = HPA_TARGETS, cpu: Iterable[int] = HPA_CPU) -> list[Entry]:
    """The plain HPA with its default behaviour: on the queue at shares of the target, and on CPU."""
    targets = sorted({max(1, round(target * share)) for share in shares})
    return [*(Entry("hpa", f"hpa:queue:{value}") for value in targets), *(Entry("hpa", f"hpa:cpu:{n}") for n in cpu)]


def kpa(target: int) -> list[Entry]:
    """Knative with its default windows."""
    return [Entry("kpa", f"kpa:queue:{max(1, round(target * share))}") for share in KPA_TARGETS]


def static(first: int, last: int) -> list[Entry]:
    """Fixed counts; the least that keeps within the budget is the best in hindsight."""
    return [Entry("static", f"static:{count}") for count in range(first, last + 1)]
