"""Where a retirement's record is kept: an annotation on the workload, or a file. Read anew at each pass.

What is damaged, of another workload, of a later version or from the future is refused, never guessed at: a budget that
began anew, or a scale that is patched twice, would be the price.
"""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from infscale.errors import StateError
from infscale.kube.cluster import Cluster
from infscale.kube.errors import Conflict
from infscale.kube.objects import Workload
from infscale.retire.record import Cut, Frozen, IdleRead, Record, State
from infscale.state_file import write_whole

ANNOTATION = "infscale.dev/retirement"
KIND, VERSION = "infscale retirement", 1

MOST_BYTES = 256 * 1024
"""What the API server takes for all annotations of an object together; a record of a group of 16 Pods is 4 kB."""

AHEAD_S = 60.0
"""So far the clock of whoever wrote the record may be ahead of ours."""


class Store(Protocol):
    """Keeps one record."""

    def load(self, workload: Workload, now_s: float) -> Record | None:
        """The record; None where there is none.

        Raises:
            StateError: there is one that cannot be used.
        """
        ...

    def save(self, workload: Workload, record: Record) -> None:
        """Keep the record in the place of the one before.

        Raises:
            Conflict: another wrote a record since the workload was read; nothing was written (annotations only).
            StateError: the file cannot be written.
        """
        ...


class AnnotationStore:
    """The record as an annotation on the workload: whoever goes on finds it there.

    Args:
        cluster: the API.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def load(self, workload: Workload, now_s: float) -> Record | None:
        """See `Store`."""
        text = workload.annotations.get(ANNOTATION)
        return None if text is None else decode(text, f"{workload}, annotation {ANNOTATION}", workload, now_s)

    def save(self, workload: Workload, record: Record) -> None:
        """See `Store`. A workload changes with each of its Pods: only another record in the place is a conflict."""
        text = {ANNOTATION: encode(record)}
        try:
            self._cluster.annotate(workload, text)
        except Conflict:
            now = self._cluster.workload(workload.kind, workload.namespace, workload.name)
            if now.uid != workload.uid or now.annotations.get(ANNOTATION) != workload.annotations.get(ANNOTATION):
                raise
            self._cluster.annotate(now, text)


class FileStore:
    """The record in a file of its own, which is whole at any time.

    Args:
        path: the file; its folder is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, workload: Workload, now_s: float) -> Record | None:
        """See `Store`."""
        try:
            if not stat.S_ISREG(self._path.stat().st_mode):  # a pipe would be waited for
                raise StateError(f"{self._path}: not a regular file: expected the state of a retirement")
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise StateError(f"{self._path}: cannot be read: {fault.strerror}") from fault
        return decode(content.decode("utf-8", "replace"), str(self._path), workload, now_s)

    def save(self, workload: Workload, record: Record) -> None:
        """See `Store`."""
        write_whole(self._path, encode(record) + "\n")


def encode(record: Record) -> str:
    """A record as JSON on one line."""
    fields = {**asdict(record), "state": record.state.value}
    return json.dumps({"kind": KIND, "version": VERSION, **fields}, separators=(",", ":"), allow_nan=False)


def decode(text: str, where: str, workload: Workload, now_s: float) -> Record:
    """The record in a text.

    Args:
        text: as `encode` gave it.
        where: names the place in errors.
        workload: whose it is to be.
        now_s: Unix seconds.

    Raises:
        StateError: it is damaged, of something else, of another workload, of a later version or from the future.
    """
    aside = "look at it, then remove it to start anew"
    try:
        if len(text) > MOST_BYTES:
            raise ValueError
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise StateError(f"{where}: damaged (no JSON): expected the state of a retirement; {aside}") from None
    if not isinstance(said, dict) or said.get("kind") != KIND:
        raise StateError(f"{where}: not the state of a retirement; {aside}")
    version = said.get("version")
    if version != VERSION:
        raise StateError(f"{where}: version {version!r:.60}: this infscale knows {VERSION}; use the one that wrote it")
    if said.get("workload_uid") != workload.uid:
        shown = repr(said.get("workload"))[:100]
        raise StateError(f"{where}: of another workload ({shown}, another UID), not of {workload}; {aside}")
    try:
        record = _record(said)
    except (KeyError, TypeError, ValueError) as fault:
        raise StateError(f"{where}: damaged ({type(fault).__name__} at {str(fault)!r:.100}); {aside}") from None
    if max(record.started_s, record.since_s) > now_s + AHEAD_S:
        raise StateError(f"{where}: begins in the future: check this machine's clock; if that is right, {aside}")
    return record


def _record(said: Mapping[str, Any]) -> Record:
    cut, idle = said["cut"], said["idle"]
    record = Record(
        workload=_text(said, "workload"),
        workload_uid=_text(said, "workload_uid"),
        state=State(said["state"]),
        started_s=_number(said, "started_s"),
        since_s=_number(said, "since_s"),
        members=tuple(Frozen(**{key: _text(each, key) for key in _FROZEN}) for each in said["members"]),
        idle=None if idle is None else _idle(idle),
        cut=None if cut is None else _cut(cut),
        reason=_text(said, "reason"),
    )
    if not record.members and record.state not in (State.ADMITTED, State.ABORTED):
        raise ValueError("members")
    if record.started_s > record.since_s:
        raise ValueError("since_s")
    return record


_FROZEN = ("name", "uid", "container", "container_id", "owner_uid", "ip")


def _idle(said: Mapping[str, Any]) -> IdleRead:
    read_at, started_at = said["engine_read_at_s"], said["started_at_s"]
    return IdleRead(
        at_s=_number(said, "at_s"),
        engine_read_at_s=None if read_at is None else _number(said, "engine_read_at_s"),
        counters=_text(said, "counters"),
        started_at_s=None if started_at is None else _number(said, "started_at_s"),
    )


def _cut(said: Mapping[str, Any]) -> Cut:
    done = said["done"]
    if not isinstance(done, bool):
        raise TypeError("done")
    return Cut(_whole(said, "before"), _whole(said, "after"), _number(said, "at_s"), done)


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value


def _number(said: Mapping[str, Any], key: str) -> float:
    value = said[key]
    # JSON has integers of any length; float64 ends at 1.8e308, where math.isfinite would raise.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise TypeError(key)
    return float(value)


def _whole(said: Mapping[str, Any], key: str) -> int:
    value = said[key]
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(key)
    return value
