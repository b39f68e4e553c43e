"""CPU time of one evaluation of the HPA layer, the least of a few runs, against the HPA's formula alone.

    python bench/decide.py

A queue policy must stay under 1 ms; cpu over 1,000 Pods is shown beside it. The log is as full as a window of an hour
with an evaluation each 15 s leaves it. The formula alone adds up, divides and rounds: it knows no unready Pods, no
windows, no steps and no reasons, so that the ratio is their price.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
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

from bench.measure import least_cpu_s
from bench.table import Row, Size, alone, show

RUNS, EACH = 5, 200
LIMIT_US = 1000
REPLICAS = 1000
PEER = "the formula alone"


def formula(usage: float, wanted: float, replicas: int) -> int:
    """The HPA's: as many replicas as bring the usage of each to the target, within its tolerance of 10 % no change."""
    return replicas if abs(usage / wanted - 1.0) <= 0.1 else math.ceil(replicas * usage / wanted)


def queue_alone(samples_milli: Sequence[int], target_milli: int) -> int:
    """The formula for a queue."""
    return formula(sum(samples_milli), target_milli * REPLICAS, REPLICAS)


def cpu_alone(samples: Sequence[PodSample], pods: Sequence[Pod], percent: int) -> int:
    """The formula for cpu, over the Pods that have a sample."""
    requested = {pod.name: sum(milli or 0 for _, milli in pod.requests_milli) for pod in pods}
    wanted = sum(requested[sample.pod] for sample in samples) * percent / 100
    used = sum(milli or 0 for sample in samples for _, milli in sample.values_milli)
    return formula(used, wanted, REPLICAS)


def rows(size: Size = Size.FULL) -> list[Row]:
    """A row for each policy."""
    each = size.pick(20, EACH)
    down = ScalingRules((ScalingPolicy(PolicyType.PODS, 1, 60),), stabilization_window_s=3600)
    behavior = Behavior(scale_down=down)
    log = tuple(Recommendation(REPLICAS, -15.0 * age) for age in range(240))
    events = tuple(ScaleEvent(1, -15.0 * age) for age in range(4))
    state = State(log, events, events)

    queue = Policy((MetricTarget(Source.EXTERNAL, TargetType.AVERAGE_VALUE, 24_000, "queue"),), behavior=behavior)
    items = Measurement(samples_milli=tuple(30_000 for _ in range(REPLICAS)))
    queued = Observation(0.0, REPLICAS, REPLICAS, (items,))

    target = MetricTarget(Source.RESOURCE, TargetType.UTILIZATION, 50, resource="cpu")
    cpu = Policy((target,), behavior=behavior)
    pods = tuple(Pod(f"p{number}", requests_milli=(("main", 1000),)) for number in range(REPLICAS))
    samples = tuple(PodSample(pod.name, (("main", 600),), time_s=0.0) for pod in pods[1:])
    used = Observation(0.0, REPLICAS, REPLICAS, (Measurement(pod_samples=samples),), pods)

    what = "CPU of the HPA layer"
    queue_s = least_cpu_s(lambda: decide_hpa(queue, queued, state), RUNS, each)
    queue_alone_s = least_cpu_s(lambda: queue_alone(items.samples_milli, 24_000), RUNS, each)
    pods_s = least_cpu_s(lambda: decide_hpa(cpu, used, state), RUNS, each // 10)
    pods_alone_s = least_cpu_s(lambda: cpu_alone(samples, pods, 50), RUNS, each // 10)
    return [
        Row(f"{what}, queue, {REPLICAS:,} items", "µs", queue_s * 1e6, PEER, queue_alone_s * 1e6, at_most=LIMIT_US),
        Row(f"{what}, cpu, {REPLICAS:,} Pods", "µs", pods_s * 1e6, PEER, pods_alone_s * 1e6),
    ]


def main() -> int:
    """Run alone."""
    options = alone(__doc__).parse_args()
    return show(rows(), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
