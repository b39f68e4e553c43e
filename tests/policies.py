"""Random policies, as hypothesis strategies: any that can be written down, none that contradicts itself."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from infscale.core.numbers import MAX_INT32
from infscale.core.policy import (
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    Behavior,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from infscale.core.scaling import AUTO, Goal, MetricName, ScalePolicy

WAKING = (MetricName.QUEUE, MetricName.WAITING, MetricName.RUNNING)

above_0 = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False) | st.integers(1, 2**53)
shares = st.floats(0, 1, exclude_min=True)
targets: dict[MetricName, st.SearchStrategy] = {
    **dict.fromkeys((*WAKING, MetricName.TTFT), above_0),
    MetricName.WORK: above_0 | st.none(),
    MetricName.KV: st.floats(0, 100, exclude_min=True),
    MetricName.CPU: st.integers(1, MAX_INT32),
}
changes = st.builds(
    ScalingPolicy, st.sampled_from(PolicyType), st.integers(1, MAX_INT32), st.just(15) | st.integers(1, 1800)
)
change_lists = st.lists(changes, min_size=1, max_size=3).map(tuple)
tolerances = st.none() | st.just(0.1) | st.floats(0, 10)
selects = st.sampled_from(SelectPolicy)
ups = st.just(DEFAULT_SCALE_UP) | st.builds(
    ScalingRules, st.just(DEFAULT_SCALE_UP.policies) | change_lists, selects, st.integers(0, 3600), tolerances
)
downs = st.just(DEFAULT_SCALE_DOWN) | st.builds(
    ScalingRules,
    st.just(DEFAULT_SCALE_DOWN.policies) | change_lists,
    selects,
    st.none() | st.integers(0, 3600),
    tolerances,
)


@st.composite
def policies(draw: st.DrawFn) -> ScalePolicy:
    """A policy that can be used, with any part of it at its default or not."""
    metrics = draw(st.lists(st.sampled_from(MetricName), min_size=1, max_size=4, unique=True))
    least = draw(st.sampled_from([0, 1]) | st.integers(0, MAX_INT32))
    if not set(metrics) & set(WAKING):
        least = max(1, least)
    bounds: dict[str, Any] = {
        "goals": tuple(Goal(metric, draw(targets[metric])) for metric in metrics),
        "min_replicas": least,
        "max_replicas": draw(st.just(MAX_INT32) | st.integers(max(1, least), MAX_INT32)),
        "behavior": draw(st.none() | st.builds(Behavior, ups, downs)),
        "prompt_weight": draw(st.just(0.1) | st.floats(0, 100)),
        "quantile": draw(st.just(0.95) | st.floats(0, 1, exclude_min=True, exclude_max=True)),
    }
    if draw(st.booleans()):
        return ScalePolicy(**bounds, plain=True)
    return ScalePolicy(
        **bounds,
        lookahead_s=draw(st.sampled_from([0, 90, AUTO]) | st.floats(0, 3600)),
        cooldown_s=draw(st.none() | st.integers(0, MAX_INT32) | st.floats(0, 1e6)),
        coverage=draw(st.just(0.5) | st.floats(0, 1)),
        guard=draw(st.none() | shares),
        knee=draw(st.none() | above_0),
    )
