"""A user's own engine: a mapping made into a Profile, and back.

The mapping comes out of the `profiles` list of a configuration file (`infscale.config`), or out of the JSON that
travels with a drain hook, which has no YAML. Its keys are the fields of `Profile`; three read better in another form
(`model_label`, `min_interval`, `histograms` by name).

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Tuple, Union

from infscale import checks
from infscale.checks import Place
from infscale.engines import PROFILES
from infscale.engines.profile import HISTOGRAM_KINDS, Hints, Metric, Profile

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)  # of a metric, prometheus.io/docs/concepts/data_model
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_ENGINE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}", re.ASCII)
_HINTS = ("not_found", "unauthorized", "disabled", "timeout")
_MAX_INTERVAL_S = 3600.0

Json = Union[str, float, List[Any], Dict[str, Any]]


def profile_from_mapping(mapping: object, path: str = "", *, source: str = "") -> Profile:
    """Check a mapping and make it a Profile.

    Args:
        mapping: `{name: ..., prefix: ..., running: ..., ...}`; with `base`, what is not given comes from that built-in
            profile, and `null` takes away what it has.
        path: where the mapping stands, as `profiles[0]`; it begins every error.
        source: the file's name.

    Raises:
        ConfigError: with the path of the wrong value, what was expected and what stood there.
    """
    place = Place(source, path)
    given = checks.mapping(mapping, place, ("base", *KEYS))
    if given.get("name") is None:
        raise place.key("name").error("missing: a profile needs a name, which --engine then takes")
    base = Profile("", "") if given.get("base") is None else _base(given["base"], place.key("base"))
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key == "base":
            continue
        kind = KEYS[key]
        values[kind.field] = getattr(_EMPTY, kind.field) if value is None else kind.read(value, place.key(key))
    profile = replace(base, **values)
    _check_gauges(profile, place)
    _check_prefix(profile, place)
    return profile


def to_mapping(profile: Profile) -> dict[str, Json]:
    """The mapping that `profile_from_mapping` makes the same profile from; JSON can hold it. No `base`: it is whole."""
    return {
        key: kind.write(getattr(profile, kind.field))
        for key, kind in KEYS.items()
        if getattr(profile, kind.field) != getattr(_EMPTY, kind.field)
    }


def _base(value: object, place: Place) -> Profile:
    name = checks.text(value, place)
    if name not in PROFILES:
        raise place.error(f"no built-in profile {name!r}{checks.suggestion(name, PROFILES)}")
    return PROFILES[name]


def _check_gauges(profile: Profile, place: Place) -> None:
    """Each request is counted once, by gauges that say how many there are."""
    if profile.running is None and profile.total is None:
        raise place.error("expected 'running' (with 'waiting'), or 'total': the gauges that count requests")
    if profile.running is not None and profile.total is not None:
        raise place.key("total").error("counts each request again beside 'running': give one of the two")
    if profile.waiting is not None and profile.running is None:
        raise place.key("waiting").error("expected 'running' beside it")
    counted = [("running", profile.running), ("waiting", profile.waiting)]
    counted += [("front", profile.front), *((f"queues[{i}]", queue) for i, queue in enumerate(profile.queues))]
    seen: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    for key, gauge in counted:
        for name in gauge.names if gauge else ():
            first = seen.setdefault((name, gauge.where if gauge else ()), key)
            if first != key:
                raise place.key(key).error(f"{name!r} stands in {first!r} too: its requests would count twice")


def _check_prefix(profile: Profile, place: Place) -> None:
    """Names stand without the prefix; one written with it would never be found."""
    if not profile.prefix:
        return
    for key, kind in KEYS.items():
        for name in _names(getattr(profile, kind.field)):
            for separator in ":_":
                start = profile.prefix + separator
                if name.startswith(start):
                    short = name[len(start) :]
                    raise place.key(key).error(f"expected {short!r}, without the prefix, got {name!r}")


def _names(value: object) -> tuple[str, ...]:
    """The metric names in a field's value."""
    if isinstance(value, Metric):
        return value.names
    return tuple(name for item in value for name in _names(item)) if isinstance(value, tuple) else ()


def _word(pattern: re.Pattern[str], expected: str) -> Callable[[object, Place], str]:
    def read(value: object, place: Place) -> str:
        """The word at a place, or the error that names the place."""
        word = checks.text(value, place, expected=expected)
        if not pattern.fullmatch(word):
            raise place.error(f"expected {expected}, got {checks.described(word)}")
        return word

    return read


_name = _word(_NAME, "a metric name (letters, digits, '_' and ':')")
_label = _word(_LABEL, "a label name (letters, digits and '_')")
_one_word = _word(_LABEL, "one word (letters, digits and '_')")


def _words(read: Callable[[object, Place], str]) -> Callable[[object, Place], tuple[str, ...]]:
    def read_all(value: object, place: Place) -> tuple[str, ...]:
        """One word, or a list of them."""
        if isinstance(value, str):
            return (read(value, place),)
        return tuple(read(item, place.item(index)) for index, item in enumerate(checks.items(value, place)))

    return read_all


def _prefix(value: object, place: Place) -> str:
    word = checks.text(value, place)
    if word and word[-1] in ":_":
        raise place.error(f"expected {word.rstrip(':_')!r}, without the separator, got {word!r}")
    return _one_word(word, place) if word else ""


def _metric(value: object, place: Place) -> Metric:
    """A name, a list of spellings, or `{name: ..., where: {label: value}}`."""
    if isinstance(value, str):
        return Metric((_name(value, place),))
    if isinstance(value, Mapping):
        given = checks.mapping(value, place, ("name", "names", "where"))
        if ("name" in given) == ("names" in given):
            raise place.error("expected either 'name' or 'names'")
        key = "name" if "name" in given else "names"
        where = _labels(given["where"], place.key("where")) if "where" in given else ()
        return Metric(_spellings(given[key], place.key(key)), where)
    if isinstance(value, (list, tuple)):
        return Metric(_spellings(value, place))
    raise place.error(f"expected a metric name, a list of its spellings or a mapping, got {checks.described(value)}")


