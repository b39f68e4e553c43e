"""CPU time and memory of whole decisions over a fleet of 1,000 replicas.

    python bench/decide_fleet.py

A queue policy must stay under 1 ms of CPU, with a log as full as a window of 5 minutes leaves it; policies that
remember counters are shown beside it. After 100,000 evaluations of a fleet that changes all the time, no more memory
may be held than after 1,000.
"""

from __future__ import annotations

import gc
import json
import math
import resource
import sys
import time
from pathlib import Path

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import ScaleState
from infscale.core.memory_json import to_json
from infscale.core.replicas import Buckets, Fleet, Held, Phase, Replica
from infscale.core.scaling import ScalePolicy

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size

REPLICAS, RUNS, EACH = 1000, 5, 40
LIMIT_US = 1000
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


def cpu_us(policy: ScalePolicy) -> float:
    """CPU time of one decision in microseconds, the least of RUNS means; making the fleet is not counted."""
    looks = [look(step, REPLICAS) for step in range(EACH)]
    means = []
    for _ in range(RUNS):
        state = ScaleState()
        for fleet in looks[: EACH // 2]:
            _, state = decide(policy, fleet, state)
        before = time.process_time()
        for fleet in looks[EACH // 2 :]:
            _, state = decide(policy, fleet, state)
        means.append((time.process_time() - before) / (EACH - EACH // 2))
    return 1e6 * min(means)


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
    first = POLICIES[0]
    found = [
        Row(f"CPU of a decision, {text}, {REPLICAS:,} replicas", "µs", cpu_us(parse_policy(text)),
            at_most=LIMIT_US if text == first else None)
        for text in (POLICIES[:1] if size is Size.TINY else POLICIES)
    ]  # fmt: skip
    late = size.pick(2 * EARLY, LATE // 20)
    (early, _), (grown, _) = held(late)
    what = f"state after {late:,} evaluations, to that after {EARLY:,}"
    return [*found, Row(what, "times", grown / early, at_most=GROWTH)]


def main() -> int:
    """Print a line per policy and one of memory; exit status 1 where a limit is passed."""
    queue_us = 0.0
    for text in POLICIES:
        spent_us = cpu_us(parse_policy(text))
        queue_us = queue_us or spent_us
        print(f"{text:24} {REPLICAS} replicas {spent_us:8.0f} us CPU")
    print(f"limit of queue:24 {LIMIT_US} us: {'kept' if queue_us < LIMIT_US else 'passed'}")
    (early, early_kib), (late, late_kib) = held()
    # What is learned and waited for varies by some entries; the process may round up by a block of its allocator.
    bounded = late <= GROWTH * early and late_kib <= early_kib + SLACK_KIB
    print(
        f"after {EARLY} evaluations a state of {early} characters in {early_kib} KiB, after {LATE} {late} in {late_kib}"
    )
    return 0 if queue_us < LIMIT_US and bounded else 1


if __name__ == "__main__":
    sys.exit(main())
