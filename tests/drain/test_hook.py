"""The hook in this process: what it makes of its command line, and whom it tells. The zip runs it in the slow tests.

The launcher says when it began (`--started`), so a test settles for no longer than it likes: a launcher that began 5 s
ago has settled, and one that began 12 s ago has no time left in a grace period of 15 s.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infscale.drain import hook
from infscale.drain.report import MAX_NOTE_CHARACTERS, DrainReport
from tests.drain.hooked import NOWHERE
from tests.drain.matrix import IDLE, serving
from tests.drain.test_waiting import until
from tests.raw_server import Call, RawServer, raw_server

MINE = {"name": "mine", "prefix": "mine", "running": "busy", "waiting": "queue"}
MINE_IDLE = b"mine:busy 0\nmine:queue 0\n"


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    """The hook ignores SIGALRM, and ends with its process; here the process goes on."""
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hook's volume: where it believes its zip to be."""
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "infscale-drain.pyz")])
    return tmp_path


def ago(seconds: float) -> str:
    """What a launcher that began so long ago says."""
    return str(float(Path("/proc/uptime").read_text().split()[0]) - seconds)


class Said:
    """What a hook did: its status, its report, the report's note and its complaints."""

    def __init__(self, capfd: pytest.CaptureFixture[str], *words: str, began_s: float = 12.0) -> None:
        told = ("--report-file", "", "--sidecar-url", "", "--started", ago(began_s))
        self.status = hook.main([*told, *words])
        self.out, err = capfd.readouterr()
        self.complaints = [line.removeprefix("infscale-drain: ") for line in err.splitlines()]

    @property
    def report(self) -> DrainReport:
        """The line on standard output."""
        assert self.out.count("\n") == 1
        return DrainReport.from_json(self.out)


def test_the_launchers_start_is_the_drains(capfd):
    """What the launcher and the interpreter took is part of the settle time: an idle engine still costs 6 s in all."""
    began_s = time.monotonic()
    with raw_server(serving(IDLE)) as engine:
        said = Said(capfd, "--url", engine.url(), "--grace", "60", began_s=4.5)
        assert len(engine.calls) == 2
    assert (said.status, said.complaints) == (0, [])
    assert (said.report.outcome, said.report.engine, said.report.reads) == ("idle", "vllm", 2)
    assert said.report.seconds >= 6
    assert time.monotonic() - began_s >= 1.4


def test_a_launcher_that_began_too_long_ago_leaves_no_time(capfd):
    """The engine is not read any more, and the report says why."""
    with raw_server(serving(IDLE)) as engine:
        said = Said(capfd, "--url", engine.url(), "--grace", "15")
        assert engine.calls == []
    assert (said.report.outcome, said.report.deadline_s) == ("deadline", 10)
    assert said.report.seconds >= 12
    assert "no time to read" in said.report.note


@pytest.mark.parametrize("started", ["", "soon", "-5", "1e300", "nan", f"{2**40}"])
def test_a_start_that_cannot_be_is_now(started):
    """No launcher, a word, a time to come or one an hour ago: the hook's own start holds."""
    assert hook._spent_s(started) == 0.0
    assert 7 <= hook._spent_s(ago(7)) < 60
    assert hook._spent_s(ago(3700)) == 0.0


def test_where_there_is_no_uptime_the_hooks_own_start_holds(monkeypatch):
    """A sandbox may hide /proc/uptime, or leave it empty."""
    for path in ("/no/such/file", os.devnull):
        monkeypatch.setattr(hook, "_UPTIME", path)
        assert hook._spent_s("5") == 0.0


class Sidecar:
    """Takes what a hook posts to it."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, call: Call) -> None:
        """Take one report."""
        length = int(call.header("Content-Length") or 0)
        while len(call.request.partition(b"\r\n\r\n")[2]) < length:
            call.request += call.connection.recv(65536)
        self.posted.append((call.path, json.loads(call.request.partition(b"\r\n\r\n")[2])))
        call.page(b"")


@pytest.mark.parametrize("slash", ["", "/"])
def test_everybody_is_told(capfd, tmp_path, slash):
    """The sidecar hears of the start and of the end; the engine's log and standard output have the same line."""
    log, sidecar = tmp_path / "log", Sidecar()
    log.write_text("the engine's\n")
    with raw_server(sidecar) as listener, raw_server(serving(IDLE)) as engine:
        told = ("--sidecar-url", listener.url("") + slash, "--report-file", str(log))
        said = Said(capfd, "--engine", "vllm", "--url", engine.url(), "--grace", "60", *told)
        until(lambda: len(sidecar.posted) == 2)
    assert (said.report.outcome, said.report.engine) == ("idle", "vllm")
    assert sidecar.posted == [
        ("/drain/report", {"event": "started", "engine": "vllm", "grace_s": 60.0}),
        ("/drain/report", json.loads(said.out)),
    ]
    assert log.read_text() == "the engine's\n" + said.out


