"""The zip application: what is in it, that it runs on every Python, and how it is written."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from infscale import __version__
from infscale.cli import cli
from infscale.cli.install_hook import command
from infscale.drain import hook, launcher, options
from infscale.drain.arguments import REPORT_FILE, SIDECAR_URL, parse
from infscale.drain.bundle import install, zip_application
from infscale.engines import PROFILES
from infscale.engines.custom import profile_from_mapping
from infscale.errors import SourceError
from tests.test_imports import PYTHONS, TRAVELLERS

CUSTOM = """
engine: mine
engine-url: http://127.0.0.1:7000/metrics
profiles:
  - {name: mine, prefix: mine, running: running, waiting: waiting}
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The zip application alone in a folder."""
    path = tmp_path / launcher.ZIP_NAME
    path.write_bytes(zip_application())
    return path


def modules(bundle: Path) -> set[str]:
    """The dotted names of what is in a zip application, but for `__main__`."""
    names = set(zipfile.ZipFile(bundle).namelist()) - {"__main__.py"}
    return {name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in names}


def test_same_sources_give_the_same_bytes(bundle):
    """Two builds are equal, and no file in them tells when it was made."""
    infos = zipfile.ZipFile(bundle).infolist()

    assert zip_application() == bundle.read_bytes()
    assert {(info.date_time, info.compress_type) for info in infos} == {((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED)}
    assert {(info.create_system, info.external_attr >> 16) for info in infos} == {(3, 0o644)}, "Unix, for all to read"
    assert infos[0].filename == "__main__.py"


def test_holds_what_the_hook_needs_and_no_more(bundle):
    """The hook is in it, every engine and the parser; no module that does not travel, and none of the sidecar's."""
    names = modules(bundle)
    engines = {name for name in TRAVELLERS if name.startswith("infscale.engines")}

    assert {"infscale.drain.hook", "infscale.normalise", "infscale.scrape"} | engines <= names
    assert names - set(TRAVELLERS) == set()
    assert {"infscale", "infscale.drain", "infscale.engines.custom"} <= names, "packages, and what is imported late"


IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    __import__(name)
    assert sys.modules[name].__file__.startswith(sys.argv[1]), name
print("imported", len(sys.argv) - 2)
"""


@pytest.mark.parametrize(("version", "python"), PYTHONS.items(), ids=PYTHONS)
def test_every_module_imports_from_the_zip_alone(version, python, bundle):
    """With nothing but the zip and the standard library (-I -S -B) each module imports, on every Python from 3.9 on."""
    names = sorted(modules(bundle))

    done = subprocess.run(
        [python, "-I", "-S", "-B", "-W", "error", "-c", IMPORT, bundle, *names],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.stderr, done.stdout) == ("", f"imported {len(names)}\n"), f"Python {version}"


def test_an_older_python_is_told_apart(bundle):
    """Where the interpreter is older than 3.9 the zip ends with status 3 before it imports anything."""
    source = zipfile.ZipFile(bundle).read("__main__.py").decode()
    older = f"import sys; sys.version_info = (3, 8, 20); exec({source!r})"

    done = subprocess.run([sys.executable, "-I", "-S", "-c", older], capture_output=True, timeout=50, check=False)

    assert (done.returncode, done.stderr) == (3, b"")


def test_install_writes_three_readable_files(tmp_path):
    """Launcher, zip and profiles are readable for every user, whatever the umask, and nothing else is left there."""
    before = os.umask(0o077)
    try:
        install(tmp_path / "a" / "hook", ["--grace", "30"])
    finally:
        os.umask(before)
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a" / "hook").iterdir()}

    assert files == {"infscale-drain": 0o755, "infscale-drain.pyz": 0o644, "profiles.json": 0o644}
    assert stat.S_IMODE((tmp_path / "a" / "hook").stat().st_mode) == 0o755


def test_install_replaces_files_at_once(tmp_path):
    """Into a folder that exists, files are replaced and not rewritten: who reads the old one reads it to its end."""
    install(tmp_path, ["--grace", "30"])
    other = tmp_path / "other.txt"
    other.write_text("stays")
    with (tmp_path / launcher.NAME).open() as old:
        install(tmp_path, ["--grace", "60"])
        was = old.read()

    assert "--grace 30" in was
    assert "--grace 60" in (tmp_path / launcher.NAME).read_text()
    assert other.read_text() == "stays"
    assert len(list(tmp_path.iterdir())) == 4


def test_install_needs_no_other_folder(tmp_path, monkeypatch):
    """No /tmp that can be written, and no rename from one file system to another: all happens in the folder itself."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no-such-folder"))

    install(tmp_path / "hook", [])

    assert len(list((tmp_path / "hook").iterdir())) == 3


