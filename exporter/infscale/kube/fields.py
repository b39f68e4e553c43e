"""Reads fields of an API object, so that a page that is not what it should be is an error that names the field.

An absent field and null are the same, as they are for the API server. `rest` makes them; `decode`, `selector` and
`leases` read them.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import NoReturn

from infscale.core.numbers import to_milli
from infscale.kube.errors import BrokenAnswer
from infscale.quantity import quantity


class Fields:
    """An object of an answer.

    Args:
        json: the object.
        where: what it is, for errors: `deployments vllm in namespace ml`.
        path: where in it, with a dot at the end: `spec.`; empty at the top.
    """

    def __init__(self, json: object, where: str, path: str = "") -> None:
        self._where, self._path = where, path
        self._json = json if isinstance(json, Mapping) else self._wrong("", json, "an object")

    @property
    def json(self) -> Mapping[str, object]:
        """The object as it came, to be sent back with a change."""
        return self._json

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self._json.get(key) is not None

    def at(self, *keys: str) -> Fields:
        """The object below; an empty one where it, or one on the way, is absent."""
        fields = self
        for key in keys:
            value = fields._json.get(key)
            fields = Fields({} if value is None else value, fields._where, f"{fields._path}{key}.")
        return fields

    def items(self, key: str) -> list[Fields]:
        """The objects of a list; none where it is absent."""
        value = self._json.get(key)
        if value is None:
            return []
        items = value if isinstance(value, list) else self._wrong(key, value, "a list")
        return [Fields(item, self._where, f"{self._path}{key}[{number}].") for number, item in enumerate(items)]

    def text(self, key: str, default: str | None = None) -> str:
        """A text; the default where it is absent, an error where there is no default."""
        value = self._json.get(key)
        if value is None and default is not None:
            return default
        return value if isinstance(value, str) else self._wrong(key, value, "text")

    def texts(self, key: str) -> list[str]:
        """A list of texts; none where it is absent."""
        value = self._json.get(key)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        return self._wrong(key, value, "a list of texts")

    def pairs(self, key: str) -> dict[str, str]:
        """Labels or annotations; none where they are absent."""
        value = self._json.get(key)
        if value is None:
            return {}
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return value
        return self._wrong(key, value, "names with texts")

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number, 0 or more; the default where it is absent, an error where there is no default."""
        value = self._json.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        return self._wrong(key, value, "a whole number, 0 or more")

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false; the default where it is absent."""
        value = self._json.get(key)
        if value is None:
            return default
        return value if isinstance(value, bool) else self._wrong(key, value, "true or false")

    def time_s(self, key: str) -> float | None:
        """A time (RFC 3339) in Unix seconds; None where it is absent."""
        value = self._json.get(key)
        if value is None:
            return None
        try:
            time = datetime.datetime.fromisoformat(value if isinstance(value, str) else "")
        except ValueError:
            return self._wrong(key, value, "a time such as 2026-01-31T12:00:00Z")
        return time.replace(tzinfo=time.tzinfo or datetime.UTC).timestamp()

    def quantity_milli(self, key: str) -> int | None:
        """A resource quantity (`250m`, `1.5`, `2`) in thousandths, rounded up; None where it is absent.

        Source: apimachinery pkg/api/resource/quantity.go, `MilliValue`.
        """
        value = self._json.get(key)
        if value is None:
            return None
        exact = quantity(str(value)) if isinstance(value, str | int | float) else None
        return self._wrong(key, value, "a quantity such as 500m or 2") if exact is None else to_milli(exact)

    def _wrong(self, key: str, value: object, expected: str) -> NoReturn:
        what = f"{self._path}{key}".rstrip(".") or "the answer"
        got = "absent" if value is None else repr(value)[:80]
        raise BrokenAnswer(f"{self._where}: {what} is {got}: expected {expected}")


def rfc3339(time_s: float) -> str:
    """A time as the API's MicroTime: `2026-01-31T12:00:00.000000Z`."""
    time = datetime.datetime.fromtimestamp(time_s, datetime.UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
