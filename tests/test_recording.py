from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from infscale.errors import ConfigError, SourceError
from infscale.recording import Recording
from tests.recorded import RUNS, VLLM, failed, row, write


def check_against_files(run: Path) -> None:
    """Hold what a Recording says against the files themselves, read the plain way."""
    recording = Recording.load(run)
    rows = [json.loads(text) for text in (run / "timeline.jsonl").read_text().splitlines()]
    assert len(recording.lines) == len(rows)
    for line, told in zip(recording.lines, rows, strict=True):
        assert (line.status, line.phase) == (told["status"], told.get("phase", ""))
        assert bool(line.failure) == (told["status"] == 0)
        if told["file"]:
            assert recording.page(line) == gzip.decompress((run / told["file"]).read_bytes())
            assert len(recording.page(line)) == told["bytes"]
        if "client_inflight" in told:
            assert line.inflight == told["client_inflight"] == recording.inflight_at(line.t_s)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_shipped_recordings_say_what_their_files_say(run):
    """Every line, page and count of a recording in the repository is read as it stands in its files."""
    check_against_files(run)


def test_further_recordings_say_what_their_files_say(recording):
    """The same for the recordings given with --recordings."""
    check_against_files(recording)


def test_shipped_recordings_show_the_whole_life_of_an_engine():
    """Each shipped run has loading, idle, steady and queueing load, a drain, cancelled requests and a SIGTERM."""
    assert {run.name for run in RUNS} >= {"vllm-0.32.0-single", "llamacpp-b11434-parallel4"}
    for run in RUNS:
        phases = Recording.load(run).phases
        assert [phase for phase in phases if phase in ("load", "c0", "c1", "c4", "c12", "drain", "cancel", "term")] == [
            "load", "c0", "c1", "c4", "c12", "drain", "cancel", "term",
        ]  # fmt: skip


def test_truth_is_starts_minus_ends(tmp_path):
    """In flight at an instant is the starts minus the ends up to then, the instant included."""
    events = [
        {"t": 11.0, "id": 0, "ev": "start"},
        {"t": 11.5, "id": 0, "ev": "first"},
        {"t": 12.0, "ev": "probe", "path": "/health", "status": 200},
        {"t": 13.0, "id": 0, "ev": "end"},
        {"t": 12.0, "id": 1, "ev": "start"},  # a client that wrote late
    ]
    recording = Recording.load(write(tmp_path, [row(10, "a 1\n"), row(20, "a 2\n")], events))
    assert [recording.inflight_at(t_s) for t_s in (0, 10.99, 11, 12, 12.5, 13, 99)] == [0, 0, 1, 2, 2, 1, 1]


def test_without_events_truth_is_the_count_of_the_line(tmp_path):
    """A recording without events tells what its lines tell: what was put in per rank, over a made clock of seconds."""
    rows = [
        {"file": None, "status": 503, "run_per_rank": run, "wait_per_rank": wait, "ranks": 2}
        for run, wait in ((0, 0), (4, 8))
    ]
    recording = Recording.load(write(tmp_path, rows))
    assert [line.t_s for line in recording.lines] == [0, 1]
    assert recording.end_s == 2
    assert [recording.inflight_at(t_s) for t_s in (0, 0.9, 1, 50)] == [0, 0, 24, 24]
    assert recording.phases == ()


def test_truth_is_unknown_where_nothing_was_recorded(tmp_path):
    """A recording with neither events nor counts says None, not 0."""
    assert Recording.load(write(tmp_path, [row(1, "a 1\n")])).inflight_at(1) is None


def test_failures_are_told_apart(tmp_path):
    """Every way in which the recording client words a failure is one of refused, timeout, reset."""
    errors = {
        "ClientConnectorError: Cannot connect to host h:1 ssl:default [Connect call failed ('h', 1)]": "refused",
        "ConnectionRefusedError: [Errno 111] Connection refused": "refused",
        "ConnectionTimeoutError: Connection timeout to host http://h:1/metrics": "timeout",
        "TimeoutError: ": "timeout",
        "ClientConnectorError: Cannot connect to host h:1 ssl:default [Connection timed out]": "timeout",
        "ClientOSError: [Errno 104] Connection reset by peer": "reset",
        "ServerDisconnectedError: Server disconnected": "reset",
    }
    rows = [{"t": t_s, "status": 0, "error": error} for t_s, error in enumerate(errors)]
    recording = Recording.load(write(tmp_path, rows))
    assert [line.failure for line in recording.lines] == list(errors.values())


