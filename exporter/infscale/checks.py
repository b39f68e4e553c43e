"""Shape checks for values that a person wrote in a file: each says where, what was expected and what stood there.

Configuration, engine profiles, policies and manifests are checked with them; every fault is a `ConfigError` such as
`infscale.yaml: profiles[0].running: expected text, got the number 3`.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from infscale.errors import ConfigError


@dataclass(frozen=True)
class Place:
    """Where in which file a value stands.

    Attributes:
        source: the file's name; may be empty.
        path: keys and indices from its top, as `profiles[0].running`; empty for the file as a whole.
    """

    source: str = ""
    path: str = ""

    def key(self, name: str) -> Place:
        """The place of a key of the mapping that stands here."""
        if len(name) > 60 or not name.isprintable():
            name = described(name)  # an error stays one line, whatever the file holds
        return Place(self.source, f"{self.path}.{name}" if self.path else name)

    def item(self, index: int) -> Place:
        """The place of an item of the list that stands here, from 0."""
        return Place(self.source, f"{self.path}[{index}]")

    def error(self, message: str) -> ConfigError:
        """The fault to raise for the value that stands here."""
        return ConfigError(message, source=self.source, path=self.path)


def described(value: object) -> str:
    """What a value is, in a few words for a message: `the number 3`, `a list`, `nothing`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value!s:.60}"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, (list, tuple)) else f"{type(value).__name__} {value!s:.60}"


def text(value: object, place: Place, *, expected: str = "text") -> str:
    """A string; YAML's numbers, dates and booleans are told to put quotes around them."""
    if isinstance(value, str):
        return value
    quotes = "" if value is None or isinstance(value, (Mapping, list, tuple)) else " (put it in quotes)"
    raise place.error(f"expected {expected}, got {described(value)}{quotes}")


def number(value: object, place: Place, *, at_least: float = -math.inf, at_most: float = math.inf) -> float:
    """A finite number within bounds, both included."""
    # An integer may have any length; float64 ends at 1.8e308, where math.isfinite would raise.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise place.error(f"expected a number, got {described(value)}")
    if not at_least <= value <= at_most:
        raise place.error(f"expected a number from {at_least:g} to {at_most:g}, got {value:g}")
    return float(value)


def items(value: object, place: Place) -> Sequence[object]:
    """A list."""
    if isinstance(value, (list, tuple)):
        return value
    raise place.error(f"expected a list, got {described(value)}")


def texts(value: object, place: Place) -> tuple[str, ...]:
    """A list of strings; one string stands for a list of one."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple)):
        return (text(value, place, expected="text or a list of texts"),)
    return tuple(text(item, place.item(index)) for index, item in enumerate(value))


def mapping(value: object, place: Place, known: Collection[str] = ()) -> Mapping[str, object]:
    """A mapping with keys in text; with `known`, one that has no other keys."""
    if not isinstance(value, Mapping):
        raise place.error(f"expected a mapping, got {described(value)}")
    for key in value:
        if not isinstance(key, str):
            raise place.error(f"expected keys in text, got {described(key)} as a key")
        if known and key not in known:
            raise place.key(key).error(f"unknown key{suggestion(key, known)}")
    return value


def suggestion(word: str, known: Collection[str]) -> str:
    """The end of a message on an unknown word: the nearest right one, or all of them when none is near."""
    import difflib  # only on the way to an error

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
