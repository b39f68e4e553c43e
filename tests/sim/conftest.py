"""The browser: tests that take the fixture `browser` run where Chromium is on the PATH.

Elsewhere they are left out, and the closing summary says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim.chromium import NAMES, Browser, chromium

_NOT_RUN = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that want a browser where there is none, and remember which."""
    wanting = [] if chromium() else [item for item in items if "browser" in getattr(item, "fixturenames", ())]
    config.stash[_NOT_RUN] = sorted({item.nodeid for item in wanting})
    items[:] = [item for item in items if item not in wanting]
    config.hook.pytest_deselected(items=wanting)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which tests did not run for want of a browser."""
    names = config.stash.get(_NOT_RUN, [])
    if not names:
        return
    terminalreporter.section("not run: no browser")
    terminalreporter.line(f"Without {', '.join(NAMES)} on the PATH {len(names)} tests were left out:")
    for name in names:
        terminalreporter.line(f"  {name}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium with one page."""
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started