def test_a_sidecar_that_hangs_holds_nobody_up(capfd):
    """With the time almost up the hook gives the sidecar what is left of it, and no more."""
    with raw_server(Call.hang) as sidecar:
        began_s = time.monotonic()
        said = Said(capfd, "--url", f"{NOWHERE}/", "--grace", "15", "--sidecar-url", sidecar.url(""), began_s=13.0)
        spent_s = time.monotonic() - began_s
        until(lambda: len(sidecar.calls) == 2)
    assert (said.status, said.report.outcome) == (0, "deadline")
    assert 0.3 <= spent_s < 3


@pytest.mark.parametrize(
    ("words", "grace_s", "deadline_s", "complaints"),
    [
        (["--grace", "15"], 15, 10, []),
        (["--grace", "14"], 15, 10, ["ignored --grace 14.0: it is 15.0"]),
        (["--grace", "15", "--exit-reserve", "5"], 15, 10, []),
        (["--grace", "15", "--exit-reserve", "4"], 15, 11, []),
        (["--grace", "15", "--exit-reserve", "5.5"], 15, 10, ["ignored --exit-reserve 5.5: it is 5.0"]),
        (["--grace", "60", "--max-grace", "15"], 15, 10, []),
        (["--grace", "9999", "--max-grace", "15"], 15, 10, ["ignored --grace 9999.0: it is 3600.0"]),
        (["--grace", "15", "--max-grace", "0"], 15, 10, ["ignored --max-grace 0.0: there is none"]),
        (["--grace", "15", "--drain-stale-after", "0"], 15, 10, ["ignored --drain-stale-after 0.0: there is none"]),
        (["--grace", "15", "--on-http-error", "stay"], 15, 10, ["ignored --on-http-error stay: it is connections"]),
        (["--grace", "15", "--on-http-error", "return"], 15, 10, []),
        (["--grace", "15", "--what"], 15, 10, ["ignored --what: unknown option"]),
        (["--max-grace", "16"], 16, 11, []),
    ],
)
def test_what_is_out_of_bounds_is_put_right_and_said(words, grace_s, deadline_s, complaints, capfd):
    """The drain is made with what can be used; the rest is on standard error and in the report's note."""
    said = Said(capfd, "--url", f"{NOWHERE}/", *words)

    assert (said.status, said.report.grace_s, said.report.deadline_s) == (0, grace_s, deadline_s)
    assert said.complaints == complaints
    assert all(complaint.removeprefix("ignored ") in said.report.note for complaint in complaints)


def test_without_a_grace_period_it_is_that_of_kubernetes(capfd):
    """30 s hold where nothing is told, and the page of vLLM."""
    said = Said(capfd, began_s=27.0)
    assert (said.report.grace_s, said.report.deadline_s, hook.URL) == (30, 25, "http://127.0.0.1:8000/metrics")


def test_the_note_says_all_that_was_ignored(capfd):
    """After what the drain itself has to say."""
    said = Said(capfd, "--url", f"{NOWHERE}/", "--grace", "15", "--engine", "vlm", "--this", "--that")
    words = said.report.note.split("; ")
    assert words[0] == "a grace period of 15 s leaves no time to read the engine"
    assert words[1:3] == ["--this: unknown option", "--that: unknown option"]
    assert words[3].startswith("engine 'vlm': known are ")
    assert said.report.engine == ""


def test_the_last_post_leaves_time_to_return():
    """0.3 s, less what the hook needs itself, and never nothing: on the loopback address 0.03 s suffice."""
    assert [hook._post_s(left_s) for left_s in (10, 0.33, 0.23, 0.06, 0.01, -5)] == pytest.approx(
        [0.3, 0.3, 0.2, 0.03, 0.03, 0.03]
    )


