"""A label selector of a manifest as the text that a query takes: `app=vllm,tier in (a,b),!old`."""

from __future__ import annotations

from infscale.kube.errors import BrokenAnswer
from infscale.kube.fields import Fields


def selector_text(selector: Fields) -> str:
    """The selector of `spec.selector` (metav1.LabelSelector); empty where it selects nothing or is absent.

    Source: apimachinery pkg/apis/meta/v1 `LabelSelectorAsSelector`: all parts must hold.

    Raises:
        BrokenAnswer: an operator that does not exist.
    """
    parts = [f"{key}={value}" for key, value in sorted(selector.pairs("matchLabels").items())]
    for expression in selector.items("matchExpressions"):
        key, operator = expression.text("key"), expression.text("operator")
        values = ",".join(sorted(expression.texts("values")))
        match operator:
            case "In":
                parts.append(f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(key)
            case "DoesNotExist":
                parts.append(f"!{key}")
            case _:
                raise BrokenAnswer(f"label selector: operator {operator!r}: expected In, NotIn, Exists or DoesNotExist")
    return ",".join(parts)
