"""`infscale check-config`: what it says of good and bad files of both kinds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infscale.cli import run

EXAMPLES = sorted((Path(__file__).parent.parent / "docs" / "examples").glob("*.yaml"))


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Writes the contents into `0.yaml`, `1.yaml` and so on, and checks them: exit status, output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run_it(*contents: str) -> tuple[int, str, str]:
        for number, content in enumerate(contents):
            Path(f"{number}.yaml").write_text(content, encoding="utf-8")
        status = run(["check-config", *(f"{number}.yaml" for number in range(len(contents)))])
        out, err = capsys.readouterr()
        return status, out, err

    return run_it


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_of_the_documentation_are_good(path, capsys):
    """Every example file can be used."""
    status = run(["check-config", str(path)])

    assert (status, capsys.readouterr().out.startswith(f"{path}: ok: ")) == (0, True)


def test_there_are_examples():
    """The examples are found where the documentation keeps them."""
    assert EXAMPLES


def test_what_was_understood_is_said(check):
    """A good file's line tells the engine, the URLs and what each profile counts."""
    status, out, err = check(
        "engine: mine\nengine-url: [http://a:1/metrics, http://a:2/metrics]\n"
        "profiles: [{name: mine, prefix: my, running: run, waiting: wait, queues: [q]}, {name: vllm, total: t}]\n"
    )

    assert (status, err) == (0, "")
    assert out == (
        "0.yaml: ok: engine mine; engine-url http://a:1/metrics http://a:2/metrics;"
        " profile mine (in flight = my:run + my:wait + my:q);"
        " profile vllm instead of the built-in one (in flight = t)\n"
    )


def test_bad_files_are_a_line_each_and_the_others_are_checked(check):
    """Each bad file is one line on standard error; good ones are still told; exit 2."""
    status, out, err = check("enigne: vllm", "engine: vllm", "profiles: [{name: x, runing: a}]", "engine: vlm")

    assert (status, out) == (2, "1.yaml: ok: engine vllm\n")
    lines = err.splitlines()
    assert lines[0] == "infscale: 0.yaml: enigne: unknown key, did you mean 'engine'?"
    assert lines[1] == "infscale: 2.yaml: profiles[0].runing: unknown key, did you mean 'running'?"
    assert lines[2].startswith("infscale: 3.yaml: engine: unknown engine 'vlm'; known are ")
    assert len(lines) == 3


def test_flags_of_every_command_are_known(check):
    """One file may hold the flags of several commands."""
    assert check("interval: 5\nweb.listen-address: :10047\n")[0] == 0


def test_web_configuration_is_known_by_its_keys(check):
    """A web configuration file is checked as one."""
    status, out, err = check(
        "http_server_config: {http2: false}\n", "basic_auth_user: {}\n", "tls_server_config: {x: y}\n"
    )

    assert status == 2
    assert out == "0.yaml: ok: web configuration with http_server_config\n"
    assert [line.split(":")[1].strip() for line in err.splitlines()] == ["1.yaml", "2.yaml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing argument 'FILE...'"),
        (["none.yaml"], "none.yaml: cannot be read: No such file or directory"),
        (["--frobnicate"], "no such option '--frobnicate'"),
    ],
)
def test_bad_usage_is_one_line_and_2(check, capsys, arguments, said):
    """Without files, with one that is not there or an unknown flag: exit 2 and a line."""
    status = run(["check-config", *arguments])

    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.startswith(f"infscale: {said}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("content", "status", "errors"), [("engine: vllm", 0, 0), (": : :", 2, 1)])
def test_process_ends_with_its_status(tmp_path, content, status, errors):
    """A real process: 0 for a good file, 2 and one line for a bad one."""
    (tmp_path / "x.yaml").write_text(content, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "infscale", "check-config", "x.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (done.returncode, len(done.stderr.splitlines())) == (status, errors)
