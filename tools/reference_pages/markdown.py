"""What the pages are written with: headings, words as code, tables, and what a docstring says of a field."""

from __future__ import annotations

import inspect
import re

from tools.metrics_table import table

__all__ = ["NONE", "attributes", "code", "head", "table"]

NONE = "-"


def head(title: str, source: str, introduction: str) -> str:
    """The beginning of a page."""
    return f"# {title}\n\n<!-- Made by tools/reference.py from {source}; change it there. -->\n\n{introduction}"


def code(*words: object) -> str:
    """Words as code, with commas."""
    return ", ".join(f"`{word}`" for word in words) or NONE


def attributes(described: type) -> dict[str, str]:
    """What the docstring of a class says of each attribute, in one line each."""
    text = inspect.cleandoc(described.__doc__ or "").partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?= {4}\S)", text):
        names, _, words = " ".join(entry.split()).partition(": ")
        found |= dict.fromkeys(names.split(", "), words)
    return found
