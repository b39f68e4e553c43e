"""The policy grammar: text to a policy, and a policy to its shortest text.

    [hpa:]metric:target{+metric:target}{,key=value}      queue:24,min=0,max=8,up=100%/15+4/15

The command line, the scenario files and every printed policy use it. The simulator has forms of its own behind other
first words (`static:2`): it hands `parse_form` a reader for each.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from infscale.core.checks import faults
from infscale.core.numbers import MAX_INT32
from infscale.core.policy import PolicyType, ScalingPolicy, SelectPolicy
from infscale.core.scaling import AUTO, Goal, MetricName, ScalePolicy
from infscale.core.settings import (
    CHANGE,
    KEYS,
    NUMBERS,
    PERIOD,
    SCALING_POLICY,
    SHORT,
    SHORT_PERIOD_S,
    TARGETS,
    Number,
    Value,
    number_text,
    policy_of,
    settings_of,
    spread,
)
from infscale.errors import PolicyError

T = TypeVar("T")

_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE]-?[0-9]+)?")
_METRICS = tuple(MetricName)
_SELECTS = {select.lower(): select for select in SelectPolicy}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a policy's text that knows where it stands.

    Attributes:
        text: the piece.
        whole: all of the text.
        start: where in it the piece begins, from 0.
    """

    text: str
    whole: str
    start: int = 0

    def cut(self, start: int = 0, end: int | None = None) -> Part:
        """The piece from `start` to `end`, without blanks around it."""
        piece = self.text[start:end]
        blanks = len(piece) - len(piece.lstrip())
        return Part(piece.strip(), self.whole, self.start + start + blanks)

    def split(self, separator: str) -> list[Part]:
        """The pieces between the separators (one character)."""
        pieces, start = [], 0
        for text in self.text.split(separator):
            pieces.append(self.cut(start, start + len(text)))
            start += len(text) + 1
        return pieces

    def partition(self, separator: str) -> tuple[Part, Part | None]:
        """The piece before the first separator, and the one behind it or None where there is no separator."""
        mark = self.text.find(separator)
        if mark < 0:
            return self.cut(), None
        return self.cut(end=mark), self.cut(mark + 1)

    def error(self, words: str) -> PolicyError:
        """The fault to raise for this piece: one line that points at it."""
        whole = self.whole if len(self.whole) <= 200 else self.whole[:197] + "..."
        return PolicyError(f"policy {whole!r}: {shown(self.text)} at character {self.start + 1}: {words}")


def shown(text: str) -> str:
    """A piece of text as an error quotes it."""
    return repr(text if len(text) <= 60 else text[:57] + "...") if text else "nothing"


def allowed(word: str, known: Collection[str]) -> str:
    """The end of an error on an unknown word: the nearest right one, and all that are allowed."""
    near = difflib.get_close_matches(word.lower(), [str(name) for name in known])
    mean = f"did you mean {near[0]!r}? " if near else ""
    return f"{mean}allowed are {', '.join(known)}"


def parse_policy(text: str) -> ScalePolicy:
    """The policy that a text describes.

    Raises:
        PolicyError: one line with the text, the part of it that is wrong, its position, and what is allowed there.
    """
    return _scale_policy(_whole_text(text), ())


def parse_form(text: str, forms: Mapping[str, Callable[[Part], T]]) -> ScalePolicy | T:
    """As `parse_policy`, with further forms by their first word.

    Args:
        text: the policy, as `static:2`.
        forms: a reader for each first word (`static`); it gets what follows the colon (`2`), or an empty part.
    """
    part = _whole_text(text)
    end = len(re.split("[:,]", part.text, maxsplit=1)[0])
    word = part.cut(end=end).text
    if word in forms:
        return forms[word](part.cut(end + (part.text[end : end + 1] == ":")))
    return _scale_policy(part, tuple(forms))


def _whole_text(text: str) -> Part:
    part = Part(text, text).cut()
    if not part.text:
        raise PolicyError("the policy is empty: expected METRIC:TARGET, as queue:24")
    return part


def _scale_policy(part: Part, forms: tuple[str, ...]) -> ScalePolicy:
    first, rest = part.partition(",")
    head, tail = first.partition(":")
    plain = head.text == "hpa" and tail is not None
    metrics = tail if plain and tail is not None else first
    heads = (*_METRICS, "hpa", *forms)
    places: dict[str, Part] = {}
    goals = []
    for index, piece in enumerate(metrics.split("+")):
        goals.append(read_goal(piece, _METRICS if index or plain else heads))
        places[goals[-1].metric] = piece
    settings = read_settings(rest.split(",") if rest else [], places)
    policy = policy_of(tuple(goals), settings, plain=plain)
    for fault in faults(policy):  # numbers were held against their bounds where they stand: what is left is of one key
        raise places[fault.key].error(fault.words)
    return policy


