"""A reader at a shell: types the commands of a page in an empty folder, as they stand there but for `table`."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.docs.fences import MARKS, ROOT, Command, of_commands
from tests.docs.stand_ins import StandIns
from tests.docs.table import ADDRESSES, APPENDED, BESIDE, ENVIRONMENT, FILES, OTHER_STAND_INS, SERVES, command_name

LONG_S = 90.0
"""For one command on a busy machine."""

_LISTENING = re.compile(r"listening\"? address=\S+ (?:requests_)?port=(\d+)")
_NOT_HERE = re.compile(r"(?i)(all|https?|no)_proxy|KUBERNETES_\w+|INFSCALE_\w+")
"""Variables of the tests' own surroundings that no command may see: a proxy, a cluster, flags."""


def run_page(page: str, folder: Path, stand_ins: StandIns) -> None:
    """Types all commands of a page; an assertion names the line of the first that does not do what the page says."""
    shell = Shell(page, folder, stand_ins)
    try:
        for fence in of_commands(page):
            if fence.mark in MARKS:
                continue
            commands = fence.commands()
            assert commands, f"{fence.place}: a fence of {fence.language} with nothing to type"
            for command in commands:
                shell.type(command)
    finally:
        shell.close()


def same(shown: str, printed: str, *, exact: bool) -> bool:
    """Whether a page shows what was printed: blanks do not count, nor numbers unless exact; `...` is any lines."""

    def plain(text: str) -> str:
        words = "\n".join(" ".join(line.split()) for line in text.strip().splitlines())
        return words if exact else re.sub(r"\d[\d,.]*", "0", words)

    parts = re.split(r"(?m)^\.\.\.$\n?", plain(shown) + "\n")
    return re.fullmatch(r"(?:.*\n)*?".join(map(re.escape, parts)), plain(printed) + "\n") is not None


class Shell:
    """The folder, what runs in the background, and where it listens.

    Args:
        page: whose commands are typed.
        folder: empty.
        stand_ins: what the page supposes to be there.
    """

    def __init__(self, page: str, folder: Path, stand_ins: StandIns) -> None:
        self._page, self._stand_ins = page, stand_ins
        self._folder, self._logs = folder / "work", folder / "logs"
        self._running: list[subprocess.Popen[bytes]] = []
        self._own: dict[str, str] = {}
        self._told: dict[str, str] = {}
        for path in (self._folder, self._logs, folder / "bin"):
            path.mkdir()
        for name, text in FILES.get(page, {}).items():
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_text(text, encoding="utf-8")
        for name in BESIDE:
            (self._folder / name).symlink_to(ROOT / name)
        program = folder / "bin" / "infscale"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m infscale "$@"\n')
        program.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not _NOT_HERE.fullmatch(name)}
        where = os.pathsep.join((str(program.parent), kept["PATH"], str(Path(sys.executable).parent)))
        self._environment = {**kept, **ENVIRONMENT, "PATH": where, "PYTHONPATH": os.pathsep.join(sys.path)}

    @property
    def folder(self) -> Path:
        """Where the reader types, and what the commands wrote."""
        return self._folder

    def type(self, command: Command) -> None:
        """Runs one command, and holds what it printed against the page."""
        where = f"{self._page}:{command.line}: {command.text}"
        text = self._as_here(command.text)
        behind = text.endswith("&")
        if behind or command_name(text) in SERVES:
            self._serve(text.removesuffix("&").strip(), where, behind=behind)
            return
        printed = self._run(text, where)
        if command.output is not None:
            assert same(command.output, printed, exact=command.exact), f"{where}\nprinted\n{printed}"

    def close(self) -> None:
        """Ends what still runs."""
        for process in self._running:
            self._end(process)

    def _as_here(self, text: str) -> str:
        """The command with addresses and durations of this machine."""
        if "\n" not in text:
            text = re.sub(r"\s+# .*$", "", text)
        for pattern, name in ADDRESSES:
            for found in set(re.findall(pattern, text)):
                stand_in = OTHER_STAND_INS.get(self._page, {}).get(name, name)
                here = self._own.get(name) or self._stand_ins.place(stand_in)
                self._told[here] = found
                text = text.replace(found, here)
        behind = " &" if text.endswith("&") else ""
        text = text.removesuffix("&").rstrip()
        for pattern, more in APPENDED:
            if re.match(pattern, text):
                text = f"{text} {more}"
        return text + behind

    def _start(self, text: str, log: Path) -> subprocess.Popen[bytes]:
        if command_name(text):
            text = f"exec {text}"  # so that a signal reaches infscale itself
        with log.open("wb") as errors, log.with_suffix(".out").open("wb") as output:
            return subprocess.Popen(
                ["sh", "-c", text],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def _run(self, text: str, where: str) -> str:
        """What it printed, with the page's addresses; its status has to be 0."""
        log = self._log()
        process = self._start(text, log)
        try:
            code = process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{where}\nstill runs after {LONG_S:.0f} s\n{log.read_text()}") from None
        finally:
            self._end(process)
        printed = log.with_suffix(".out").read_text(encoding="utf-8")
        assert code == 0, f"{where}\nended with {code}\n{printed}{log.read_text()}"
        for here, found in self._told.items():
            printed = printed.replace(here, found)
        return printed

    def _serve(self, text: str, where: str, *, behind: bool) -> None:
        """Starts it, waits until it listens, and ends it, unless it stays in the background."""
        name = command_name(text)
        assert name in SERVES, f"{where}\nonly {', '.join(SERVES)} may stay in the background"
        log = self._log()
        process = self._start(text, log)
        self._running.append(process)
        end_s = time.monotonic() + LONG_S
        while len(ports := _LISTENING.findall(log.read_text())) < SERVES[name]:
            assert process.poll() is None, f"{where}\nended with {process.returncode}\n{log.read_text()}"
            assert time.monotonic() < end_s, f"{where}\ndoes not listen\n{log.read_text()}"
            time.sleep(0.05)
        if behind:
            self._own |= {kind: f"127.0.0.1:{port}" for kind, port in zip(_kinds(text), ports, strict=False)}
            return
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) == 0, f"{where}\nended with {process.returncode} when told to\n{log.read_text()}"

    def _log(self) -> Path:
        return self._logs / f"{len(list(self._logs.iterdir()))}.log"

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        """Kills it and what it started; nothing of it is left to wait for."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _kinds(text: str) -> tuple[str, ...]:
    """What listens on the ports of a command that serves, in the order in which it opens them: names of `ADDRESSES`."""
    if command_name(text) == "sim-engine":
        dialect = re.search(r"--dialect (\S+)", text)
        return (dialect[1] if dialect else "vllm",)
    return ("sidecar", "probes", "activator")
