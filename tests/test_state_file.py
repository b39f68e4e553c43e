"""The state file: whole at any instant, and never taken for what it is not."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from infscale.core.memory import ScaleState
from infscale.core.memory_json import to_json
from infscale.core.state import Recommendation, State
from infscale.errors import StateError
from infscale.state_file import MOST_BYTES, Loaded, read_state, recover_state, write_state

STATE = ScaleState(hpa=State((Recommendation(3, 100.0),)), evaluated_s=100.0, learned=(1.5,))
TEXT = json.dumps(to_json(STATE))
UNUSABLE = {
    "damaged": (TEXT[:-20].encode(), "damaged (line 1"),
    "empty": (b"", "empty"),
    "blank": (b" \n", "empty"),
    "foreign": (b'{"version": 1, "kind": "Deployment"}', "not a state of infscale"),
    "not an object": (b"[1, 2]", "expected an object"),
    "not JSON": (b"replicas: 3\n", "damaged (line 1"),
    "not text": (b"\xff\xfe\x00\x01", "damaged (not JSON)"),
    "deep": (b"[" * 100_000, "damaged (not JSON)"),
    "later": (TEXT.replace('"version": 1', '"version": 7', 1).encode(), "written by a later version"),
    "part": (TEXT.replace('"learned": [1.5]', '"learned": [-1.5]').encode(), ".learned[0]: -1.5"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the state is kept."""
    return tmp_path / "state.json"


def test_what_was_written_is_read(path):
    """Again and again, and nothing else is left in the folder."""
    for _ in range(3):
        write_state(path, STATE)
        assert read_state(path, 100.0) == Loaded(STATE)
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


def test_without_a_file_the_state_is_new(path):
    """The first run."""
    assert read_state(path, 0.0) == recover_state(path, 0.0) == Loaded(ScaleState())


@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_unusable_file_is_refused_and_left_alone(path, kind):
    """One line that names the file and the fault."""
    content, words = UNUSABLE[kind]
    path.write_bytes(content)
    with pytest.raises(StateError) as refused:
        read_state(path, 100.0)
    text = str(refused.value)
    assert text.startswith(str(path))
    assert words in text
    assert "\n" not in text
    assert refused.value.exit_code == 2
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_long_running_role_sets_an_unusable_file_aside(path, kind):
    """To FILE.bad, with a warning; the new state holds scale-down for one window by its empty log."""
    content, words = UNUSABLE[kind]
    path.write_bytes(content)
    loaded = recover_state(path, 100.0)
    assert (loaded.state, loaded.reset) == (ScaleState(), True)
    assert words in loaded.warnings[0]
    assert f"moved to {path}.bad" in loaded.warnings[0]
    assert Path(f"{path}.bad").read_bytes() == content
    assert not path.exists()


def test_a_file_that_is_no_state_by_its_size_is_not_parsed(path):
    """64 MiB are far more than any state."""
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(StateError, match="over 64 MiB"):
        read_state(path, 0.0)


def test_what_is_no_file_is_an_error(path):
    """A folder, and a pipe nobody writes to; a long-running role moves it aside too."""
    os.mkfifo(path)
    with pytest.raises(StateError, match=r"state\.json: not a regular file"):
        read_state(path, 0.0)
    path.unlink()
    path.mkdir()
    with pytest.raises(StateError, match=r"state\.json: not a regular file"):
        read_state(path, 0.0)
    assert recover_state(path, 0.0).reset


def test_times_in_the_future_are_dropped_with_a_warning(path):
    """The file stays as it is until the next write."""
    write_state(path, STATE)
    loaded = read_state(path, 50.0)
    assert loaded.state == ScaleState(learned=(1.5,))
    assert loaded.warnings == (f"{path}: 2 entries lie in the future and were dropped; check this machine's clock",)
    assert not loaded.reset


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    """It says which folder was expected."""
    path = tmp_path / "missing" / "state.json"
    with pytest.raises(StateError, match="cannot be written: No such file or directory; expected a writable folder"):
        write_state(path, STATE)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    """/proc takes no files from anybody, not even from root."""
    with pytest.raises(StateError, match=r"/proc/state\.json: cannot be written: "):
        write_state(Path("/proc/state.json"), STATE)
    bad = tmp_path / "state.json"
    bad.mkdir()
    with pytest.raises(StateError, match="cannot be written"):
        write_state(bad, STATE)
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_a_file_that_cannot_be_set_aside_is_an_error(path):
    """Else no state could ever be kept, and nobody would know."""
    path.write_bytes(b"{")
    aside = Path(f"{path}.bad")
    aside.mkdir()
    with pytest.raises(StateError, match=r"cannot be moved to .*state\.json\.bad"):
        recover_state(path, 0.0)
    assert path.read_bytes() == b"{"


def test_a_write_that_fails_half_way_leaves_the_old_state(path):
    """A limit on the size of files stands for a full disk: the old file is whole, and nothing else is left."""
    write_state(path, STATE)
    before = path.read_bytes()
    large = ScaleState(starting=tuple("x" * 1000 for _ in range(1000)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StateError, match="cannot be written: File too large"):
            write_state(path, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


def test_a_link_is_followed(path, tmp_path):
    """The state is written where the link points, and the link stays."""
    real = tmp_path / "disk" / "real.json"
    real.parent.mkdir()
    path.symlink_to(real)
    write_state(path, STATE)
    assert path.is_symlink()
    assert read_state(real, 100.0).state == STATE