def test_a_long_command_line_makes_no_report_that_the_sidecar_refuses(capfd):
    """However much of it is of no use, the note stays as short as any."""
    said = Said(capfd, "--url", f"{NOWHERE}/", "--grace", "15", *(f"--what-{number}" for number in range(2000)))
    assert len(said.report.note) == MAX_NOTE_CHARACTERS
    assert len(said.complaints) == 2000


def engine_of(capfd: pytest.CaptureFixture[str], page: bytes, *words: str) -> Said:
    """A drain of an engine with this page."""
    with RawServer(serving(page)) as engine:
        return Said(capfd, "--url", engine.url(), "--grace", "60", *words)


def test_an_engine_that_nobody_knows_is_found_from_its_page(capfd, folder):
    """A name that is none is told with those that are, and the page is read all the same."""
    (folder / "profiles.json").write_text(json.dumps([MINE]))
    said = engine_of(capfd, IDLE, "--engine", "vlm")
    assert (said.report.outcome, said.report.engine) == ("idle", "vllm")
    (complaint,) = said.complaints
    assert complaint.startswith("ignored engine 'vlm': known are ")
    assert {"mine", "vllm", "sglang"} <= set(complaint.partition("known are ")[2].split(", "))


@pytest.mark.parametrize("words", [(), ("--engine", "mine")])
def test_a_profile_beside_the_zip(words, capfd, folder):
    """An engine of the user's own is read by its profile, told or found."""
    (folder / "profiles.json").write_text(json.dumps([MINE]))
    said = engine_of(capfd, MINE_IDLE, *words)
    assert (said.report.engine, said.report.outcome, said.complaints) == ("mine", "idle", [])


def test_a_profile_beside_the_zip_replaces_one_that_is_built_in(capfd, folder):
    """The user's word on an engine goes before ours."""
    (folder / "profiles.json").write_text(json.dumps([{**MINE, "name": "vllm"}]))
    said = engine_of(capfd, MINE_IDLE, "--engine", "vllm")
    assert (said.report.engine, said.report.outcome) == ("vllm", "idle")


def test_a_profile_that_cannot_be_used_is_named(capfd, folder):
    """The others beside it hold, and so do the built-in ones."""
    (folder / "profiles.json").write_text(json.dumps([{"name": "broken"}, MINE]))
    said = engine_of(capfd, MINE_IDLE)
    assert (said.report.engine, said.report.outcome) == ("mine", "idle")
    (complaint,) = said.complaints
    assert complaint.startswith("ignored profiles.json: ")


@pytest.mark.parametrize("text", [None, "", "not JSON", "{}", "7"])
def test_profiles_that_are_none(text, capfd, folder):
    """Without the file, or with something else in it, the built-in engines hold."""
    if text is not None:
        (folder / "profiles.json").write_text(text)
    said = engine_of(capfd, IDLE)
    assert (said.report.engine, said.report.outcome, said.complaints) == ("vllm", "idle", [])


def test_the_launcher_is_told_when_nothing_can_be_done(capfd):
    """Status 4: no other Python will do any better, and the launcher has other ways to wait."""
    said = Said(capfd, "--url", "what")
    assert (said.status, said.out) == (hook.CANNOT, "") == (4, "")
    (complaint,) = said.complaints
    assert complaint.startswith("the drain could not be done: UsageError: URL 'what' has no scheme")


def test_without_a_launcher_requests_settle_even_if_nothing_can_be_done(capfd):
    """Called directly the hook waits itself, for what is left of the settle time, and its status is 0."""
    began_s = time.monotonic()
    status = hook.main(["--url", "what"])
    assert status == 0
    assert hook.SETTLE_S <= time.monotonic() - began_s < 3 * hook.SETTLE_S
    assert "could not be done" in capfd.readouterr().err


def test_the_launchers_alarm_does_not_end_it(capfd):
    """The launcher's guard is for an interpreter that hangs: one that runs ends by itself, and ignores it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    Said(capfd, "--url", f"{NOWHERE}/", "--grace", "15")
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN


def test_an_output_that_is_closed_is_no_fault(capfd):
    """Where nobody reads standard output and standard error the drain ends with status 0."""
    kept = os.dup(1), os.dup(2)
    os.close(1)
    os.close(2)
    try:
        status = hook.main(["--url", f"{NOWHERE}/", "--grace", "3", "--report-file", "", "--started", ago(12)])
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in kept:
            os.close(descriptor)
    assert status == 0
