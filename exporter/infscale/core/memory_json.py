"""The layer's memory as JSON and back. `infscale.state_file` keeps it in a file.

Reading takes in nothing that `to_json` does not write: a state that is damaged, foreign or of a later version is an
error that points at the part that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple
from itertools import pairwise
from typing import TypeVar

from infscale.core import state as hpa_state
from infscale.core.memory import MOST_READS, Mark, Memory, Read, Sample, ScaleState
from infscale.core.replicas import Buckets
from infscale.core.state import Json, finite, mapping
from infscale.errors import StateError

FORMAT = "infscale-state"
VERSION = 1

_KEYS = (
    *("format", "version", "hpa", "plain", "evaluated_s", "last_activity_s"),
    *("samples", "replicas", "starting", "cold_starts_s", "learned"),
)
_OPTIONAL = ("reads",)
"""What only some roles have something for: left out where it is empty."""

_T = TypeVar("_T")


def to_json(state: ScaleState) -> Json:
    """The state as a JSON object with a format and a version; `from_json` reads it back unchanged."""
    reads = {"reads": {name: list(astuple(read)) for name, read in state.reads.items()}} if state.reads else {}
    return {
        "format": FORMAT,
        "version": VERSION,
        "hpa": hpa_state.to_json(state.hpa),
        "plain": hpa_state.log_to_json(state.plain),
        "evaluated_s": state.evaluated_s,
        "last_activity_s": state.last_activity_s,
        "samples": {name: [list(astuple(one)) for one in samples] for name, samples in state.samples.items()},
        "replicas": {name: _memory_json(memory) for name, memory in state.replicas.items()},
        "starting": list(state.starting),
        "cold_starts_s": list(state.cold_starts_s),
        "learned": list(state.learned),
        **reads,
    }


def from_json(data: object, where: str = "state") -> ScaleState:
    """The state that a JSON value holds.

    Args:
        data: as `json.loads` gives it.
        where: begins the text of an error, such as the file's name.

    Raises:
        StateError: for anything that `to_json` does not write.
    """
    table = mapping(data, where)
    if table.get("format") != FORMAT:
        raise StateError(f"{where}: not a state of infscale: expected format {FORMAT!r}; name another file")
    version = table.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StateError(f"{where}.version: {version!r:.60}: expected {VERSION}; move the state aside to start anew")
    if version > VERSION:
        words = f"written by a later version of infscale, expected at most {VERSION}"
        raise StateError(f"{where}.version: {version!r:.60}: {words}; upgrade, or move the state aside to start anew")
    for key in _KEYS:
        if key not in table:
            raise StateError(f"{where}: {key} is missing: the state is damaged, move it aside to start anew")
    for key in table:
        if key not in (*_KEYS, *_OPTIONAL):
            raise StateError(f"{where}: {key!r:.60} is unknown: expected {', '.join((*_KEYS, *_OPTIONAL))}")
    return ScaleState(
        hpa=hpa_state.from_json(table["hpa"], f"{where}.hpa"),
        plain=hpa_state.log_from_json(table["plain"], f"{where}.plain"),
        evaluated_s=_instant(table["evaluated_s"], f"{where}.evaluated_s"),
        last_activity_s=_instant(table["last_activity_s"], f"{where}.last_activity_s"),
        samples=_table(table["samples"], f"{where}.samples", lambda data, at: _list(data, at, _sample)),
        replicas=_table(table["replicas"], f"{where}.replicas", _memory),
        starting=_list(table["starting"], f"{where}.starting", _text),
        cold_starts_s=_list(table["cold_starts_s"], f"{where}.cold_starts_s", _seconds),
        learned=_list(table["learned"], f"{where}.learned", _number),
        reads=_reads(table.get("reads", {}), f"{where}.reads"),
    )


def _memory_json(memory: Memory) -> Json:
    """Bounds without the last, which is infinite and which JSON has no number for."""
    return {
        "marks": [list(astuple(mark)) for mark in memory.marks],
        "ttft": [{"bounds": list(one.bounds[:-1]), "counts": list(one.counts)} for one in memory.ttft],
    }


def _memory(data: object, where: str) -> Memory:
    table = mapping(data, where)
    if set(table) != {"marks", "ttft"}:
        raise StateError(f"{where}: has {', '.join(table) or 'nothing':.60}: expected marks and ttft")
    return Memory(_list(table["marks"], f"{where}.marks", _mark), _list(table["ttft"], f"{where}.ttft", _buckets))


def _mark(data: object, where: str) -> Mark:
    time_s, generation, prompt, waiting = _row(data, where, 4)
    if not isinstance(waiting, bool):
        raise StateError(f"{where}[3]: {waiting!r:.60}: expected true or false")
    return Mark(
        finite(time_s, f"{where}[0]"), _number(generation, f"{where}[1]"), _number(prompt, f"{where}[2]"), waiting
    )


def _sample(data: object, where: str) -> Sample:
    time_s, requests = _row(data, where, 2)
    return Sample(finite(time_s, f"{where}[0]"), _number(requests, f"{where}[1]"))


def _reads(data: object, where: str) -> Mapping[str, Read]:
    reads = _table(data, where, _read)
    if len(reads) > MOST_READS:
        raise StateError(f"{where}: {len(reads)} sources: expected at most {MOST_READS}")
    return reads


def _read(data: object, where: str) -> Read:
    time_s, *counters = _row(data, where, 4)
    cpu_s, prompt, generation = (
        None if counter is None else _number(counter, f"{where}[{index}]") for index, counter in enumerate(counters, 1)
    )
    return Read(finite(time_s, f"{where}[0]"), cpu_s, prompt, generation)


def _buckets(data: object, where: str) -> Buckets:
    table = mapping(data, where)
    if set(table) != {"bounds", "counts"}:
        raise StateError(f"{where}: has {', '.join(table) or 'nothing':.60}: expected bounds and counts")
    bounds = _list(table["bounds"], f"{where}.bounds", lambda data, at: finite(data, at, "a bucket's bound"))
    counts = _list(table["counts"], f"{where}.counts", _number)
    if len(counts) != len(bounds) + 1 or any(low >= high for low, high in pairwise(bounds)):
        raise StateError(f"{where}: expected ascending bounds and one more count than bounds")
    return Buckets((*bounds, math.inf), counts)


def _row(data: object, where: str, length: int) -> list[object]:
    if not isinstance(data, list) or len(data) != length:
        raise StateError(f"{where}: expected a list of {length}")
    return data


def _list(data: object, where: str, read: Callable[[object, str], _T]) -> tuple[_T, ...]:
    if not isinstance(data, list):
        raise StateError(f"{where}: {type(data).__name__}: expected a list")
    return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(data))


def _table(data: object, where: str, read: Callable[[object, str], _T]) -> Mapping[str, _T]:
    return {name: read(item, f"{where}.{name:.60}") for name, item in mapping(data, where).items()}


def _text(data: object, where: str) -> str:
    if not isinstance(data, str):
        raise StateError(f"{where}: {data!r:.60}: expected a replica's name")
    return data


def _instant(data: object, where: str) -> float | None:
    return None if data is None else finite(data, where)


def _seconds(data: object, where: str) -> float:
    return _number(data, where, "seconds from 0 up")


def _number(data: object, where: str, what: str = "a number from 0 up") -> float:
    number = finite(data, where, what)
    if number < 0:
        raise StateError(f"{where}: {number!r:.60}: expected {what}")
    return number