def test_line_in_force(tmp_path):
    """The line in force is the last one sent by then; before the first it is the first."""
    recording = Recording.load(write(tmp_path, [row(10, "a 1\n"), row(10.25, "a 2\n"), row(10.5, "a 3\n")]))
    assert [recording.index_at(t_s) for t_s in (0, 10, 10.2, 10.25, 10.4, 11)] == [0, 0, 0, 1, 1, 2]
    assert recording.end_s == 10.75


BAD_TIMELINES = {
    "not JSON": ("{", "timeline.jsonl:2: not JSON"),
    "not an object": ("[1]", "timeline.jsonl:2: b'[1]' is not a JSON object"),
    "not UTF-8": (b"\xff{}", "timeline.jsonl:2: not JSON"),
    "no status": ('{"t": 2}', "timeline.jsonl:2: status is None; expected a number"),
    "odd status": ('{"t": 2, "status": 17}', "timeline.jsonl:2: status is 17; expected 0 (no answer) or 200 to 599"),
    "bad t": ('{"t": "now", "status": 200}', "timeline.jsonl:2: t is 'now'; expected a number"),
    "NaN": ('{"t": NaN, "status": 200}', "timeline.jsonl:2: t is nan; expected a number"),
    "backwards": ('{"t": 0.5, "status": 200}', "timeline.jsonl:2: t is 0.5, before the line above it (1.0)"),
    "odd error": ('{"t": 2, "status": 0, "error": "Boom"}', "timeline.jsonl:2: status 0 with error 'Boom'"),
    "no page": (
        '{"t": 2, "status": 200, "file": "0009.prom.gz"}',
        "timeline.jsonl:2: its page 0009.prom.gz is missing",
    ),
    "outside": ('{"t": 2, "status": 200, "file": "../x.gz"}', "timeline.jsonl:2: file is '../x.gz'; expected the name"),
    "two lines": ('{"t": 2, "status": 200, "headers": {"A": "b\\r\\nC: d"}}', "timeline.jsonl:2: header 'A' is"),
    "list": ('{"t": 2, "status": 200, "headers": ["A"]}', "timeline.jsonl:2: headers is ['A']; expected an object"),
}


@pytest.mark.parametrize(("text", "said"), BAD_TIMELINES.values(), ids=BAD_TIMELINES)
def test_bad_line_is_told_with_its_place(tmp_path, text, said):
    """A line that cannot be used is one error with file:line and what was expected; it counts as bad usage."""
    write(tmp_path, [row(1.0, "a 1\n")])
    with (tmp_path / "timeline.jsonl").open("ab") as timeline:
        timeline.write(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        Recording.load(tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_folder_that_is_no_recording(tmp_path):
    """No folder, no timeline and an empty timeline are told apart, in a line each."""
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        Recording.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"no timeline\.jsonl in it"):
        Recording.load(tmp_path)
    (tmp_path / "timeline.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match="it has no lines"):
        Recording.load(tmp_path)
    (tmp_path / "timeline.jsonl").unlink()
    write(tmp_path, [failed(1, "refused")])
    (tmp_path / "events.jsonl").write_text('{"ev": "start"}\n')
    with pytest.raises(ConfigError, match=r"events\.jsonl:1: t is None"):
        Recording.load(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"\x1f\x8b\x08 not gzip", b"plain", "cut"])
def test_damaged_page_is_told_at_once(tmp_path, damage):
    """A page that cannot be unpacked is found when the recording is loaded, and named."""
    folder = write(tmp_path, [row(1, "a 1\n" * 100)])
    page = folder / "0001.prom.gz"
    page.write_bytes(page.read_bytes()[:-9] if damage == "cut" else damage)
    with pytest.raises(ConfigError, match=r"0001\.prom\.gz: cannot unpack the page"):
        Recording.load(folder)


def test_page_too_large_is_not_read(tmp_path, monkeypatch):
    """A page that unpacks to more than the limit is refused instead of filling the memory."""
    monkeypatch.setattr("infscale.recording.PAGE_LIMIT_BYTES", 1 << 20)
    folder = write(tmp_path, [row(1, "a 1\n")])
    (folder / "0001.prom.gz").write_bytes(gzip.compress(bytes(2 << 20)))
    with pytest.raises(ConfigError, match="it unpacks to more than 1 MiB"):
        Recording.load(folder)


def test_page_that_vanishes_is_a_fault_of_the_source(tmp_path):
    """A page deleted after loading is an error with its path, and status 1."""
    folder = tmp_path / "run"
    shutil.copytree(VLLM, folder)
    recording = Recording.load(folder)
    line = next(line for line in recording.lines if line.file)
    (folder / line.file).unlink()
    with pytest.raises(SourceError, match=line.file) as caught:
        recording.page(line)
    assert caught.value.exit_code == 1
