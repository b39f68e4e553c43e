"""The package: complete, and of use where only its wheel is."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from infscale import __version__
from infscale.cli import COMMANDS

ROOT = Path(__file__).parent.parent
PACKAGES = {"exporter": "infscale", "sim": "infscale_sim"}
"""The two source folders and the package in each."""


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.ConfigParser:
    """The parsed setup.cfg."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_package_list_is_complete(setup_cfg):
    """setup.cfg lists every package there is: a missing one works from the source but is not in the wheel."""
    there = {
        ".".join(path.parent.relative_to(ROOT / folder).parts)
        for folder in ("exporter", "sim")
        for path in (ROOT / folder).rglob("__init__.py")
    }

    assert sorted(setup_cfg["options"]["packages"].split()) == sorted(there)


def test_package_data_is_complete(setup_cfg):
    """setup.cfg names every file that is no module; the caches of tools are none."""
    there = {
        path.relative_to(ROOT / folder).as_posix()
        for folder in ("exporter", "sim")
        for path in (ROOT / folder / PACKAGES[folder]).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }

    assert package_data(setup_cfg) == there


def test_every_folder_with_code_is_a_package():
    """No folder of modules lacks its __init__.py, which would leave it out of the package list unseen."""
    sources = [*(ROOT / "exporter").rglob("*.py"), *(ROOT / "sim").rglob("*.py")]

    assert {path.parent for path in sources if not (path.parent / "__init__.py").exists()} == set()


def test_pins_hold_every_dependency(setup_cfg):
    """constraints.txt pins each library that setup.cfg names, so that two runs of make install the same."""
    pins = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    lists = [setup_cfg["options"]["install_requires"], *setup_cfg["options.extras_require"].values()]
    named = {line.partition(">=")[0].lower().replace("_", "-") for text in lists for line in text.split()}

    assert named - pins == set()


def run(*command: str | Path, timeout: float = 50) -> subprocess.CompletedProcess[str]:
    """Run a program away from the source tree, with no environment variable that would lead back to it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "INFSCALE", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=env, cwd="/", timeout=timeout, check=False
    )


def done(result: subprocess.CompletedProcess[str]) -> str:
    """The standard output of a program that must have worked."""
    assert result.returncode == 0, f"{result.args}: {result.stderr or result.stdout}"
    return result.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of what the build needs."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    done(run("cp", "-r", *(ROOT / name for name in BUILD_NEEDS), source))
    done(run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source))
    (built,) = out.glob("*.whl")
    return built


BUILD_NEEDS = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "exporter", "sim")
"""What the Dockerfile copies too."""


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a virtual environment that has the wheel and its dependencies, and nothing else."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(home, with_pip=True, symlinks=True)
    pip = (home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    done(run(*pip, "-c", ROOT / "constraints.txt", wheel, timeout=150))
    return home / "bin"


def package_data(setup_cfg: configparser.ConfigParser) -> set[str]:
    """The files that setup.cfg's package_data names, as they stand in the wheel."""
    found = set()
    for package, patterns in setup_cfg["options.package_data"].items():
        folder = Path(*package.split(".")) if package != "*" else Path("**")
        for source in (ROOT / "exporter", ROOT / "sim"):
            for pattern in patterns.replace(",", " ").split():
                found |= {path.relative_to(source).as_posix() for path in source.glob((folder / pattern).as_posix())}
    return found


def test_wheel_holds_the_sources_and_nothing_else(wheel, setup_cfg):
    """Each module and each file of package_data is in the wheel, the licence too; no test and no tool is."""
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        path.relative_to(ROOT / folder).as_posix()
        for folder in ("exporter", "sim")
        for path in (ROOT / folder).rglob("*")
        if path.suffix == ".py"
    } | package_data(setup_cfg)
    code = {name for name in names if ".dist-info/" not in name}

    assert code == sources
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.timeout(240)
def test_installed_wheel_tells_its_version(installed):
    """`infscale --version` works where only the wheel is."""
    assert done(run(installed / "infscale", "--version")) == f"infscale {__version__}\n"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("command", COMMANDS)
def test_installed_wheel_helps_with_every_command(installed, command):
    """Every command's --help works where only the wheel is, and shows how it is called."""
    text = done(run(installed / "infscale", command, "--help"))

    assert text.startswith(f"Usage: infscale {command} ")


@pytest.mark.timeout(240)
def test_installed_wheel_helps(installed):
    """`infscale --help` lists every command with its line."""
    text = " ".join(done(run(installed / "infscale", "--help")).split())

    assert [name for name, entry in COMMANDS.items() if f"{name} {entry.help}" not in text] == []
