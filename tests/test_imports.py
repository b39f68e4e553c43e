"""The modules that travel to Pods: they need no library and run on every Python from 3.9 on."""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from infscale.normalise import read_page

ROOT = Path(__file__).parent.parent
EXPORTER = ROOT / "exporter"
PAGES = ROOT / "tests" / "data" / "pages"
MARK = "Runs on Python 3.9"
"""Stands in the docstring of a module that travels, or of its package."""

ROOTS = ("errors", "exposition", "engines", "reading", "watch", "scrape")
"""What travels in any case: from a page to what it means."""


def module_of(path: Path) -> str:
    """The dotted name of a file below the exporter folder."""
    return ".".join(path.relative_to(EXPORTER).with_suffix("").parts).removesuffix(".__init__")


def travellers() -> dict[str, Path]:
    """ROOTS, and the modules that say of themselves that they travel, with their files."""
    found = {}
    for path in sorted((EXPORTER / "infscale").rglob("*.py")):
        name = module_of(path)
        rooted = name.split(".")[1:2] and name.split(".")[1] in ROOTS
        if rooted or name == "infscale" or MARK in (ast.get_docstring(ast.parse(path.read_text())) or ""):
            found[name] = path
    return found


TRAVELLERS = travellers()
MODULES = {module_of(path) for path in (EXPORTER / "infscale").rglob("*.py")}
CORE = {module_of(path): path for path in sorted((EXPORTER / "infscale" / "core").rglob("*.py"))}


def test_ruff_knows_what_travels():
    """Ruff checks each of them as Python 3.9, so that newer syntax is an error before a Pod finds it."""
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    globs = [glob for glob, version in ruff["per-file-target-version"].items() if version == "py39"]
    covered = {path for glob in globs for path in expand(glob)}

    assert {name for name, path in TRAVELLERS.items() if path not in covered} == set()


def expand(glob: str) -> list[Path]:
    """The files that one of ruff's globs means, with at most one `{a,b}`."""
    head, _, rest = glob.partition("{")
    names, _, tail = rest.partition("}")
    return [path for name in names.split(",") for path in ROOT.glob((head + name + tail).replace("**.py", "**/*.py"))]


def interpreters() -> dict[str, str]:
    """The Pythons from 3.9 on that this machine has, one per version: {"3.9": path}."""
    candidates = [sys.executable]
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidates += sorted(str(path) for path in Path(folder or ".").glob("python3.*") if path.suffix[1:].isdigit())
    candidates += sorted(str(path) for path in pyenv_versions().glob("*/bin/python3"))
    found: dict[str, str] = {}
    for path in candidates:
        version = version_of(path)
        if version and tuple(map(int, version.split("."))) >= (3, 9):
            found.setdefault(version, path)
    return dict(sorted(found.items(), key=lambda item: int(item[0].split(".")[1])))


def pyenv_versions() -> Path:
    """The folder in which pyenv keeps its Pythons; one that does not exist where there is no pyenv."""
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return Path("no-pyenv")
    root = subprocess.run([pyenv, "root"], capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    return Path(root or "no-pyenv") / "versions"


def version_of(path: str) -> str:
    """`3.12` of an interpreter; empty if it does not run (pyenv's shims of versions that are not chosen do not)."""
    try:
        done = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.fullmatch(r"Python (3\.\d+)\..*", done.stdout.strip())
    return match[1] if match else ""


PYTHONS = interpreters()


def imports_of(path: Path) -> set[str]:
    """The absolute names that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are written in full here"
            module = str(node.module)
            inside = {f"{module}.{alias.name}" for alias in node.names} & MODULES
            names.update(inside if module == "infscale" and inside else {module})
    return names


@pytest.mark.parametrize("module", [*TRAVELLERS, *CORE])
def test_imports_standard_library_and_each_other_only(module):
    """A module that travels imports nothing but the standard library and its like; so does the core."""
    family = TRAVELLERS if module in TRAVELLERS else {**CORE, "infscale.errors": TRAVELLERS["infscale.errors"]}

    names = imports_of(family[module])

    assert {name for name in names if name.split(".")[0] not in sys.stdlib_module_names and name not in family} == set()


SCRIPT = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[3].split(","):
    importlib.import_module(name)
from infscale.normalise import read_page
from infscale.scrape import Target, fetch
for name in sys.argv[4:]:
    print(name, read_page(fetch(Target(sys.argv[2] + name)).body.decode(), histograms=True))
"""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves the pages without a line in the log."""

    def log_message(self, format, *args):
        """Say nothing."""


@pytest.fixture(scope="module")
def pages_url():
    """The address at which the tests' pages are served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(PAGES))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("version", "python"), PYTHONS.items(), ids=PYTHONS)
def test_travelling_modules_run_on_every_python(version, python, pages_url, record_property):
    """In a bare interpreter (-I -S -B: no library, no environment) all import, and fetch and read pages as here."""
    names = sorted(path.name for path in PAGES.glob("*.prom"))
    here = "".join(f"{name} {read_page((PAGES / name).read_text(), histograms=True)}\n" for name in names)

    done = subprocess.run(
        [python, "-I", "-S", "-B", "-W", "error", "-c", SCRIPT, EXPORTER, pages_url, ",".join(TRAVELLERS), *names],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), f"Python {version}"
    assert done.stdout == here
    record_property("python", version)
