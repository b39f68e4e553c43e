"""CPU time and memory of whole decisions over a fleet of 1,000 replicas.

    python bench/decide_fleet.py

A queue policy must stay under 1 ms of CPU, with a log as full as a window of 5 minutes leaves it; policies that
remember counters are shown too. Beside them is the HPA's formula alone over the same replicas. After 5,000 evaluations
of a fleet that changes all the time the state may hold no more than after 1,000; when run alone after 100,000, and the
process no more either.
"""

from __future__ import annotations

import gc
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import ScaleState
from infscale.core.memory_json import to_json
from infscale.core.replicas import Buckets, Fleet, Held, Phase, Replica
from infscale.core.scaling import ScalePolicy

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size, alone, show

REPLICAS, RUNS, EACH = 1000, 5, 40
LIMIT_US = 1000
TARGET = 24
EARLY, LATE = 1_000, 100_000
SLACK_KIB, GROWTH = 1024, 1.1
STEP_S = 15.0
POLICIES = ("queue:24", "queue:24,lookahead=90", "queue:24,min=0", "queue:24+ttft:2", "queue:24,guard=0.85")
BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, math.inf)


def look(step: int, replicas: int) -> Fleet:
    """A fleet at one step: the load swings, one in 50 is silent, one in 100 is starting."""
    seen = []
    for number in range(replicas):
        if (number + step) % 50 == 0:
            seen.append(Replica(f"r{number}", Phase.SILENT))
        elif number % 100 == 99:
            seen.append(Replica(f"r{number}", Phase.STARTING))
        else:
            running, waiting = float((number + step) % 24), float((number + step) % 5)
            counts = tuple(float(step * (bucket + 1)) for bucket in range(len(BOUNDS)))
            seen.append(
                Replica(
                    f"r{number}",
                    Phase.SERVING,
                    running=running,
                    waiting=waiting,
                    inflight=running + waiting,
                    prompt_tokens=900.0 * step,
                    generation_tokens=300.0 * step,
                    ttft=(Buckets(BOUNDS, counts),),
                )
            )
    return Fleet(STEP_S * step, replicas, replicas, replicas=tuple(seen), held=Held(0.0))


def formula(fleet: Fleet) -> int:
    """The HPA's formula for the queue: add up, divide by the target, round up, within a tolerance of 10 % no change."""
    inflight = sum(replica.inflight or 0.0 for replica in fleet.replicas if replica.phase is Phase.SERVING)
    wanted = inflight / TARGET
    return REPLICAS if abs(wanted / REPLICAS - 1.0) <= 0.1 else math.ceil(wanted)


def cpu_us(work: Callable[[Fleet], object], looks: Sequence[Fleet]) -> float:
    """CPU time of the work on one look in microseconds; the first half of them fills the log and does not count."""
    for fleet in looks[: EACH // 2]:
        work(fleet)
    before = time.process_time()
    for fleet in looks[EACH // 2 :]:
        work(fleet)
    return (time.process_time() - before) / (EACH - EACH // 2) * 1e6


def decider(policy: ScalePolicy) -> Callable[[Fleet], None]:
    """A function that decides and remembers."""
    state = ScaleState()

    def work(fleet: Fleet) -> None:
        nonlocal state
        _, state = decide(policy, fleet, state)

    return work


def costs(policies: Sequence[str]) -> Iterator[Row]:
    """A row for each policy: the least of RUNS."""
    looks = [look(step, REPLICAS) for step in range(EACH)]
    alone_us = min(cpu_us(formula, looks) for _ in range(RUNS))
    for text in policies:
        spent_us = min(cpu_us(decider(parse_policy(text)), looks) for _ in range(RUNS))
        limit_us = LIMIT_US if text == POLICIES[0] else None
        what = f"CPU of a decision, {text}, {REPLICAS:,} replicas"
        yield Row(what, "µs", spent_us, "the formula alone", alone_us, at_most=limit_us)


def held(late: int = LATE) -> list[tuple[int, int]]:
    """(characters of the state, most KiB of the process) after EARLY and after `late` evaluations.

    The fleet is small, and its replicas come and go.
    """
    policy = parse_policy("queue:4+work:learned+ttft:1,max=9,lookahead=auto,guard=0.85,uppods=2,downpods=1")
    state, sizes = ScaleState(), []
    for step in range(1, late + 1):
        name = f"r{step // 30}"
        born_s = STEP_S * (30 * (step // 30)) - 1.0
        busy = Replica(
            name, Phase.SERVING, 4.0, float(step % 9), 4.0 + step % 9, prompt_tokens=9.0 * step, created_s=born_s,
            generation_tokens=300.0 * (step % 400), ttft=(Buckets(BOUNDS, (float(step % 100),) * len(BOUNDS)),),
        )  # fmt: skip
        young = Replica(f"s{step}", Phase.STARTING)
        _, state = decide(policy, Fleet(STEP_S * step, 1 + step % 9, replicas=(busy, young)), state)
        if step in (EARLY, late):
            gc.collect()
            most_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            sizes.append((len(json.dumps(to_json(state))), most_kib))
    return sizes


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each policy, and one for what is remembered after a part of LATE evaluations."""
    late = size.pick(2 * EARLY, LATE // 20)
    return [*costs(POLICIES[:1] if size is Size.TINY else POLICIES), growth(held(late), late)[0]]


def growth(sizes: Sequence[tuple[int, int]], late: int) -> list[Row]:
    """How much the state has grown, and the process."""
    (early, early_kib), (grown, grown_kib) = sizes
    since = f"after {late:,} evaluations"
    # What is learned and waited for varies by some entries; the process may round up by a block of its allocator.
    return [
        Row(f"state {since}, to that after {EARLY:,}", "times", grown / early, at_most=GROWTH),
        Row(f"growth of the process {since}", "KiB", grown_kib - early_kib, at_most=SLACK_KIB),
    ]


def main() -> int:
    """Run alone, with more evaluations; a minute."""
    options = alone(__doc__).parse_args()
    grown = growth(held(), LATE)  # first, while the process is small
    return show([*costs(POLICIES), *grown], check=options.check)


if __name__ == "__main__":
    sys.exit(main())
