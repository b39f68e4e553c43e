"""`infscale drain` at a shell: its lines, its formats, its status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infscale.cli import run as infscale
from infscale.drain.report import DrainReport

from ..raw_server import Call, raw_server
from .matrix import BUSY, IDLE, page, serving, status


def drained(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The status of `infscale drain`, its standard output and its standard error."""
    code = infscale(["drain", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_live_lines_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """A drain on the wall clock: a line when it settles, one for each read, the verdict; `--sidecar-url` has it too."""
    bodies: list[bytes] = []

    def sidecar(call: Call) -> None:
        length = int(call.header("Content-Length") or 0)
        while len(call.request.partition(b"\r\n\r\n")[2]) < length:
            call.request += call.connection.recv(65536)
        bodies.append(call.request.partition(b"\r\n\r\n")[2])
        call.page(b"")

    with raw_server(serving(IDLE)) as server, raw_server(sidecar) as listener:
        told = ("--engine-url", server.url(), "--grace", "15", "--sidecar-url", listener.url("/"))
        code, out, err = drained(capsys, *told)
        assert listener.calls[0].path == "/drain/report"
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].lstrip() == "0.0 s  settling for 5 s; a drain of at most 10 s (15 s of grace)"
    assert [line.split()[2:] for line in lines[1:3]] == [["idle", "in", "flight", "0", "connections", "0"]] * 2
    assert lines[3].startswith("idle after ")
    assert [DrainReport.from_json(body).outcome for body in bodies] == ["idle"]


def test_lines_come_while_the_drain_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """A line is written when its read has ended, not at the end."""
    seen = []

    def engine(call: Call) -> None:
        seen.append(capsys.readouterr().out)
        call.page(IDLE)

    with raw_server(engine) as server:
        drained(capsys, "--url", server.url(), "--grace", "15", "--dry-run")
    assert seen[0] == ""
    assert "idle" in seen[1]


def test_dry_run_reads_twice_at_once_and_says_what_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    """`--dry-run` does not settle and does not wait for the engine."""
    with raw_server(serving(BUSY)) as server:
        code, out, _ = drained(capsys, "--url", server.url(), "--grace", "3600", "--dry-run")
        assert len(server.calls) == 2
    assert code == 0
    last = out.splitlines()[-1]
    assert last.startswith("busy now: a drain would go on, of at most 3595 s in a grace period of 3600 s")
    with raw_server(serving(IDLE)) as server:
        _, out, _ = drained(capsys, "--url", server.url(), "--dry-run")
    assert out.splitlines()[-1] == "idle now: a drain would settle and return after about 6 s"


def test_json_is_the_report_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """`--format json` prints one line; the reads go to standard error."""
    with raw_server(serving(page(running=2))) as server:
        _, out, err = drained(
            capsys, "--url", server.url(), "--grace", "60", "--exit-reserve", "20", "--dry-run", "--format", "json"
        )
    report = DrainReport.from_json(out)
    assert json.loads(out)["inflight"] == 2
    assert (report.outcome, report.engine, report.grace_s, report.deadline_s) == ("deadline", "vllm", 60, 40)
    assert err.count("busy") == 2


def test_why_nothing_was_measured_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The engine's flag that helps stands in the line."""
    with raw_server(status("501 Not Implemented")) as server:
        code, out, _ = drained(capsys, "--url", server.url(), "--engine", "llama.cpp", "--dry-run")
    assert code == 0
    assert "start llama-server with --metrics" in out.splitlines()[-1]


def test_key_is_sent_and_never_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--engine.token-file` holds the engine's key."""
    (tmp_path / "key").write_text("s3cret\n")
    keys = []

    def engine(call: Call) -> None:
        keys.append(call.header("Authorization"))
        call.page(b"s3cret", status="401 Unauthorized")

    with raw_server(engine) as server:
        _, out, err = drained(capsys, "--url", server.url(), "--engine.token-file", str(tmp_path / "key"), "--dry-run")
    assert set(keys) == {"Bearer s3cret"}
    assert "s3cret" not in out + err


def test_leader_url_stands_for_the_engines(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker has no page of its own: the leader's will do."""
    with raw_server(serving(IDLE)) as server:
        assert drained(capsys, "--leader-url", server.url(), "--dry-run")[0] == 0
        assert len(server.calls) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no engine is named: expected --engine-url URL"),
        (("--url", "127.0.0.1:8000"), "has no scheme"),
        (("--url", "http://127.0.0.1:1/", "--grace", "10"), "--grace is 10 s: expected 15 to 3600"),
        (("--url", "http://127.0.0.1:1/", "--exit-reserve", "25"), "at least 35 s"),
        (("--url", "http://127.0.0.1:1/", "--grace", "soon"), "'soon' is not a number of seconds"),
        (("--url", "http://127.0.0.1:1/", "--engine", "vlm"), "unknown engine 'vlm'"),
        (("--url", "http://127.0.0.1:1/", "--engine.token-file", "/no/such"), "/no/such"),
        (("--url", "http://127.0.0.1:1/", "--on-http-error", "stay"), "'stay' is not one of"),
    ],
)
def test_bad_usage_is_status_2(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be used is told in one line before anything is read."""
    code, out, err = drained(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