@pytest.mark.parametrize("name", ["infscale-drain", "infscale-drain.pyz", "profiles.json"])
def test_install_leaves_nothing_half_written(name, tmp_path):
    """A file that cannot be replaced is told in one line; nothing of it lies about, and what is there stays."""
    (tmp_path / name / "kept").mkdir(parents=True)

    with pytest.raises(SourceError, match=r"^\S+: the hook cannot be written there: [A-Z][^\n]+$"):
        install(tmp_path, [])

    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert (tmp_path / name / "kept").is_dir()


def test_install_into_a_file_is_one_line(tmp_path):
    """A folder that cannot be made is told with its name."""
    (tmp_path / "file").write_text("")

    with pytest.raises(SourceError, match="file/hook: the hook cannot be written there: "):
        install(tmp_path / "file" / "hook", [])


def invoke(*words: str | Path) -> str:
    """The output of `infscale install-hook` with these words; it must have worked."""
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_command_prints_what_to_paste(tmp_path):
    """The default command is printed as a preStop hook, with the grace period once more for the Pod."""
    text = invoke(tmp_path, "--engine", "vllm", "--url", "http://127.0.0.1:8000/metrics", "--grace", "120")

    words = json.loads(text.split("command: ")[1].splitlines()[0])
    path = str(tmp_path / "infscale-drain")
    url = ["--url", "http://127.0.0.1:8000/metrics"]
    assert words == ["sh", path, "--engine", "vllm", *url, "--grace", "120"]
    assert "terminationGracePeriodSeconds: 120" in text


def test_url_and_engine_url_are_one_option(tmp_path):
    """`--url` and `--engine-url` mean the same in the command and in the hook."""
    texts = {invoke(tmp_path, option, "http://127.0.0.1:1/m") for option in ("--url", "--engine-url")}
    options = [parse([option, "http://127.0.0.1:1/m"]).options for option in ("--url", "--engine-url")]

    assert len(texts) == 1
    assert options == [{"url": "http://127.0.0.1:1/m"}] * 2


def test_every_option_of_the_command_reaches_the_hook(tmp_path):
    """What the command renders, the hook's own parser reads: nothing is ignored."""
    text = invoke(
        *(tmp_path, "--engine", "sglang", "--url", "https://localhost:30000/metrics", "--grace", "90"),
        *("--exit-reserve", "20.5", "--max-grace", "60", "--no-connections", "--drain-stale-after", "30"),
        *("--on-http-error", "return", "--leader-url", "http://leader:1/metrics", "--sidecar-url", "http://[::1]:1"),
        *("--engine.token-file", "/run/key"),
    )

    found = parse(json.loads(text.split("command: ")[1].splitlines()[0])[2:])
    assert found.ignored == []
    assert found.sidecar_url == "http://[::1]:1"
    assert found.options == {
        "engine": "sglang",
        "url": "https://localhost:30000/metrics",
        "grace_s": 90.0,
        "exit_reserve_s": 20.5,
        "max_grace_s": 60.0,
        "connections": False,
        "stale_after_s": 30.0,
        "on_http_error": "return",
        "leader_url": "http://leader:1/metrics",
        "token_file": "/run/key",
    }


def test_too_short_a_grace_is_refused(tmp_path):
    """A grace period below the exit reserve and 10 s is refused when the hook is rendered, and nothing is written."""
    done = CliRunner().invoke(cli, ["install-hook", str(tmp_path / "x"), "--grace", "29", "--exit-reserve", "20"])

    assert done.exit_code != 0
    assert "--grace is 29 s and --exit-reserve 20 s" in str(done.exception)
    assert not (tmp_path / "x").exists()


def test_a_nodes_limit_that_leaves_no_time_is_refused(tmp_path):
    """A limit of the node below the exit reserve and 10 s would make a hook that never reads: it is not written."""
    words = ("--grace", "60", "--exit-reserve", "20", "--max-grace")
    done = CliRunner().invoke(cli, ["install-hook", str(tmp_path / "x"), *words, "29"])

    assert str(done.exception).startswith("--max-grace is 29 s: expected at least 30 s, 10 s more than --exit-reserve")
    assert not (tmp_path / "x").exists()
    invoke(tmp_path / "x", *words, "30")


