"""The launcher: every way that an image leaves it, in each shell of this machine. All hooks run side by side."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infscale.drain.report import DrainReport
from tests.drain.engine import EngineProcess
from tests.drain.hooked import NOWHERE, SHELLS, SideBySide, install, tools
from tests.raw_server import Call, raw_server

GRACE_S = 15
RETURN_S = GRACE_S - 3
ANSWER = b'{"outcome": "idle"}\n'
WAITED = "infscale-drain: waited for the settle time of 5 s and looked at no request: "
PROXIES = dict.fromkeys(("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"), NOWHERE)
BARE = [name for name in SHELLS if name != "busybox"]  # which may have a wget of its own, whatever PATH says


def sidecar(call: Call) -> None:
    """A sidecar whose drain takes a second; one at /hangs never ends."""
    call.hang(30.0 if call.path.startswith("/hangs") else 1.0)
    call.page(ANSWER)


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    """All hooks of this module, under way."""
    folder = tmp_path_factory.mktemp("launcher")
    runs = SideBySide()
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(EngineProcess())
        server = stack.enter_context(raw_server(sidecar))
        stack.callback(runs.close)
        # The hooks of this module all read one engine: to each of them the others are clients.
        told = ("--engine", "vllm", "--url", engine.url, "--grace", str(GRACE_S), "--no-connections")
        hook = install(folder / "hook", *told, "--sidecar-url", server.url(""))
        for name, shell in SHELLS.items():
            start_forms(runs, name, [*shell, hook], folder / name)
        start_faults(runs, ["/bin/sh", hook], server.url(""), folder)
        runs.start("other user", ["/bin/sh", "-c", as_nobody(stack, hook)])
        yield runs


def start_forms(runs: SideBySide, name: str, command: list[str | Path], folder: Path) -> None:
    """The three forms, in one shell."""
    quiet = [*command, "--report-file", ""]
    runs.start(f"{name}: python", quiet, {**tools(folder / "py", "sleep", "python3"), **PROXIES})
    runs.start(f"{name}: curl", command, {**tools(folder / "curl", "sleep", "curl"), **PROXIES})
    runs.start(f"{name}: wget", command, {**tools(folder / "wget", "sleep", "wget"), **PROXIES})
    runs.start(f"{name}: nothing", command, tools(folder / "nothing", "sleep"))


def start_faults(runs: SideBySide, command: list[str | Path], sidecar_url: str, folder: Path) -> None:
    """What may go wrong with a form that is there."""
    quiet = [*command, "--report-file", ""]
    aged = tools(folder / "aged", "sleep", "python", python3="exit 3")
    runs.start("python3 is too old", quiet, aged)
    broken = tools(folder / "broken", "sleep", "curl", python3="echo oh no >&2; exit 127")
    runs.start("python3 is broken", command, broken)
    runs.start("python3 hangs", command, tools(folder / "hangs", "sleep", "curl", python3="exec sleep 60"))
    hanging = ["--sidecar-url", f"{sidecar_url}/hangs"]
    for client in ("curl", "wget"):
        runs.start(f"{client} hangs", [*command, *hanging], tools(folder / f"hangs-{client}", "sleep", client))
    gone = ["--sidecar-url", NOWHERE]
    runs.start("no sidecar", [*command, *gone], tools(folder / "gone", "sleep", "curl"))
    runs.start("no sleep", command, tools(folder / "no-sleep"))
    runs.start("no PATH", [*quiet, *gone], {"PATH": ""})
    odd = ["--what", "--grace", "08", "--exit-reserve=soon", "word"]
    runs.start("odd options", [*quiet, *odd], tools(folder / "odd", "sleep", "python3"))
    runs.start("odd options, no python", [*command, *odd], tools(folder / "odd-curl", "sleep", "curl"))
    runs.start("no URL", [*quiet, "--url", "what", *gone], tools(folder / "no-url", "sleep", "python3"))


def as_nobody(stack: contextlib.ExitStack, hook: Path) -> str:
    """A shell command that runs the hook as another user, from a read-only folder, without the executable bit."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for file in hook.parent.iterdir():
        shutil.copy(file, folder)
        (folder / file.name).chmod(0o444)
    folder.chmod(0o555)
    drop = "setpriv --reuid 65534 --regid 65534 --clear-groups " if os.geteuid() == 0 else ""
    return f"cd / && PATH=/usr/bin:/bin exec {drop}sh {folder}/infscale-drain --report-file ''"


@pytest.mark.parametrize("shell", SHELLS)
def test_with_python(shell, hooks):
    """With a Python on PATH the zip runs, whatever proxies there are, and an idle engine costs 6 s."""
    hooked = hooks[f"{shell}: python"]

    report = DrainReport.from_json(hooked.out)
    assert (hooked.status, hooked.err) == (0, "")
    assert (report.outcome, report.reads, report.engine) == ("idle", 2, "vllm")
    assert 6 <= report.seconds <= hooked.seconds < RETURN_S


