"""Where the record is kept, and what is refused there."""

from __future__ import annotations

import json
import os

import pytest

from infscale.errors import StateError
from infscale.kube.objects import Workload
from infscale.kube.transport import Target
from infscale.retire.persisted import FileStore, decode, encode
from infscale.retire.record import Cut, Frozen, IdleRead, Record, State

NOW = 1_800_000_000.0
POD = Frozen("vllm-1", "uid-1", "engine", "containerd://a", "rs", "10.0.0.1")
WHOLE = Record(
    "deployment ml/vllm",
    "uid",
    State.DELETING,
    NOW - 60,
    NOW - 5,
    (POD,),
    IdleRead(NOW, 1.5, "c", None),
    Cut(3, 2, NOW),
)


def workload(uid: str = "uid") -> Workload:
    """The workload that the records are of."""
    return Workload(
        "Deployment", Target("apps", "v1", "deployments", "ml", "vllm"), uid, 3, 3, 3, "app=vllm", 1, 1, "9", ()
    )


@pytest.mark.parametrize(
    "record",
    [
        WHOLE,
        Record("deployment ml/vllm", "uid", State.ADMITTED, NOW, NOW),
        Record("w", "uid", State.ABORTED, NOW, NOW, reason="x"),
    ],
)
def test_round_trip(record):
    """What was written is read."""
    assert decode(encode(record), "here", workload(), NOW) == record


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "infscale state"}, "not the state of a retirement"),
        ({"version": 2}, "version 2"),
        ({"version": None}, "version None"),
        ({"workload_uid": "other"}, "of another workload"),
        ({"state": "Thinking"}, "damaged"),
        ({"started_s": "now"}, "damaged"),
        ({"started_s": None}, "damaged"),
        ({"started_s": True}, "damaged"),
        ({"since_s": NOW - 61}, "damaged"),
        ({"members": []}, "damaged"),
        ({"members": [{}]}, "damaged"),
        ({"members": 3}, "damaged"),
        ({"idle": {"at_s": 1}}, "damaged"),
        ({"cut": {"before": 3.5, "after": 2, "at_s": 1, "done": False}}, "damaged"),
        ({"cut": {"before": 3, "after": 2, "at_s": 1, "done": "no"}}, "damaged"),
        ({"cut": []}, "damaged"),
        ({"reason": None}, "damaged"),
        ({"started_s": 10**400, "since_s": 10**400}, "damaged"),
        ({"started_s": NOW + 61, "since_s": NOW + 61}, "future"),
        ({"since_s": NOW + 61}, "future"),
    ],
)
def test_what_is_refused(change, words):
    """Foreign, of a later version, of another workload, damaged, from the future: never guessed at."""
    text = json.dumps({**json.loads(encode(WHOLE)), **change})

    with pytest.raises(StateError, match=words) as error:
        decode(text, "here", workload(), NOW)
    assert str(error.value).startswith("here: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '"' + "x" * 300_000 + '"'])
def test_what_is_no_record_at_all(text):
    """Empty, cut, another JSON, too deep, too large."""
    with pytest.raises(StateError):
        decode(text, "here", workload(), NOW)


def test_a_clock_that_is_a_little_ahead_is_well():
    """Whoever wrote the record may have had another clock."""
    text = encode(Record("w", "uid", State.ADMITTED, NOW + 30, NOW + 30))

    assert decode(text, "here", workload(), NOW).started_s == NOW + 30


def test_a_file(tmp_path):
    """None before, whole after, replaced in one step, nothing left beside it."""
    store = FileStore(tmp_path / "state.json")

    assert store.load(workload(), NOW) is None
    store.save(workload(), Record("w", "uid", State.ADMITTED, NOW, NOW))
    store.save(workload(), WHOLE)
    assert store.load(workload(), NOW) == WHOLE
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_file_that_cannot_be_used(tmp_path):
    """A folder, a missing folder, another's file: an error that names it."""
    (tmp_path / "other").write_text("{}")
    (tmp_path / "folder").mkdir()

    for path in (tmp_path, tmp_path / "other", tmp_path / "other" / "state.json"):
        with pytest.raises(StateError, match=str(path)):
            FileStore(path).load(workload(), NOW)
    with pytest.raises(StateError, match="expected a writable folder"):
        FileStore(tmp_path / "none" / "state.json").save(workload(), WHOLE)
    with pytest.raises(StateError, match=f"{tmp_path / 'folder'}: cannot be written: Is a directory"):
        FileStore(tmp_path / "folder").save(workload(), WHOLE)
    assert sorted(os.listdir(tmp_path)) == ["folder", "other"]