@pytest.mark.parametrize("flag", ["--config", "--config.file"])
def test_profiles_of_a_configuration_file_travel_as_json(flag, tmp_path):
    """An engine of the user's own stands beside the zip in JSON, and the file's settings hold."""
    file = tmp_path / "infscale.yaml"
    file.write_text(CUSTOM)

    text = invoke(tmp_path / "hook", flag, file)

    text_of_profiles = (tmp_path / "hook" / "profiles.json").read_text()
    assert text_of_profiles.startswith('[\n {\n  "name": "mine",\n'), "for people to read"
    (mapping,) = json.loads(text_of_profiles)
    assert profile_from_mapping(mapping).name == "mine"
    assert '"--engine", "mine", "--url", "http://127.0.0.1:7000/metrics"' in text


def test_a_selector_travels_in_the_profile(tmp_path):
    """`--engine.select` becomes part of the engine's profile beside the zip."""
    invoke(tmp_path, "--engine", "vllm", "--engine.select", "engine=1")

    (mapping,) = json.loads((tmp_path / "profiles.json").read_text())
    assert profile_from_mapping(mapping).select == (*PROFILES["vllm"].select, ("engine", "1"))


def test_needs_no_home_and_no_environment(tmp_path):
    """The command works with an empty environment, as in an image without users."""
    script = f"import sys; sys.path[:0] = {sys.path!r}; from infscale.cli import main; main()"

    done = subprocess.run(
        [sys.executable, "-I", "-c", script, "install-hook", tmp_path / "hook"],
        env={},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "hook" / "infscale-drain.pyz").stat().st_size < 400_000


@pytest.mark.parametrize(
    ("words", "kept", "ignored"),
    [
        (["--grace", "60", "--grace=90"], {"grace_s": 90.0}, []),
        (["--grace"], {}, ["--grace: expected a value"]),
        (["--grace", "--engine", "vllm"], {"engine": "vllm"}, ["--grace: expected a value"]),
        (["--grace", "soon"], {}, ["--grace 'soon': expected seconds, as 30"]),
        (["--grace", "-5"], {}, ["--grace '-5': expected seconds, as 30"]),
        (["--grace", "7.5"], {"grace_s": 7.5}, []),
        (["--grace", "7.5.0"], {}, ["--grace '7.5.0': expected seconds, as 30"]),
        (["--grace", "³"], {}, ["--grace '³': expected seconds, as 30"]),
        (["--grace", "123456789"], {"grace_s": 123456789.0}, []),
        (["--grace", "1234567890"], {}, ["--grace '1234567890': expected seconds, as 30"]),
        (["--grace", "nan"], {}, ["--grace 'nan': expected seconds, as 30"]),
        (["--what", "5", "--engine", "vllm"], {"engine": "vllm"}, ["--what 5: unknown option"]),
        (["word", "--what=5"], {}, ["word: unknown option", "--what=5: unknown option"]),
        (["--connections"], {"connections": True}, []),
        (["--connections", "off", "--engine", "x"], {"connections": False, "engine": "x"}, []),
        (["--connections=auto"], {"connections": None}, []),
        (["--no-connections"], {"connections": False}, []),
        (["--connections=perhaps"], {}, ["--connections=perhaps: expected on, off or auto"]),
        (["--url="], {"url": ""}, []),
        ([""], {}, [": unknown option"]),
    ],
)
def test_no_command_line_makes_the_hook_fail(words, kept, ignored):
    """What cannot be used is named, and everything else holds."""
    found = parse(words)

    assert (found.options, found.ignored) == (kept, ignored)
    assert (found.sidecar_url, found.report_file) == (SIDECAR_URL, REPORT_FILE)


def test_whom_the_hook_tells_is_no_option_of_the_drain():
    """The sidecar, the log and the launcher's start have fields of their own; a later word wins."""
    found = parse(["--sidecar-url", "a", "--sidecar-url=b", "--report-file", "log", "--started", "7.25"])

    assert (found.sidecar_url, found.report_file, found.started) == ("b", "log", "7.25")
    assert (found.options, found.ignored) == ({}, [])


def test_the_launcher_says_what_it_is_and_where_it_looks():
    """Its version, the zip beside it, every place of a Python and the defaults as one word each; nothing left open."""
    script = launcher.render(["--engine", "an engine"])

    assert f"the preStop hook of infscale {__version__}.\n" in script
    assert f'"$here/{launcher.ZIP_NAME}"' in script
    assert f"for python in python3 python {' '.join(f'{place}/python3' for place in launcher.PLACES)}; do" in script
    assert "set -- --engine 'an engine' \"$@\"\n" in script
    assert re.findall("@[A-Z]+@", script) == []


def test_numbers_stand_once():
    """The launcher and the hook's last resort wait for the drain's own settle time."""
    script = launcher.render([])

    assert options.SETTLE_S == hook.SETTLE_S
    assert f"settle={options.SETTLE_S:g} grace=30 reserve=5 most=3600 sidecar={SIDECAR_URL}" in script