def _spellings(value: object, place: Place) -> tuple[str, ...]:
    names = _words(_name)(value, place)
    if not names:
        raise place.error("expected at least one name, got an empty list")
    return names


def _metrics(value: object, place: Place) -> tuple[Metric, ...]:
    return tuple(_metric(item, place.item(index)) for index, item in enumerate(checks.items(value, place)))


def _labels(value: object, place: Place) -> tuple[tuple[str, str], ...]:
    return tuple(
        (_label(key, place), checks.text(item, place.key(key))) for key, item in checks.mapping(value, place).items()
    )


def _only(value: object, place: Place) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        (_label(key, place), checks.texts(item, place.key(key))) for key, item in checks.mapping(value, place).items()
    )


def _optional(value: object, place: Place) -> tuple[str, ...]:
    words = checks.texts(value, place)
    for word in words:
        if word not in ("running", "waiting"):
            raise place.error(f"expected 'running' or 'waiting', got {checks.described(word)}")
    return words


def _kv_parts(value: object, place: Place) -> tuple[Metric, ...]:
    used, total = _required(value, place, ("used", "total"))
    return _metric(*used), _metric(*total)


def _required(value: object, place: Place, keys: tuple[str, ...]) -> list[tuple[object, Place]]:
    """The values of a mapping that has exactly these keys, each with its place."""
    given = checks.mapping(value, place, keys)
    for key in keys:
        if key not in given:
            raise place.key(key).error("missing")
    return [(given[key], place.key(key)) for key in keys]


def _sleep(value: object, place: Place) -> tuple[Metric, str, str]:
    gauge, label, awake = _required(value, place, ("metric", "label", "awake"))
    return _metric(*gauge), _label(*label), checks.text(*awake)


def _histograms(value: object, place: Place) -> tuple[Metric, ...]:
    given = checks.mapping(value, place, HISTOGRAM_KINDS)
    return tuple(_metric(given[key], place.key(key)) if key in given else Metric(()) for key in HISTOGRAM_KINDS)


def _hints(value: object, place: Place) -> Hints:
    given = checks.mapping(value, place, _HINTS)
    return Hints(**{key: checks.text(item, place.key(key)) for key, item in given.items()})


def _interval(value: object, place: Place) -> float:
    return checks.number(value, place, at_least=0, at_most=_MAX_INTERVAL_S)


def _plain(metric: Metric) -> Json:
    names: Json = metric.names[0] if len(metric.names) == 1 else list(metric.names)
    return {"names": names, "where": dict(metric.where)} if metric.where else names


@dataclass(frozen=True)
class Key:
    """One key of the mapping: the field it sets, what it takes, how that is checked, and how it is written back."""

    field: str
    expected: str
    read: Callable[[object, Place], Any]
    write: Callable[[Any], Json]


def _keys() -> dict[str, Key]:
    one: Tuple[Any, ...] = ("a name, a list of its spellings, or {name, where: {label: value}}", _metric, _plain)
    several: Tuple[Any, ...] = ("a list of such gauges", _metrics, lambda value: [_plain(item) for item in value])
    words: Tuple[Any, ...] = ("a label, or a list", _words(_label), list)
    word: Tuple[Any, ...] = ("a label", _label, str)
    name: Tuple[Any, ...] = ("a whole name", _name, str)
    kinds: Dict[str, Tuple[Any, ...]] = {
        "name": ("letters, digits, '.', '_', '-'", _word(_ENGINE, "a name (letters, digits, '.', '_' and '-')"), str),
        "prefix": ("a word", _prefix, str),
        "running": one,
        "waiting": one,
        "total": one,
        "queues": several,
        "front": one,
        "optional": ("running, waiting, or both in a list", _optional, list),
        "sum_over": words,
        "copies": (words[0], lambda value, place: frozenset(words[1](value, place)), sorted),
        "replica_label": word,
        "only": ("{label: [value, ...]}", _only, lambda value: {label: list(allowed) for label, allowed in value}),
        "not_engine": words,
        "kv": one,
        "kv_parts": ("{used, total}", _kv_parts, lambda value: {"used": _plain(value[0]), "total": _plain(value[1])}),
        "prompt_tokens": one,
        "generation_tokens": one,
        "finished": one,
        "outcome_labels": words,
        "rejected": one,
        "progress": several,
        "served": several,
        "capacity": one,
        "sleep": (
            "{metric, label, awake}",
            _sleep,
            lambda value: {"metric": _plain(value[0]), "label": value[1], "awake": value[2]},
        ),
        "cpu": name,
        "start_time": name,
        "requests": name,
        "histograms": (
            "{" + ", ".join(HISTOGRAM_KINDS) + "}",
            _histograms,
            lambda value: {k: _plain(m) for k, m in zip(HISTOGRAM_KINDS, value) if m.names},
        ),
        "model_label": words,
        "role_label": word,
        "min_interval": ("seconds, 0 to 3600", _interval, float),
        "hints": ("{" + ", ".join(_HINTS) + "}", _hints, lambda value: {key: getattr(value, key) for key in _HINTS}),
        "select": ("{label: value}", _labels, dict),
    }
    fields = {"model_label": "model_labels", "min_interval": "min_interval_s"}
    return {key: Key(fields.get(key, key), *kind) for key, kind in kinds.items()}


KEYS = _keys()
"""Every key of a profile, beside `base`."""

_EMPTY = Profile("", "")