@pytest.mark.parametrize(("shell", "client"), [*((shell, "curl") for shell in SHELLS), *((s, "wget") for s in BARE)])
def test_without_python(shell, client, hooks):
    """Without a Python the sidecar is asked, past any proxy, and its answer is the output."""
    hooked = hooks[f"{shell}: {client}"]

    assert (hooked.status, hooked.out, hooked.err) == (0, ANSWER.decode(), "")
    assert hooked.seconds >= 1


@pytest.mark.parametrize("shell", BARE)
def test_without_python_and_client(shell, hooks):
    """Without Python, curl and wget the settle time is waited for, and a line says so."""
    hooked = hooks[f"{shell}: nothing"]

    assert (hooked.status, hooked.err) == (0, "")
    assert hooked.out == f"{WAITED}no Python from 3.9 on, neither curl nor wget\n"
    assert 5 <= hooked.seconds < RETURN_S


def test_python3_too_old(hooks):
    """A python3 that is too old is passed over without a word, and the next name is tried."""
    hooked = hooks["python3 is too old"]

    assert (hooked.status, hooked.err) == (0, "")
    assert DrainReport.from_json(hooked.out).outcome == "idle"


def test_python3_broken(hooks):
    """An interpreter that does not start is named, and the sidecar is asked."""
    hooked = hooks["python3 is broken"]

    assert (hooked.status, hooked.out) == (0, ANSWER.decode())
    assert hooked.err.startswith("oh no\ninfscale-drain: python3 could not run ")
    assert hooked.err.endswith("/hook/infscale-drain.pyz (exit status 127)\n")


def test_python3_hangs(hooks):
    """An interpreter that hangs is ended in time: the hook has returned 3 s before the grace period is over."""
    hooked = hooks["python3 hangs"]

    assert hooked.status == 0
    assert RETURN_S - 3 < hooked.seconds < RETURN_S


@pytest.mark.parametrize("client", ["curl", "wget"])
def test_sidecar_hangs(client, hooks):
    """A sidecar that never answers is not waited for beyond 3 s before the grace period's end."""
    hooked = hooks[f"{client} hangs"]

    assert hooked.status == 0
    assert RETURN_S - 3 < hooked.seconds < RETURN_S


def test_no_sidecar(hooks):
    """Where nobody answers at the sidecar's address the settle time is waited for, and the line names the address."""
    hooked = hooks["no sidecar"]

    assert hooked.status == 0
    assert hooked.out == f"{WAITED}no Python from 3.9 on, no answer from {NOWHERE}/drain with curl\n"
    assert 5 <= hooked.seconds < RETURN_S


def test_no_sleep(hooks):
    """Where PATH has not even `sleep`, the usual place has."""
    hooked = hooks["no sleep"]

    assert (hooked.status, hooked.err) == (0, "")
    assert hooked.seconds >= 5


def test_no_path(hooks):
    """An empty PATH means the usual one."""
    hooked = hooks["no PATH"]

    assert hooked.status == 0
    assert hooked.seconds >= 5


def test_odd_options(hooks):
    """Options that make no sense are named in the output and in the report, and the drain is made with what is left."""
    hooked = hooks["odd options"]

    report = DrainReport.from_json(hooked.out)
    assert hooked.status == 0
    assert (report.outcome, report.grace_s, report.deadline_s) == ("idle", 15, 10)
    assert hooked.err.splitlines() == [
        "infscale-drain: ignored --what: unknown option",
        "infscale-drain: ignored --exit-reserve 'soon': expected seconds, as 30",
        "infscale-drain: ignored word: unknown option",
        "infscale-drain: ignored --grace 8.0: it is 15.0",
    ]
    assert "--what: unknown option" in report.note


def test_odd_options_without_python(hooks):
    """The shell half takes odd options as well."""
    hooked = hooks["odd options, no python"]

    assert (hooked.status, hooked.out, hooked.err) == (0, ANSWER.decode(), "")


def test_no_url(hooks):
    """A URL that is none: the hook says so, and what is left is the settle time."""
    hooked = hooks["no URL"]

    assert hooked.status == 0
    assert hooked.err.startswith("infscale-drain: the drain could not be done: UsageError: URL 'what' has no scheme")
    assert hooked.out == f"{WAITED}the drain could not be done, neither curl nor wget\n"
    assert hooked.seconds >= 5


def test_other_user_and_nothing_writable(hooks):
    """As another user, from a folder that is read-only and without the executable bit, the hook works."""
    hooked = hooks["other user"]

    assert hooked.status == 0
    assert hooked.seconds >= 5
    assert hooked.out.startswith(('{"outcome": "idle"', WAITED))


def test_interrupted(tmp_path):
    """SIGTERM ends the launcher and what it runs at once, with status 0."""
    hook = install(tmp_path / "hook", "--url", f"{NOWHERE}/metrics")
    process = subprocess.Popen(
        ["/bin/sh", hook, "--report-file", ""], env=tools(tmp_path / "bin", "sleep", "python3"), stdout=subprocess.PIPE
    )
    with process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while len(children.read_text().split()) < 2:  # the zip, and the guard of its time
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        process.communicate(timeout=30)  # the output ends when all that hold it have ended

    assert process.returncode == 0
