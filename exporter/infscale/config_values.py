"""What a configuration file may say, and what it said: the values that `infscale.config` makes of its YAML.

Apart from it, since a command without a file needs the known engines but no YAML: that saves a sidecar 3 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infscale.engines import PROFILES
from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.engines.profile import Profile


@dataclass(frozen=True)
class Setting:
    """What the file may give for one flag.

    Attributes:
        expected: what it takes, for messages: `a number`, `true or false`, `text`.
        read: checks one value and returns what to hand to the flag; raises ValueError with the reason.
        repeats: whether the flag may be given several times; then the file may give a list.
    """

    expected: str
    read: Callable[[object], object]
    repeats: bool = False


@dataclass(frozen=True)
class Config:
    """A checked configuration file, or (as it is by default) the lack of one.

    Attributes:
        source: the file's name; empty without one.
        settings: values by flag name without dashes, in the file's order.
        profiles: the file's own engine profiles by name.
    """

    source: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def engines(self) -> dict[str, Profile]:
        """Every known engine: the file's own first (they win a detection), one replaces the built-in of its name."""
        return {**self.profiles, **{name: p for name, p in PROFILES.items() if name not in self.profiles}}

    def engine(self, name: str) -> Profile:
        """The profile of a name that a person gave.

        Raises:
            UsageError: there is none; the message lists those there are.
        """
        engines = self.engines()
        if name not in engines:
            raise UsageError(f"unknown engine {name!r}; known are {', '.join(sorted(engines))}")
        return engines[name]
