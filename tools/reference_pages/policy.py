"""docs/reference/policy.md: metrics and keys of the policy grammar, from the tables that check them."""

from __future__ import annotations

from infscale.core.grammar import value_text
from infscale.core.numbers import MAX_INT32
from infscale.core.policy import DEFAULT_SCALE_DOWN, DEFAULT_SCALE_UP, Controller
from infscale.core.scaling import ScalePolicy
from infscale.core.settings import (
    FIELDS,
    KEYS,
    MEANINGS,
    MEASURES,
    NUMBERS,
    RULES,
    SCALING_POLICY,
    SHORT,
    TARGETS,
)
from infscale.policy_flags import FLAGS
from infscale.policy_yaml import PATHS
from tools.reference_pages.markdown import NONE, code, head, table

INTRODUCTION = """\
The words of a [policy](../policy.md): `[hpa:]metric:target{+metric:target}{,key=value}`, as `queue:24,min=0,max=8`.
Numbers are plain decimals without a unit.
"""

DEFAULTS = """\
A dash as default: the meaning says what holds then. As soon as one key that stands under `behavior` is given, the
rest of `behavior` has the defaults of this table; where none is, the HPA's rules without `behavior` hold
([which](../policy.md#what-is-the-hpas)).
"""


def page() -> str:
    """The grammar's metrics and keys."""
    parts = [head("Policy grammar", "exporter/infscale/core/settings.py", INTRODUCTION), "## Metrics\n"]
    rows = [[code(metric), TARGETS[metric].expected, MEASURES[metric]] for metric in TARGETS]
    parts += [table(["metric", "target", "what it measures"], rows), "## Keys\n"]
    parts.append(DEFAULTS)
    keys = ([code(k), takes(k), policy_default(k), MEANINGS[k], *code_places(k)] for k in KEYS)
    parts.append(table(["key", "takes", "default", "meaning", "in YAML", "flag"], keys))
    return "\n".join(parts)


def takes(key: str) -> str:
    """What a key takes, in words."""
    if key.endswith("select"):
        return "`max`, `min` or `disabled`"
    return NUMBERS[key].expected if key in NUMBERS else SCALING_POLICY


def policy_default(key: str) -> str:
    """The default of a key in the grammar's own words."""
    if key in SHORT:
        return NONE
    if key in FIELDS:
        value = getattr(ScalePolicy(goals=()), FIELDS[key])
        return NONE if value is None or value == MAX_INT32 else code(value_text(key, value))
    if key.endswith("tolerance"):
        return code(value_text(key, Controller().tolerance))
    direction = "up" if key.startswith("up") else "down"
    value = getattr(DEFAULT_SCALE_UP if direction == "up" else DEFAULT_SCALE_DOWN, RULES[key.removeprefix(direction)])
    return code(value_text(key, Controller().downscale_stabilization_s if value is None else value))


def code_places(key: str) -> tuple[str, str]:
    """Where a key stands in a policy's YAML, and its plain flag."""
    direction, kind = SHORT.get(key, (key, None))
    paths = [PATHS["uptolerance"], PATHS["downtolerance"]] if key == "tolerance" else [PATHS.get(direction, key)]
    flag = FLAGS.get(key)
    return code(*paths) + (f", `type: {kind.value}`" if kind else ""), code(flag) if flag else NONE
