"""The keys of a policy: what each may be, and the way from keys to a `ScalePolicy` and back.

The text grammar, the YAML form, the plain flags and manifests all come down to the same keys; each only has its own
way to write them. A key stands for one field; `tolerance`, `uppods` and their like are short for others (`spread`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

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
from infscale.core.scaling import Goal, MetricName, ScalePolicy

Value = float | SelectPolicy | tuple[ScalingPolicy, ...]
"""What a key may be given: a number, which of several scaling policies counts, or a list of them."""

FIELDS = {
    "min": "min_replicas",
    "max": "max_replicas",
    "lookahead": "lookahead_s",
    "cooldown": "cooldown_s",
    "coverage": "coverage",
    "guard": "guard",
    "knee": "knee",
    "promptweight": "prompt_weight",
    "quantile": "quantile",
}
"""The keys outside of `behavior`, with their fields of `ScalePolicy`."""

RULES = {
    "": "policies",
    "select": "select_policy",
    "window": "stabilization_window_s",
    "tolerance": "tolerance",
}
"""What follows `up` or `down` in a key of `behavior`, with the fields of `ScalingRules`: `up`, `upselect`, ..."""

SHORT = {
    direction + ending: (direction, kind)
    for direction in ("up", "down")
    for ending, kind in (("pods", PolicyType.PODS), ("percent", PolicyType.PERCENT))
}
"""The short keys for one scaling policy, with its direction and type."""

SHORT_PERIOD_S = 15
"""The period of a scaling policy that a short key gives: the HPA's own sync, and the period of its defaults."""

_DIRECTIONS = (("up", DEFAULT_SCALE_UP), ("down", DEFAULT_SCALE_DOWN))
_NOTHING = ScalePolicy(goals=())


@dataclass(frozen=True, slots=True)
class Number:
    """The numbers that a key or target takes.

    Attributes:
        expected: them in words.
        holds: whether a finite number is one of them.
        whole: whether it has to be an integer.
    """

    expected: str
    holds: Callable[[float], bool]
    whole: bool = False

    def allows(self, number: float) -> bool:
        """Whether it is one of them; NaN, infinity and what is beyond float64 never are."""
        return (
            abs(number) <= sys.float_info.max and (not self.whole or float(number).is_integer()) and self.holds(number)
        )


def _whole(what: str, low: int, high: int) -> Number:
    to = "up" if high == MAX_INT32 else f"to {high}"
    return Number(f"{what} from {low} {to}", lambda n: low <= n <= high, whole=True)


# The bounds of what the HPA has too are the API's: pkg/apis/autoscaling/validation/validation.go.
_WINDOW = _whole("whole seconds", 0, 3600)  # MaxStabilizationWindowSeconds
PERIOD = _whole("whole seconds", 1, 1800)  # MaxPeriodSeconds
CHANGE = {
    PolicyType.PODS: _whole("whole Pods", 1, MAX_INT32),
    PolicyType.PERCENT: _whole("whole percent", 1, MAX_INT32),
}
_TOLERANCE = Number("a share from 0 up, as 0.1 for 10 %", lambda n: n >= 0)

NUMBERS = {
    "min": _whole("a whole number of replicas", 0, MAX_INT32),
    "max": _whole("a whole number of replicas", 1, MAX_INT32),
    # As many seconds of samples are kept: an hour is the longest window, and the longest cold start worth waiting for.
    "lookahead": Number("seconds from 0 to 3600, or auto", lambda n: 0 <= n <= 3600),
    "cooldown": Number("seconds from 0 up", lambda n: 0 <= n <= MAX_INT32),
    "coverage": Number("a share from 0 to 1", lambda n: 0 <= n <= 1),
    "tolerance": _TOLERANCE,
    "uptolerance": _TOLERANCE,
    "downtolerance": _TOLERANCE,
    "upwindow": _WINDOW,
    "downwindow": _WINDOW,
    **{key: CHANGE[kind] for key, (_, kind) in SHORT.items()},
    "guard": Number("a share above 0, at most 1 (0.85 is usual)", lambda n: 0 < n <= 1),
    "knee": Number("tokens per second above 0", lambda n: n > 0),
    "promptweight": Number("a number from 0 up (0.1 is usual)", lambda n: n >= 0),
    "quantile": Number("a number above 0 and below 1, as 0.95", lambda n: 0 < n < 1),
}
"""The keys that take a number."""

_REQUESTS = Number("requests per replica above 0, as 24", lambda n: n > 0)

TARGETS = {
    MetricName.QUEUE: _REQUESTS,
    MetricName.WAITING: _REQUESTS,
    MetricName.RUNNING: _REQUESTS,
    MetricName.KV: Number("percent of the KV cache above 0, at most 100", lambda n: 0 < n <= 100),
    MetricName.CPU: _whole("whole percent of the CPU request", 1, MAX_INT32),
    MetricName.TTFT: Number("seconds above 0, as 2 or 0.5", lambda n: n > 0),
    MetricName.WORK: Number("tokens per second per replica above 0, or learned", lambda n: n > 0),
}
"""What each metric's target may be."""

KEYS = (
    *("min", "max", "lookahead", "cooldown", "coverage", "tolerance", "uptolerance", "downtolerance"),
    *("upwindow", "downwindow", "up", "down", "upselect", "downselect"),
    *("uppods", "downpods", "uppercent", "downpercent", "guard", "knee", "promptweight", "quantile"),
)
"""Every key of the text grammar, in the order in which they are printed."""


