"""A drain's report: one line of JSON there and back, and nothing else taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.drain.report import MAX_REPORT_BYTES, DrainReport
from infscale.drain.timeline import OUTCOMES
from infscale.errors import ConfigError

FULL = DrainReport(
    outcome="deadline",
    seconds=25.0,
    reads=20,
    busy_reads=18,
    timeouts=2,
    missing=1,
    unusable=1,
    inflight=3.0,
    connections=4,
    grace_s=30.0,
    deadline_s=25.0,
    engine="vllm",
    restarted=True,
    note="why",
)


def test_report_is_one_line_with_every_field() -> None:
    """Outcome, seconds, reads, busy reads, time-outs, missing gauges, in flight, connections, grace and deadline."""
    line = FULL.to_json()
    assert "\n" not in line
    assert json.loads(line) == {**vars(FULL), "inflight": 3}
    assert '"inflight": 3,' in line, "a whole count has no fraction"
    assert json.loads(DrainReport("idle", seconds=6.12356).to_json())["seconds"] == 6.124


@given(
    st.sampled_from(OUTCOMES),
    st.floats(0, 3600),
    st.one_of(st.none(), st.integers(0, 10**6)),
    st.text(max_size=300).map(lambda text: "".join(c if c.isprintable() else " " for c in text)),
)
def test_report_there_and_back(outcome: str, seconds: float, connections: int | None, note: str) -> None:
    """What is written is read back, to the millisecond."""
    report = DrainReport(outcome, seconds=round(seconds, 3), connections=connections, note=note)
    assert DrainReport.from_json(report.to_json().encode()) == report
    assert DrainReport.from_json(FULL.to_json()) == FULL


def test_a_part_of_a_request_in_flight_is_taken() -> None:
    """An engine may show a gauge of 0.5; its other fields are whole."""
    assert DrainReport.from_json('{"outcome": "deadline", "inflight": 0.5, "seconds": 1.25}').inflight == 0.5
    assert json.loads(DrainReport("deadline", inflight=0.5).to_json())["inflight"] == 0.5


def test_a_report_of_the_greatest_size_is_taken() -> None:
    """16 KiB are read, and one byte more is not; whose report it was is said where it is known."""
    line = DrainReport("idle").to_json()
    assert DrainReport.from_json(line.ljust(MAX_REPORT_BYTES)) == DrainReport("idle")
    with pytest.raises(ConfigError, match=r"^a report of 16385 bytes: expected at most 16384$"):
        DrainReport.from_json(line.ljust(MAX_REPORT_BYTES + 1))


def test_unknown_fields_are_left_out() -> None:
    """An older sidecar takes a newer hook's report."""
    assert DrainReport.from_json('{"outcome": "idle", "colour": "red"}') == DrainReport("idle")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "expected a mapping"),
        ("{}", "outcome: missing"),
        ("nothing", "not JSON (Expecting value: line 1 column 1 (char 0)): expected a drain's report"),
        ('{"outcome": "done"}', "expected one of idle, fresh"),
        ('{"outcome": "done"}', "got 'done'"),
        ('{"outcome": 7}', "expected text"),
        ('{"outcome": "idle", "reads": 1.5}', "reads: expected a whole number"),
        ('{"outcome": "idle", "reads": true}', "reads: expected a number"),
        ('{"outcome": "idle", "seconds": -1}', "seconds: expected a number from 0"),
        ('{"outcome": "idle", "seconds": NaN}', "seconds: expected a number"),
        ('{"outcome": "idle", "inflight": "3"}', "inflight: expected a number"),
        ('{"outcome": "idle", "restarted": 1}', "restarted: expected true or false, got the number 1"),
        ('{"outcome": "idle", "reads": 1000000001}', "reads: expected a number from 0 to"),
        ('{"outcome": "idle", "reads": 1' + "0" * 400 + "}", "reads: expected a number, got the number 1000"),
        ('{"outcome": "idle", "engine": ["vllm"]}', "engine: expected text"),
        ("[" * 15000, "not JSON"),
        ('"' + "x" * MAX_REPORT_BYTES + '"', "expected at most"),
        (b"\xff\xfe\xfd", "not JSON"),
    ],
)
def test_what_is_no_report_is_refused(text: str | bytes, said: str) -> None:
    """Whoever posts anything else is told in one line where it is wrong."""
    with pytest.raises(ConfigError) as caught:
        DrainReport.from_json(text, "10.0.0.7")
    assert said in str(caught.value)
    assert str(caught.value).startswith("10.0.0.7: ")
    assert "\n" not in str(caught.value)


def test_text_is_cut_and_made_printable() -> None:
    """A note of another's cannot break a log line, however long it is."""
    report = DrainReport.from_json(json.dumps({"outcome": "idle", "note": "a\nb\x1b[31m" + "x" * 1000}))
    assert report.note.startswith("a b [31m")
    assert len(report.note) == 300
