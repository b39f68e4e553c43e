"""The plain flags of `infscale decide` and its like: the same policy as the grammar's, for one metric.

Every flag is a key of the grammar in other words; what is wrong with its value is said with the flag's name.
"""

from __future__ import annotations

from infscale.core.checks import faults
from infscale.core.grammar import allowed, number_in, parse_policy
from infscale.core.scaling import AUTO, Goal, MetricName, ScalePolicy
from infscale.core.settings import NUMBERS, SHORT, TARGETS, Number, Value, number_text, policy_of, spread
from infscale.errors import PolicyError, UsageError

FLAGS = {
    "min": "--min",
    "max": "--max",
    "lookahead": "--lookahead",
    "cooldown": "--zero-cooldown",
    "tolerance": "--tolerance",
    "downwindow": "--down-window",
    "uppods": "--up-pods",
    "uppercent": "--up-percent",
    "downpods": "--down-pods",
    "downpercent": "--down-percent",
}
"""The keys of the grammar that have a flag of their own."""


def policy_from_flags(
    policy: str | None = None,
    *,
    metric: str | None = None,
    target: float | str | None = None,
    min_replicas: float | str | None = None,
    max_replicas: float | str | None = None,
    down_window_s: float | str | None = None,
    zero_cooldown_s: float | str | None = None,
    lookahead_s: float | str | None = None,
    tolerance: float | str | None = None,
    up_pods: float | str | None = None,
    up_percent: float | str | None = None,
    down_pods: float | str | None = None,
    down_percent: float | str | None = None,
) -> ScalePolicy:
    """The policy of a command line, given in the grammar or by plain flags; None is a flag that was not given.

    Args:
        policy: `--policy`, a policy in the grammar.
        metric: one metric's name; `queue` where it is not given.
        target: what one replica should have of it, or `learned` (work).
        min_replicas: the lower bound.
        max_replicas: the upper bound.
        down_window_s: how long a fall has to last, seconds.
        zero_cooldown_s: how long nothing may happen before zero, seconds.
        lookahead_s: how far ahead demand is projected, seconds or `auto`.
        tolerance: how far from the target nothing changes, as a share.
        up_pods: how many replicas may be added within 15 s.
        up_percent: how much may be added within 15 s, percent of the count.
        down_pods: how many replicas may be taken away within 15 s.
        down_percent: how much may be taken away within 15 s, percent of the count.

    Raises:
        UsageError: `--policy` beside other flags, or neither `--policy` nor `--target`.
        PolicyError: a value that cannot be used, or values that contradict each other.
    """
    given: dict[str, float | str | None] = {
        **{"min": min_replicas, "max": max_replicas, "lookahead": lookahead_s, "cooldown": zero_cooldown_s},
        **{"tolerance": tolerance, "downwindow": down_window_s, "uppods": up_pods, "uppercent": up_percent},
        **{"downpods": down_pods, "downpercent": down_percent},
    }
    settings = {key: value for key, value in given.items() if value is not None}
    if policy is not None:
        named = {"--target": target, "--metric": metric}
        beside = [flag for flag, value in named.items() if value is not None] + [FLAGS[key] for key in settings]
        if beside:
            raise UsageError(f"--policy and {', '.join(beside)}: the policy says all of it, give one or the other")
        return parse_policy(policy)
    goal = _goal("queue" if metric is None else metric, 1 if target is None else target)
    if target is None:
        if settings.get("min") in (0, "0"):
            for fault in faults(policy_of((goal,), {"min": 0})):
                raise PolicyError(f"--min 0 with --metric {metric}: {fault.words}")
        raise UsageError("no policy: expected --policy, as --policy queue:24, or --target with the other flags")
    made = policy_of((goal,), spread((key, _setting(key, value)) for key, value in settings.items()))
    for fault in faults(made):
        raise PolicyError(f"{_flag(fault.key, settings)}: {fault.words}")
    return made


def _goal(metric: str, target: float | str) -> Goal:
    names = tuple(MetricName)
    if metric not in names:
        raise PolicyError(f"--metric: no metric {metric!r}; {allowed(metric, names)}")
    name = MetricName(metric)
    if name is MetricName.WORK and target == "learned":
        return Goal(name, None)
    return Goal(name, _number("--target", target, TARGETS[name]))


def _setting(key: str, value: float | str) -> Value:
    if key == "lookahead" and value == "auto":
        return AUTO
    return _number(FLAGS[key], value, NUMBERS[key])


def _number(flag: str, value: float | str, number: Number) -> float:
    read = number_in(value) if isinstance(value, str) else value
    if read is None or not number.allows(read):
        got = repr(value) if isinstance(value, str) else number_text(value)
        raise PolicyError(f"{flag}: expected {number.expected}, got {got}")
    return int(read) if number.whole else float(read)


def _flag(key: str, given: dict[str, float | str]) -> str:
    """The flag that a fault is about; a fault of two flags is that of the one that was given."""
    short = [name for name, (direction, _) in SHORT.items() if direction == key and name in given]
    return FLAGS.get((short or [key])[0], "--target")
