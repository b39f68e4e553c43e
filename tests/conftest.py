"""Options and fixtures that every test may use.

`--recordings=DIR` names a folder of further recorded runs (with the =, or pytest takes DIR for its root); a test that
wants them takes the fixture `recording`, which stands for each of them in turn. `--traces=DIR` names a folder of public
request traces (normalised/, servegen/, burstgpt/); a test that wants it takes the fixture `traces`. Without its option
such a test is left out, and the closing summary says so.
`--update-golden` rewrites the golden files instead of comparing with them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings

DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "golden"

settings.register_profile("infscale", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "infscale")

_FURTHER = {"recording": ("recordings", "further recorded runs"), "traces": ("traces", "public traces")}
"""What a test can want by a fixture's name: the option that names the folder, and what is in it."""

_NOT_RUN = pytest.StashKey[dict[str, list[str]]]()


class Golden(Protocol):
    """Compares a text with `tests/data/golden/NAME`."""

    def __call__(self, name: str, text: str) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the project's own options."""
    group = parser.getgroup("infscale")
    group.addoption("--recordings", metavar="DIR", help="folder of further recorded runs, a folder each")
    group.addoption("--traces", metavar="DIR", help="folder of public request traces")
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
    for fixture, (option, _) in _FURTHER.items():
        if config.getoption(f"--{option}"):
            continue
        wanting = [item for item in items if fixture in getattr(item, "fixturenames", ())]
        config.stash[_NOT_RUN][fixture] = sorted({item.nodeid.split("[")[0] for item in wanting})
        items[:] = [item for item in items if item not in wanting]
        config.hook.pytest_deselected(items=wanting)


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
        option, what = _FURTHER[fixture]
        terminalreporter.line(
            f"Without --{option}=DIR {len(names)} tests over {what} were left out (make test {option.upper()}=DIR):"
        )
        for name in names:
            terminalreporter.line(f"  {name}")


@pytest.fixture(scope="session")
def traces(pytestconfig: pytest.Config) -> Path:
    """The folder of public traces."""
    return Path(pytestconfig.getoption("--traces"))


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