def read_goal(part: Part, names: Collection[str] = _METRICS) -> Goal:
    """The metric and target that stand here; `names` are what an error on an unknown metric lists."""
    name, target = part.partition(":")
    if name.text not in _METRICS:
        raise name.error(f"no such metric; {allowed(name.text, names)}")
    metric = MetricName(name.text)
    if target is None or not target.text:
        raise part.error(f"expected a target, as {metric}:TARGET in {TARGETS[metric].expected}")
    if metric is MetricName.WORK and target.text == "learned":
        return Goal(metric, None)
    return Goal(metric, read_number(target, TARGETS[metric]))


def read_settings(parts: list[Part], places: dict[str, Part]) -> dict[str, Value]:
    """The settings that a list of `key=value` gives, without short keys; `places` receives where each key stands."""
    given: list[tuple[str, Value]] = []
    for part in parts:
        key, value = part.partition("=")
        if key.text not in KEYS:
            raise key.error(f"no such key; {allowed(key.text, KEYS)}")
        if key.text in places:
            raise key.error(f"given twice, first at character {places[key.text].start + 1}")
        places[key.text] = part
        given.append((key.text, _value(key.text, value or part.cut(len(part.text)))))
    return spread(given)


def _value(key: str, part: Part) -> Value:
    if key in ("up", "down"):
        return tuple(_scaling_policy(piece) for piece in part.split("+"))
    if key in ("upselect", "downselect"):
        if part.text.lower() not in _SELECTS:
            raise part.error(f"no such choice for {key}; {allowed(part.text, _SELECTS)}")
        return _SELECTS[part.text.lower()]
    if key == "lookahead" and part.text == "auto":
        return AUTO
    return read_number(part, NUMBERS[key], f"{key}: ")


def _scaling_policy(part: Part) -> ScalingPolicy:
    change, period = part.partition("/")
    if period is None:
        raise part.error(f"expected {SCALING_POLICY}")
    percent = change.text.endswith("%")
    kind = PolicyType.PERCENT if percent else PolicyType.PODS
    value = read_number(change.cut(end=len(change.text) - percent), CHANGE[kind])
    return ScalingPolicy(kind, int(value), int(read_number(period, PERIOD, "a period: ")))


def read_number(part: Part, number: Number, what: str = "") -> float:
    """The number that stands here: digits with a point, as 24, 0.5 or 1e6; an int where it has to be whole."""
    value = number_in(part.text)
    if value is None or not number.allows(value):
        raise part.error(f"{what}expected {number.expected}")
    return int(value) if number.whole else value


def number_in(text: str) -> float | None:
    """The number that a text is; None for all else, NaN and infinity included."""
    return float(text) if _NUMBER.fullmatch(text) else None


def policy_text(policy: ScalePolicy) -> str:
    """A policy in the grammar, as short as it goes: what is at its default is left out.

    `parse_policy` makes the same policy from it. The controller's version and flags are no part of a policy's text.
    """
    settings: dict[str, str] = {key: value_text(key, value) for key, value in settings_of(policy).items()}
    up, down = settings.get("uptolerance"), settings.get("downtolerance")
    if up is not None and up == down:
        settings["tolerance"] = up
        del settings["uptolerance"], settings["downtolerance"]
    for short, (direction, kind) in SHORT.items():
        value, _, period = settings.get(direction, "").partition("/")
        if period == str(SHORT_PERIOD_S) and value.endswith("%") == (kind is PolicyType.PERCENT):
            settings[short] = value.removesuffix("%")
            del settings[direction]
    return ",".join([goals_text(policy), *(f"{key}={settings[key]}" for key in KEYS if key in settings)])


def goals_text(policy: ScalePolicy) -> str:
    """The metrics and targets of a policy, as `queue:24+kv:80`, behind `hpa:` where it is the HPA layer alone."""
    goals = (f"{goal.metric}:{'learned' if goal.target is None else number_text(goal.target)}" for goal in policy.goals)
    return ("hpa:" if policy.plain else "") + "+".join(goals)


def describe(policy: ScalePolicy) -> str:
    """A policy in a few words, as `queue:4 (min 1, max 3)`."""
    most = f", max {policy.max_replicas}" if policy.max_replicas != MAX_INT32 else ""
    return f"{goals_text(policy)} (min {policy.min_replicas}{most})"


def value_text(key: str, value: Value) -> str:
    """The value of a key as the grammar writes it."""
    if isinstance(value, SelectPolicy):
        return value.lower()
    if isinstance(value, tuple):
        return "+".join(f"{p.value}{'%' if p.type is PolicyType.PERCENT else ''}/{p.period_s}" for p in value)
    return "auto" if key == "lookahead" and value == AUTO else number_text(value)
