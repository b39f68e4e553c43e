"""Options and fixtures that every test may use.

`--recordings=DIR` names a folder of further recorded runs (with the =, or pytest takes DIR for its root); a test that
wants them takes the fixture `recording`, which stands for each of them in turn. `--traces=DIR` names a folder of public
request traces (normalised/, servegen/, burstgpt/); a test that wants it takes the fixture `traces`. `--crds=DIR` names
a folder of CustomResourceDefinitions, a file each; a test that wants them takes the fixture `crds`. `--image=NAME`
names a container image; a test that wants it takes the fixture `image`. Without its option such a test is left out, and
the closing summary says so.
`--update-golden` rewrites the golden files instead of comparing with them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import settings

from infscale.logs import StderrHandler

DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "golden"

settings.register_profile("infscale", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "infscale")

_FURTHER = {
    "recording": ("--recordings=DIR", "further recorded runs", "make test RECORDINGS=DIR"),
    "traces": ("--traces=DIR", "public traces", "make test TRACES=DIR"),
    "crds": ("--crds=DIR", "CustomResourceDefinitions", "make test CRDS=DIR"),
    "image": ("--image=NAME", "the container image", "make image-test"),
}
"""What a test can want by a fixture's name: the option that gives it, what it is, and how to run with it."""

_NOT_RUN = pytest.StashKey[dict[str, list[str]]]()


class Golden(Protocol):
    """Compares a text with `tests/data/golden/NAME`."""

    def __call__(self, name: str, text: str) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the project's own options."""
    group = parser.getgroup("infscale")
    group.addoption("--recordings", metavar="DIR", help="folder of further recorded runs, a folder each")
    group.addoption("--traces", metavar="DIR", help="folder of public request traces")
    group.addoption("--crds", metavar="DIR", help="folder of CustomResourceDefinitions, in any depth")
    group.addoption("--image", metavar="NAME", help="container image, as buildah knows it")
    group.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a folder that is not what its option says, before anything runs."""
    config.stash[_NOT_RUN] = {}
    folder = config.getoption("--recordings")
    if folder and not recordings_in(Path(folder)):
        raise pytest.UsageError(f"--recordings {folder}: no folder in it has a timeline.jsonl")
    traces = config.getoption("--traces")
    if traces and not (Path(traces) / "normalised").is_dir():
        raise pytest.UsageError(f"--traces {traces}: no folder normalised in it")
    crds = config.getoption("--crds")
    if crds and not any(Path(crds).rglob("*.yaml")):
        raise pytest.UsageError(f"--crds {crds}: no .yaml file in it")


def recordings_in(folder: Path) -> list[Path]:
    """The recorded runs (folders with a timeline.jsonl) in a folder, by name; none if it does not exist."""
    return sorted(path.parent for path in folder.glob("*/timeline.jsonl"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the fixture `recording` each of the runs in `--recordings DIR`."""
    if "recording" not in metafunc.fixturenames:
        return
    folder = metafunc.config.getoption("--recordings")
    runs = recordings_in(Path(folder)) if folder else []
    metafunc.parametrize("recording", runs, ids=[run.name for run in runs])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that want data which no option names, and remember which."""
    for fixture, (option, _, _) in _FURTHER.items():
        if config.getoption(option.partition("=")[0]):
            continue
        wanting = [item for item in items if fixture in getattr(item, "fixturenames", ())]
        config.stash[_NOT_RUN][fixture] = sorted({item.nodeid.split("[")[0] for item in wanting})
        items[:] = [item for item in items if item not in wanting]
        config.hook.pytest_deselected(items=wanting)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells the process that writes the summary what it left out: each collects all tests."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["not_run"] = session.config.stash[_NOT_RUN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker left out; a worker that died has told nothing."""
    node.config.stash[_NOT_RUN].update(getattr(node, "workeroutput", {}).get("not_run", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say on which Pythons the travelling modules ran, and which tests did not run for want of data."""
    pythons = {
        value
        for report in terminalreporter.stats.get("passed", ())
        for key, value in report.user_properties
        if key == "python"
    }
    if pythons:
        terminalreporter.line(
            "Modules that travel ran on Python " + ", ".join(sorted(pythons, key=lambda v: int(v[2:])))
        )
    not_run = {fixture: names for fixture, names in config.stash[_NOT_RUN].items() if names}
    if not_run:
        terminalreporter.section("not run")
    for fixture, names in not_run.items():
        option, what, how = _FURTHER[fixture]
        terminalreporter.line(f"Without {option} {len(names)} tests over {what} were left out ({how}):")
        for name in names:
            terminalreporter.line(f"  {name}")


@pytest.fixture(scope="session")
def traces(pytestconfig: pytest.Config) -> Path:
    """The folder of public traces."""
    return Path(pytestconfig.getoption("--traces"))


@pytest.fixture(scope="session")
def crds(pytestconfig: pytest.Config) -> Path:
    """The folder of CustomResourceDefinitions."""
    return Path(pytestconfig.getoption("--crds"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with its golden file; `--update-golden` writes the file instead."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.exists(), f"no golden file {name}: run pytest with --update-golden and read what it wrote"
        assert text == path.read_text(encoding="utf-8"), f"{name} differs: if that is meant, --update-golden"

    return compare


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A test that sets logging up leaves no level and no handler behind: the next one may stand in any order."""
    root, named = logging.getLogger(), [logging.getLogger(name) for name in ("infscale", "infscale_sim")]
    handlers, levels = root.handlers[:], [logger.level for logger in named]
    yield
    for handler in [handler for handler in root.handlers if isinstance(handler, StderrHandler)]:
        if handler not in handlers:
            root.removeHandler(handler)
    for logger, level in zip(named, levels, strict=True):
        logger.setLevel(level)
