"""Run files of HPA test vectors through the decision core: `python -m tests.hpa_vectors FILE...`.

Each row names a kind, an input and what the Kubernetes controller makes of it; the file's own header describes them.
Every failure is printed with its id, the last line is `N passed, N failed`. Exit status: 0 all passed, 1 a row failed,
2 a file cannot be used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from infscale.core.decide import decide_hpa
from infscale.core.decision import Invalid
from infscale.core.hpa import propose
from infscale.core.limits import (
    changed_within,
    limit,
    longest_period_s,
    scale_down_limit,
    scale_up_limit,
    store_event,
)
from infscale.core.observation import Observation, PodSample
from infscale.core.pods import group_pods
from infscale.core.policy import DEFAULT_SCALE_DOWN, DEFAULT_SCALE_UP, Behavior
from infscale.core.stabilise import with_behavior, without_behavior
from infscale.core.state import State
from tests.hpa_rows import (
    NOW_S,
    Row,
    ago,
    behavior_of,
    controller_of,
    events_of,
    given,
    log_of,
    metric_of,
    pods_of,
    policy_of,
    rules_of,
)

FORMAT = "infscale-hpa-vectors/"

Result = dict[str, Any]


class UnusableFileError(Exception):
    """A file that is not one of vectors."""


# ---- the kinds -------------------------------------------------------------------------------------------------------


def replica_calc(row: Row, semantics: str, version: tuple[int, int] | None = None) -> Result:
    """One metric to one proposal."""
    metric, measurement = metric_of(row)
    fallback = controller_of(row).tolerance
    up, down = given(row, "tolerance_up", fallback), given(row, "tolerance_down", fallback)
    behavior = Behavior(replace(DEFAULT_SCALE_UP, tolerance=up), replace(DEFAULT_SCALE_DOWN, tolerance=down))
    policy = policy_of(row, [metric], behavior)
    if version is not None:
        policy = replace(policy, controller=replace(policy.controller, version=version, tolerance=up))
    replicas = row["current_replicas"]
    observation = Observation(NOW_S, replicas, replicas, (measurement,), pods_of(row, semantics))
    outcome = propose(metric, measurement, observation, policy)
    if isinstance(outcome, Invalid):
        return {"error_contains": outcome.words}
    result: Result = {"replicas": outcome.replicas}
    if outcome.utilization_percent is None:
        return {**result, "usage_milli": outcome.usage_milli}
    return {**result, "utilization_percent": outcome.utilization_percent, "raw_milli": outcome.usage_milli}


def groups(row: Row, semantics: str) -> Result:
    """Pods by how they count."""
    samples = {
        pod: PodSample(pod, (("", sample.get("value")),), ago(sample.get("ts_age_s")), given(sample, "window_s", 60))
        for pod, sample in (row.get("samples") or {}).items()
    }
    found = group_pods(pods_of(row, semantics), samples, row.get("resource") or "", NOW_S, controller_of(row))
    return {
        "ready": found.ready,
        "unready": sorted(found.unready),
        "missing": sorted(found.missing),
        "ignored": sorted(found.ignored),
    }


def clamp(row: Row, _semantics: str) -> Result:
    """The limit without `behavior`."""
    step, condition = limit(policy_of(row), State(), NOW_S, row["current_replicas"], row["desired_replicas"])
    return {"replicas": step.after, "reason": condition.reason}


def rate_limit(row: Row, _semantics: str) -> Result:
    """The limit with `behavior`."""
    state = State((), events_of(row.get("scale_up_events")), events_of(row.get("scale_down_events")))
    policy = policy_of(row, behavior=behavior_of(row))
    step, condition = limit(policy, state, NOW_S, row["current_replicas"], row["desired_replicas"])
    return {"replicas": step.after, "reason": condition.reason}


def up_limit(row: Row, _semantics: str) -> Result:
    """What the up policies allow."""
    events = events_of(row.get("scale_up_events")), events_of(row.get("scale_down_events"))
    rules = rules_of(row.get("rules"), DEFAULT_SCALE_UP)
    return {"limit": scale_up_limit(row["current_replicas"], *events, rules, NOW_S)}


def down_limit(row: Row, _semantics: str) -> Result:
    """What the down policies allow."""
    events = events_of(row.get("scale_up_events")), events_of(row.get("scale_down_events"))
    rules = rules_of(row.get("rules"), DEFAULT_SCALE_DOWN)
    return {"limit": scale_down_limit(row["current_replicas"], *events, rules, NOW_S)}


def stabilised_by_flag(row: Row, _semantics: str) -> Result:
    """Stabilisation without `behavior`."""
    window_s = controller_of(row).downscale_stabilization_s
    replicas, log = without_behavior(log_of(row.get("recommendations")), NOW_S, row["desired_replicas"], window_s)
    return {
        "replicas": replicas,
        "log_length": len(log),
        "recommendations_after": [entry.replicas for entry in log],
    }


def stabilised_by_behavior(row: Row, _semantics: str) -> Result:
    """Stabilisation with `behavior`."""
    replicas, log = with_behavior(
        log_of(row.get("recommendations")),
        NOW_S,
        row["current_replicas"],
        row["desired_replicas"],
        given(row, "scale_up_window_s", 0),
        given(row, "scale_down_window_s", controller_of(row).downscale_stabilization_s),
    )
    return {
        "replicas": replicas,
        "log_length": len(log),
        "recommendations_after": [entry.replicas for entry in log],
    }


def stored(row: Row, _semantics: str) -> Result:
    """The history of one direction after a change; without rules there is no `behavior` and nothing is stored."""
    events = events_of(row.get("events"))
    before = changed_within(row["query_period_s"], events, NOW_S)
    if row.get("rules") is None:
        period_s = None
    else:
        rules = rules_of(row["rules"], DEFAULT_SCALE_UP)
        events, period_s = store_event(events, row["change"], rules, NOW_S), longest_period_s(rules)
    after = [
        {"change": event.change, "outdated": period_s is not None and NOW_S - event.time_s > period_s}
        for event in events
    ]
    return {"change_in_query_period_before": before, "events_after": after}


def reconcile(row: Row, semantics: str) -> Result:
    """One whole evaluation."""
    pairs = [metric_of(metric) for metric in row.get("metrics") or ()]
    policy = policy_of(row, [metric for metric, _ in pairs], behavior_of(row.get("behavior")))
    known = row.get("recommendations")
    state = State(
        recommendations=None if known is None else log_of(known),
        scale_up_events=events_of(row.get("scale_up_events")),
        scale_down_events=events_of(row.get("scale_down_events")),
        scaled_to_zero=bool(row.get("scaled_to_zero_condition")),
    )
    spec = row["spec_replicas"]
    observation = Observation(
        NOW_S,
        spec,
        given(row, "status_replicas", spec),
        tuple(measured for _, measured in pairs),
        pods_of(row, semantics),
    )
    decision, _ = decide_hpa(policy, observation, state)
    limiting = decision.condition("ScalingLimited")
    return {
        "status_desired_replicas": decision.replicas,
        "scale_updated": decision.replicas != decision.current,
        "scaling_limited_reason": None if limiting is None else limiting.reason,
    }


KINDS: dict[str, Callable[[Row, str], Result]] = {
    "replica_calc": replica_calc,
    "group_pods": groups,
    "convert_rules": clamp,
    "scale_up_limit": up_limit,
    "scale_down_limit": down_limit,
    "stabilize_no_behavior": stabilised_by_flag,
    "stabilize_behavior": stabilised_by_behavior,
    "rate_limit": rate_limit,
    "store_scale_event": stored,
    "reconcile": reconcile,
}


# ---- the runner ------------------------------------------------------------------------------------------------------


def check(row: Row) -> list[str]:
    """What differs between the core's result and the row's expectation, a line each; none if the row passes."""
    kind, semantics = row.get("kind"), str(row.get("semantics", "all"))
    run = KINDS.get(str(kind))
    if run is None:
        return [f"kind {kind!r} is unknown: expected one of {', '.join(KINDS)}"]
    try:
        differences = compare(row["expect"], run(row["input"], semantics))
        if "expect_le_1_32" in row and kind == "replica_calc":
            older = compare(row["expect_le_1_32"], replica_calc(row["input"], semantics, version=(1, 32)))
            differences += [f"up to 1.32: {difference}" for difference in older]
    except Exception as fault:  # a row that breaks the core is a failed row, and the others still count
        return [f"{type(fault).__name__}: {fault}"]
    return differences


def compare(expect: Row, result: Result) -> list[str]:
    """Every key of the expectation that the result does not meet; of an error only that it is one."""
    if "error_contains" in expect or "error_contains" in result:
        if "error_contains" in expect and "error_contains" in result:
            return []
        return [f"expected {json.dumps(expect)}, got {json.dumps(result)}"]
    return [
        f"{key}: expected {json.dumps(value)}, got {json.dumps(result.get(key))}"
        for key, value in expect.items()
        if key not in result or _ordered(key, value) != result[key]
    ]


def _ordered(key: str, value: Any) -> Any:
    return sorted(value) if key in ("unready", "missing", "ignored") else value


def load(path: Path) -> list[Row]:
    """The rows of a file.

    Raises:
        UnusableFileError: if it cannot be read or is not a file of vectors.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise UnusableFileError(f"{path}: {fault}") from None
    rows = data.get("vectors") if isinstance(data, dict) else None
    schema = data.get("schema") if isinstance(data, dict) else None
    kind = schema.get("format", FORMAT) if isinstance(schema, dict) else FORMAT
    if not isinstance(rows, list) or not str(kind).startswith(FORMAT):
        raise UnusableFileError(f"{path}: expected an object with a list `vectors` in the format {FORMAT}1")
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or not all(isinstance(row.get(key), dict) for key in ("input", "expect")):
            raise UnusableFileError(f"{path}: vectors[{index}]: expected an object with kind, input and expect")
    return rows


def main(arguments: Sequence[str]) -> int:
    """Run the files; the exit status."""
    if not arguments or any(argument.startswith("-") for argument in arguments):
        print("usage: python -m tests.hpa_vectors FILE...", file=sys.stderr)
        return 2
    try:
        rows = [row for name in arguments for row in load(Path(name))]
    except UnusableFileError as fault:
        print(f"hpa_vectors: {fault}", file=sys.stderr)
        return 2
    failed = 0
    for index, row in enumerate(rows):
        differences = check(row)
        failed += bool(differences)
        for difference in differences:
            print(f"{row.get('id', f'vectors[{index}]')}: {difference}")
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
