"""The command line's root: how it finds commands, and that a fault is one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import click
import pytest
from click.testing import CliRunner

from infscale import __version__
from infscale.cli import COMMANDS, Entry, run
from infscale.cli.options import FILE, LISTEN_ADDRESS, PORT, SECONDS, URL, Address, Amount, log_options, option
from infscale.errors import ConfigError, SourceError


def infscale(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "infscale", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        check=False,
    )


@pytest.fixture
def added(monkeypatch):
    """Lets a test add a command to the root."""

    def add(function):
        module = sys.modules[__name__]
        monkeypatch.setattr(module, "_added", click.command("added")(function), raising=False)
        monkeypatch.setattr("infscale.cli.COMMANDS", {**COMMANDS, "added": Entry(f"{__name__}:_added", "For a test.")})

    return add


def test_help_imports_no_command():
    """`infscale --help` imports click and the root alone, whatever commands there are."""
    code = (
        "import sys; from infscale.cli import run; run(['--help'])\n"
        "print(sorted(m for m in sys.modules if m.startswith(('infscale.', 'yaml', 'requests', 'prometheus'))))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout.splitlines()[-1] == "['infscale.cli', 'infscale.errors']"


def test_version():
    """`--version` prints name and version."""
    done = infscale("--version")

    assert (done.returncode, done.stdout) == (0, f"infscale {__version__}\n")


def test_no_command_shows_help():
    """Without a command the help goes to standard error, as bad usage."""
    done = infscale()

    assert (done.returncode, done.stdout) == (2, "")
    assert "Commands:" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--vresion"], "infscale: no such option '--vresion'; did you mean --version? (see 'infscale --help')"),
        (["sidcar"], "infscale: no such command 'sidcar'; did you mean sidecar? (see 'infscale --help')"),
        (["added", "--url", "x"], "infscale: no such option '--url' (see 'infscale added --help')"),
        (
            ["sidecar", "--engine-ulr", "x"],
            "infscale: no such option '--engine-ulr'; did you mean --engine-url? (see 'infscale sidecar --help')",
        ),
    ],
)
def test_bad_usage_is_one_line(added, capsys, arguments, line):
    """Bad usage ends with 2 and one line that names the nearest right word and where to read on."""

    def function():
        raise AssertionError

    added(function)

    assert run(arguments) == 2
    assert capsys.readouterr().err == f"{line}\n"


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (SourceError("http://x/metrics: connection\nrefused"), 1, "infscale: http://x/metrics: connection refused\n"),
        (ConfigError("unknown key 'prot'", source="c.yaml", path="engines[0]"), 2, "c.yaml: engines[0]: unknown key"),
        (ZeroDivisionError("division"), 70, "this is a bug in infscale: ZeroDivisionError: division (INFSCALE_DEBUG=1"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 1, ""),
    ],
    ids=["source", "config", "bug", "interrupt", "closed pipe"],
)
def test_faults_end_in_a_status_and_at_most_a_line(added, capfd, error, status, line):
    """Every kind of fault has its exit status and at most one line, never a traceback."""

    def function():
        raise error

    added(function)

    assert run(["added"]) == status
    text = capfd.readouterr().err
    assert line in text
    assert text.strip().count("\n") == 0


def test_control_sequences_in_an_error_are_text(capsys):
    """What a file, a server or a person wrote does not steer the terminal that an error is shown on."""
    assert run(["decide", "--policy", "\x1b[2Jqueue:24\x07", "--current=1"]) == 2
    said = capsys.readouterr().err
    assert said.rstrip("\n").isprintable()
    assert "\\x1b[2J" in said


def test_debug_shows_the_traceback_of_a_bug(added, monkeypatch):
    """INFSCALE_DEBUG=1 lets an unexpected exception through."""

    def function():
        raise ZeroDivisionError

    added(function)
    monkeypatch.setenv("INFSCALE_DEBUG", "1")

    with pytest.raises(ZeroDivisionError):
        run(["added"])


def test_command_returns_its_status(added):
    """What a command returns is its exit status."""
    added(lambda: 1)

    assert run(["added"]) == 1


def test_another_package_adds_commands(tmp_path):
    """A table behind an entry point of the group `infscale.commands` adds commands, which cannot replace ours."""
    (tmp_path / "extra-1.dist-info").mkdir()
    (tmp_path / "extra-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1\n")
    (tmp_path / "extra-1.dist-info" / "entry_points.txt").write_text("[infscale.commands]\nextra = extra:COMMANDS\n")
    (tmp_path / "extra.py").write_text(
        "import click\n"
        "from infscale.cli import Entry\n"
        "COMMANDS = {'greet': Entry('extra:greet', 'Say hello.'), 'parse': Entry('extra:greet', 'Not ours.')}\n"
        "greet = click.command()(lambda: click.echo('hello'))\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])

    listing = infscale("--help", PYTHONPATH=path).stdout

    assert infscale("greet", PYTHONPATH=path).stdout == "hello\n"
    assert "Say hello." in listing
    assert "Not ours." not in listing


def test_interrupted_process_ends_with_130_and_no_traceback():
    """Ctrl-C ends a real process with 130 and prints no traceback."""
    code = (
        "import sys, time, types, click, infscale.cli as root\n"
        "def wait(): print('up', flush=True); time.sleep(30)\n"
        "module = types.ModuleType('m'); module.command = click.command()(wait)\n"
        "sys.modules['m'] = module; root.COMMANDS['x'] = root.Entry('m:command', ''); sys.argv[1:] = ['x']; root.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)

    assert process.returncode == 130
    assert errors.strip() == ""


def test_closed_output_is_quiet():
    """A reader that closes the pipe early (`| head -0`) sees no complaint."""
    with subprocess.Popen(
        [sys.executable, "-m", "infscale", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()

    assert errors == ""


def parse_with(kind: click.ParamType, value: str) -> object:
    """What a flag of a type makes of a value, or the one line of its error."""
    seen: list[object] = []

    @click.command()
    @option("--the.flag", type=kind)
    def command(the_flag):
        seen.append(the_flag)

    result = CliRunner().invoke(command, ["--the.flag", value])
    return seen[0] if seen else result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (URL, "http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000/metrics"),
        (URL, "https://[::1]/metrics?x=1", "https://[::1]/metrics?x=1"),
        (LISTEN_ADDRESS, ":10047", Address("", 10047)),
        (LISTEN_ADDRESS, "localhost:0", Address("localhost", 0)),
        (LISTEN_ADDRESS, "[::]:10047", Address("::", 10047)),
        (PORT, "65535", 65535),
        (SECONDS, "0.5", 0.5),
        (Amount(0, 3600), "0", 0.0),
    ],
)
def test_good_values(kind, text, value):
    """Each type takes what it is for."""
    assert parse_with(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        (URL, "127.0.0.1:8000/metrics", "has no scheme: expected http:// or https://"),
        (URL, "ftp://x/", "expected http:// or https://"),
        (URL, "http://x:99999/", "port"),
        (URL, "http://me:pass@x/", "--engine.token-file"),
        (LISTEN_ADDRESS, "10047", "expected :PORT, HOST:PORT or [IPV6]:PORT"),
        (LISTEN_ADDRESS, "::1:10047", "expected :PORT, HOST:PORT or [IPV6]:PORT"),
        (LISTEN_ADDRESS, "http://x:80", "expected :PORT, HOST:PORT or [IPV6]:PORT"),
        (LISTEN_ADDRESS, ":70000", "the port must be a number from 0 to 65535"),
        (LISTEN_ADDRESS, "x:", "the port must be a number from 0 to 65535"),
        (PORT, "65536", "65536 is not in the range 0<=x<=65535"),
        (SECONDS, "0", "not a number of seconds above 0"),
        (SECONDS, "-1", "not a number of seconds above 0"),
        (SECONDS, "nan", "not a number of seconds above 0"),
        (SECONDS, "inf", "not a number of seconds above 0"),
        (SECONDS, "2s", "not a number of seconds above 0"),
        (LISTEN_ADDRESS, ":" + "1" * 5000, "the port must be a number from 0 to 65535"),
        (Amount(0, min_open=True), "nan", "not a finite number"),
        (Amount(0, min_open=True), "inf", "not a finite number"),
        (Amount(0, min_open=True), "0", "0.0 is not in the range x>0"),
        (FILE, "/no/such/file", "'/no/such/file' does not exist"),
        (FILE, "/", "'/' is a directory"),
    ],
)
def test_bad_values(kind, text, fault):
    """Each type refuses the rest and says what was expected, and the flag."""
    line = parse_with(kind, text)

    assert isinstance(line, str)
    assert fault in line
    assert "--the.flag" in line


def test_password_in_a_url_is_not_repeated():
    """The refusal of a URL with a password does not print the password."""
    assert "pass" not in str(parse_with(URL, "http://me:hunter2pass@x/")).replace("password", "")


def test_flag_has_one_name_in_the_environment():
    """A flag reads INFSCALE_ + its name, and its help shows default and variable."""

    @click.command()
    @option("--engine.min-interval", type=SECONDS, default=1.0)
    @option("--collector.histograms/--no-collector.histograms", default=True)
    def command(engine_min_interval, collector_histograms):
        click.echo(f"{engine_min_interval} {collector_histograms}")

    runner = CliRunner(env={"INFSCALE_ENGINE_MIN_INTERVAL": "2.5", "INFSCALE_COLLECTOR_HISTOGRAMS": "false"})

    assert runner.invoke(command).stdout == "2.5 False\n"
    text = " ".join(runner.invoke(command, ["--help"]).stdout.split())
    assert "[env var: INFSCALE_ENGINE_MIN_INTERVAL; default: 1.0]" in text
    assert "[env var: INFSCALE_COLLECTOR_HISTOGRAMS; default: collector.histograms]" in text


def test_log_options_set_logging_up():
    """A command with log options logs in the form asked for and sees neither option."""
    import logging

    @click.command()
    @log_options
    def command():
        logging.getLogger("infscale.x").debug("hello", extra={"port": 1})

    result = CliRunner().invoke(command, ["--log.level", "debug", "--log.format", "json"])

    assert '"level": "debug", "msg": "hello", "port": 1}' in result.stderr