SCALING_POLICY = "Pods or percent and a period in seconds, as 4/15 or 100%/15"
"""What `up` and `down` list, in words."""

MEASURES = {
    MetricName.QUEUE: "requests that run and wait, and those held at the activator; summed over the replicas",
    MetricName.WAITING: "requests that wait, and those held; summed",
    MetricName.RUNNING: "requests that run; summed",
    MetricName.KV: "use of the KV cache; the mean of the replicas that reported",
    MetricName.CPU: "use of the CPU request; the mean",
    MetricName.TTFT: "a quantile of the time to first token, of the requests since the last look",
    MetricName.WORK: "tokens per second against what one replica can do, of which 85 % are planned with",
}
"""What each metric measures."""

MEANINGS = {
    "min": "fewest replicas; 0 allows scale to zero",
    "max": "most replicas",
    "lookahead": "how many seconds ahead the demand is projected; `auto`: as long as the measured cold starts",
    "cooldown": "seconds without any activity before 0 replicas; else the larger of 300 and three cold starts",
    "coverage": "the share of the replicas that must give a value; below it the count is held",
    "tolerance": "`uptolerance` and `downtolerance` in one",
    "uptolerance": "how far above the target nothing changes",
    "downtolerance": "how far below the target nothing changes",
    "upwindow": "seconds that a rise has to last",
    "downwindow": "seconds that a fall has to last",
    "up": "how many replicas may be added in how many seconds; several with `+`",
    "down": "how many replicas may be taken away in how many seconds; several with `+`",
    "upselect": "which of several in `up` counts: the one that changes most, least, or none of them and no rise",
    "downselect": "the same for `down`",
    **{key: f"one of `{direction}`, with a period of {SHORT_PERIOD_S} s" for key, (direction, _) in SHORT.items()},
    "guard": "the share of the knee that the replicas left may carry after a scale-down; else no guard",
    "knee": "tokens per second that one replica carries; else learned, where `guard` or `work` need it",
    "promptweight": "what a prompt token counts beside a generated one, for `work` and `guard`",
    "quantile": "of `ttft`",
}
"""What each key means; `else` tells what holds where it is not given and no number says it."""


def spread(given: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """The same settings without short keys.

    `tolerance` stands for both directions where a direction has none of its own; scaling policies that several keys
    give for one direction add up in the order in which they stand.
    """
    settings: dict[str, Value] = {}
    lists: dict[str, tuple[ScalingPolicy, ...]] = {}
    both: float | None = None
    for key, value in given:
        if key == "tolerance" and isinstance(value, int | float):
            both = value
        elif key in SHORT and isinstance(value, int | float):
            direction, kind = SHORT[key]
            lists[direction] = (*lists.get(direction, ()), ScalingPolicy(kind, int(value), SHORT_PERIOD_S))
        elif isinstance(value, tuple):
            lists[key] = (*lists.get(key, ()), *value)
        else:
            settings[key] = value
    if both is not None:
        settings = {"uptolerance": both, "downtolerance": both, **settings}
    return {**settings, **lists}


def policy_of(goals: tuple[Goal, ...], settings: Mapping[str, Value], *, plain: bool = False) -> ScalePolicy:
    """The policy that the settings (without short keys) describe.

    As soon as one key of `behavior` is there, what is missing of it is as the HPA fills it in.

    Source: pkg/apis/autoscaling/v2/defaults.go, `SetDefaults_HorizontalPodAutoscalerBehavior`.
    """
    fields: dict[str, Any] = {FIELDS[key]: value for key, value in settings.items() if key in FIELDS}
    behavior = None
    if settings.keys() - FIELDS.keys():
        up, down = (_rules(direction, settings, default) for direction, default in _DIRECTIONS)
        behavior = Behavior(up, down)
    return ScalePolicy(goals, behavior=behavior, plain=plain, **fields)


def _rules(direction: str, settings: Mapping[str, Value], default: ScalingRules) -> ScalingRules:
    fields: dict[str, Any] = {
        field: settings[direction + ending] for ending, field in RULES.items() if direction + ending in settings
    }
    return replace(default, **fields)


def settings_of(policy: ScalePolicy) -> dict[str, Value]:
    """The settings (without short keys) that differ from their defaults, in no order: `policy_of`'s way back.

    A `behavior` that is set and has nothing but defaults is `upwindow` at its default, 0: set, it counts another way.
    """
    settings: dict[str, Value] = {}
    for key, field in FIELDS.items():
        value = getattr(policy, field)
        if value != getattr(_NOTHING, field):
            settings[key] = value
    if policy.behavior is None:
        return settings
    before = len(settings)
    rules = {"up": policy.behavior.scale_up, "down": policy.behavior.scale_down}
    for direction, default in _DIRECTIONS:
        for ending, field in RULES.items():
            value = getattr(rules[direction], field)
            if value is not None and value != getattr(default, field):
                settings[direction + ending] = value
    if len(settings) == before:
        settings["upwindow"] = 0
    return settings


def number_text(number: float) -> str:
    """A number as a policy prints it: the shortest text that reads back as the same, without a plus sign."""
    if abs(number) < 10**16 and float(number).is_integer():
        return str(int(number))
    return repr(float(number)).replace("e+", "e")
