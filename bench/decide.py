"""CPU time of one evaluation of the HPA layer, in microseconds, the least of a few runs.

    python bench/decide.py

A queue policy must stay under 1 ms; cpu over 1,000 Pods is shown beside it. The log is as full as a window of an hour
with an evaluation each 15 s leaves it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from infscale.core.decide import decide_hpa
from infscale.core.observation import Measurement, Observation, Pod, PodSample
from infscale.core.policy import (
    Behavior,
    MetricTarget,
    Policy,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    Source,
    TargetType,
)
from infscale.core.state import Recommendation, ScaleEvent, State

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size

RUNS, EACH = 5, 200
LIMIT_US = 1000
REPLICAS = 1000


def cpu_us(policy: Policy, observation: Observation, state: State, each: int = EACH) -> float:
    """CPU time of one evaluation in microseconds, the least of RUNS means."""
    means = []
    for _ in range(RUNS):
        before = time.process_time()
        for _ in range(each):
            decide_hpa(policy, observation, state)
        means.append((time.process_time() - before) / each)
    return 1e6 * min(means)


def measure(each: int = EACH) -> tuple[float, float]:
    """CPU microseconds of an evaluation of a queue policy, and of cpu."""
    down = ScalingRules((ScalingPolicy(PolicyType.PODS, 1, 60),), stabilization_window_s=3600)
    behavior = Behavior(scale_down=down)
    log = tuple(Recommendation(REPLICAS, -15.0 * age) for age in range(240))
    events = tuple(ScaleEvent(1, -15.0 * age) for age in range(4))
    state = State(log, events, events)

    queue = MetricTarget(Source.EXTERNAL, TargetType.AVERAGE_VALUE, 24_000, "queue")
    items = Measurement(samples_milli=tuple(30_000 for _ in range(REPLICAS)))
    queue_us = cpu_us(Policy((queue,), behavior=behavior), Observation(0.0, REPLICAS, REPLICAS, (items,)), state, each)

    cpu = MetricTarget(Source.RESOURCE, TargetType.UTILIZATION, 50, resource="cpu")
    pods = tuple(Pod(f"p{number}", requests_milli=(("main", 1000),)) for number in range(REPLICAS))
    samples = tuple(PodSample(pod.name, (("main", 600),), time_s=0.0) for pod in pods[1:])
    measured = Observation(0.0, REPLICAS, REPLICAS, (Measurement(pod_samples=samples),), pods)
    return queue_us, cpu_us(Policy((cpu,), behavior=behavior), measured, state, each // 10)


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each policy."""
    queue_us, pods_us = measure(size.pick(20, EACH))
    return [
        Row(f"CPU of the HPA layer, queue, {REPLICAS:,} items", "µs", queue_us, at_most=LIMIT_US),
        Row(f"CPU of the HPA layer, cpu, {REPLICAS:,} Pods", "µs", pods_us),
    ]


def main() -> int:
    """Print a line per policy; exit status 1 when the queue policy is over its limit."""
    queue_us, pods_us = measure()
    print(f"queue, {REPLICAS} items       {queue_us:8.0f} us CPU (limit {LIMIT_US} us)")
    print(f"cpu, {REPLICAS} Pods          {pods_us:8.0f} us CPU")
    return 0 if queue_us < LIMIT_US else 1


if __name__ == "__main__":
    sys.exit(main())
