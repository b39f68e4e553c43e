"""Small wrong changes of an alert, each of which its tests must notice."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

from tests.rules.alerts_checks.alert import Alert

_SKIPPED = re.compile(r'\{[^}]*\}|"[^"]*"|\[[^\]]*\]|offset \w+|#[^\n]*')
"""Where an operator or a number is none of the comparison's: matchers, texts, ranges."""

_OTHER = {">": ("<", ">="), "<": (">", "<="), "==": ("!=",), "!=": ("==",), ">=": ("<",), "<=": (">",)}
_COMPARISON = re.compile(r"[=!<>]=|[<>]")
_NUMBER = re.compile(r"(?<![\w.$:])\d+(?:\.\d+)?(?![\w.:])")


def mutants(alert: Alert) -> Iterator[tuple[str, dict[str, object]]]:
    """Each wrong variant of an alert's rule: (what was changed, the rule)."""
    for what, expr in _expressions(alert.expr):
        yield what, _changed(alert, expr=expr)
    for key in ("for", "keep_firing_for"):
        if key in alert.rule:
            hold = str(alert.rule[key])
            number, unit = int(hold[:-1]), hold[-1]
            yield f"{key}: {hold} doubled", _changed(alert, **{key: f"{2 * number}{unit}"})
            yield f"{key}: {hold} taken away", _changed(alert, **{key: "0s"})
    labels = alert.rule["labels"]
    yield "another severity", _changed(alert, labels={**labels, "severity": "none"})


def _expressions(expr: str) -> Iterator[tuple[str, str]]:
    """The expression with one comparison or number changed."""
    searched = _SKIPPED.sub(lambda match: "_" * len(match.group()), expr)
    for match in _COMPARISON.finditer(searched):
        for other in _OTHER[match.group()]:
            yield _told(searched, match, other), expr[: match.start()] + other + expr[match.end() :]
    for match in _NUMBER.finditer(searched):
        if searched[: match.start()].rstrip().endswith("*") and match.group() == "0":
            continue  # `* 0` makes zeros of a series: no threshold
        for other in _numbers(match.group()):
            yield _told(searched, match, other), expr[: match.start()] + other + expr[match.end() :]


def _numbers(text: str) -> tuple[str, str]:
    """A number that is too high and one that is too low: by one where it is a small count, else by a quarter."""
    value = float(text)
    if value == 0:
        return "1000000000", "(-1)"
    if "." not in text and value < 10:
        return f"{value + 1:g}", f"{value - 1:g}"
    return f"{value * 1.25:g}", f"{value * 0.8:g}"


def _told(searched: str, match: re.Match[str], other: str) -> str:
    line = searched.count("\n", 0, match.start()) + 1
    return f"line {line}: {match.group()} for {other}"


def _changed(alert: Alert, **changes: object) -> dict[str, object]:
    rule = copy.deepcopy(alert.rule)
    rule.update(changes)
    return rule
