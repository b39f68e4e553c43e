"""What the HPA layer remembers between two evaluations, and its form as JSON.

The controller keeps the log and the events in memory and loses them when it restarts; the roles of infscale keep this
in a file (`infscale.state_file`). Here are only the pure functions; `core.memory_json` puts what the layer remembers
around them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from infscale.core.numbers import MAX_INT32
from infscale.errors import StateError

VERSION = 1

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What the metrics proposed at an instant, before stabilisation and limits."""

    replicas: int
    time_s: float


Log = tuple[Recommendation, ...]


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """By how many replicas (a positive number) the core changed the count at an instant."""

    change: int
    time_s: float


_Entry = TypeVar("_Entry", Recommendation, ScaleEvent)


@dataclass(frozen=True, slots=True)
class State:
    """The memory of the HPA layer.

    Attributes:
        recommendations: the log of proposals, in the order of its slots; None before the first evaluation.
        scale_up_events, scale_down_events: the core's own changes, kept only where `behavior` is set.
        scaled_to_zero: the HPA's ScaledToZero condition (1.37 and newer): the count is 0 because the core made it so.
    """

    recommendations: Log | None = None
    scale_up_events: tuple[ScaleEvent, ...] = ()
    scale_down_events: tuple[ScaleEvent, ...] = ()
    scaled_to_zero: bool = False


def stored(entries: tuple[_Entry, ...], entry: _Entry, keep_s: float) -> tuple[_Entry, ...]:
    """The entries with one more: in the place of the last that is older than `keep_s`, else at the end.

    Source: pkg/controller/podautoscaler/horizontal.go, `stabilizeRecommendation` and `storeScaleEvent`.
    """
    slots = list(entries)
    outdated = [index for index, old in enumerate(slots) if entry.time_s - old.time_s > keep_s]
    if outdated:
        slots[outdated[-1]] = entry
    else:
        slots.append(entry)
    return tuple(slots)


def to_json(state: State) -> Json:
    """The state as a JSON object with a version; `from_json` reads it back unchanged."""
    return {
        "version": VERSION,
        "recommendations": log_to_json(state.recommendations),
        "scale_up_events": [{"change": event.change, "time_s": event.time_s} for event in state.scale_up_events],
        "scale_down_events": [{"change": event.change, "time_s": event.time_s} for event in state.scale_down_events],
        "scaled_to_zero": state.scaled_to_zero,
    }


def log_to_json(log: Log | None) -> list[Json] | None:
    """A log of recommendations, or None for one that was never begun; `log_from_json` reads it back unchanged."""
    return None if log is None else [{"replicas": entry.replicas, "time_s": entry.time_s} for entry in log]


def log_from_json(data: object, where: str) -> Log | None:
    """The log that a JSON value holds; a StateError for anything that `log_to_json` does not write."""
    return None if data is None else _entries(data, where, "replicas", Recommendation)


def from_json(data: object, where: str = "state") -> State:
    """The state that a JSON value holds.

    Args:
        data: as `json.loads` gives it.
        where: begins the text of an error, such as the file's name.

    Raises:
        StateError: for anything that `to_json` does not write: damaged, foreign, or of a later version.
    """
    table = mapping(data, where)
    version = table.get("version")
    if version != VERSION or isinstance(version, bool):
        raise StateError(
            f"{where}.version: {version!r:.60}: expected {VERSION}; "
            "the state is foreign or was written by another version of infscale, move it aside to start anew"
        )
    expected = ("version", "recommendations", "scale_up_events", "scale_down_events", "scaled_to_zero")
    for key in expected:
        if key not in table:
            raise StateError(f"{where}: {key} is missing: the state is damaged, move it aside to start anew")
    for key in table:
        if key not in expected:
            raise StateError(f"{where}: {key!r:.60} is unknown: expected {', '.join(expected)}")
    zero = table["scaled_to_zero"]
    if not isinstance(zero, bool):
        raise StateError(f"{where}.scaled_to_zero: {zero!r:.60}: expected true or false")
    return State(
        recommendations=log_from_json(table["recommendations"], f"{where}.recommendations"),
        scale_up_events=_entries(table["scale_up_events"], f"{where}.scale_up_events", "change", ScaleEvent),
        scale_down_events=_entries(table["scale_down_events"], f"{where}.scale_down_events", "change", ScaleEvent),
        scaled_to_zero=zero,
    )


def _entries(data: object, where: str, key: str, make: Callable[[int, float], _Entry]) -> tuple[_Entry, ...]:
    if not isinstance(data, list):
        raise StateError(f"{where}: {type(data).__name__}: expected a list")
    entries = []
    for index, item in enumerate(data):
        place = f"{where}[{index}]"
        entry = mapping(item, place)
        if set(entry) != {key, "time_s"}:
            raise StateError(f"{place}: has {', '.join(entry) or 'nothing':.60}: expected {key} and time_s")
        entries.append(make(_count(entry[key], f"{place}.{key}"), finite(entry["time_s"], f"{place}.time_s")))
    return tuple(entries)


def mapping(data: object, where: str) -> Mapping[str, object]:
    """The value as an object, or a StateError that says where it stands."""
    if not isinstance(data, dict):
        raise StateError(f"{where}: {type(data).__name__}: expected an object")
    return data


def _count(data: object, where: str) -> int:
    if not isinstance(data, int) or isinstance(data, bool) or not 0 <= data <= MAX_INT32:
        raise StateError(f"{where}: {data!r:.60}: expected a whole number from 0 up, within int32")
    return data


def finite(data: object, where: str, what: str = "Unix seconds") -> float:
    """The value as a finite number, or a StateError that says where it stands and what was expected."""
    # JSON has integers of any length; float64 ends at 1.8e308, where math.isfinite would raise.
    if not isinstance(data, int | float) or isinstance(data, bool) or not abs(data) <= sys.float_info.max:
        raise StateError(f"{where}: {data!r:.60}: expected {what}")
    return data
