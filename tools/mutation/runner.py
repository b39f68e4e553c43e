"""Runs the tests against mutants without collecting them anew each time, which takes longer than most kills.

The tests are collected once, in the process that is forked for each mutant; the fork runs the ones that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.config import _prepareconfig
from mutmut.runners.harness import PytestRunner  # type: ignore[import-not-found,unused-ignore]
from mutmut.utils.file_utils import change_cwd  # type: ignore[import-not-found,unused-ignore]
from mutmut.workers.isolation import ForkRunner  # type: ignore[import-not-found,unused-ignore]

KILLED, SURVIVED = 1, 0


def _sees_much(item: pytest.Item) -> bool:
    """Whether a test compares with a golden file."""
    return "golden" in getattr(item, "fixturenames", ())


class Collected(PytestRunner):  # type: ignore[misc,unused-ignore]
    """Before `collect` as mutmut's own: pytest from the start."""

    _session: pytest.Session | None = None
    _items: dict[str, pytest.Item]

    def collect(self) -> None:
        """Collect every test of the package, in this process."""
        with change_cwd("mutants"):
            options = ["--rootdir=.", "--tb=native", "-x", "-q", "-s", "-p", "no:randomly"]
            arguments = [*options, *self._pytest_add_cli_args_test_selection, *self._pytest_add_cli_args]
            config = _prepareconfig(arguments)
            config._do_configure()
            session = pytest.Session.from_config(config)
            config.hook.pytest_sessionstart(session=session)
            session.perform_collect()
        config.pluginmanager.unregister(name="terminalreporter")
        self._session, self._items = session, {item.nodeid: item for item in session.items}

    def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        """Run these tests until one fails: first those of the mutated module and those that see much, else as given."""
        session = self._session
        if session is None:
            return int(super().run_tests(mutant_name=mutant_name, tests=tests))
        with change_cwd("mutants"):
            own = f"/test_{(mutant_name or '').split('.')[-2:][0]}.py::"
            items = [self._items[test] for test in tests]
            session.items = sorted(items, key=lambda item: own not in item.nodeid and not _sees_much(item))
            try:
                session.config.hook.pytest_runtestloop(session=session)
            except BaseException:  # an exit, or pytest's own Failed at the first failure
                return KILLED
        return KILLED if session.testsfailed else SURVIVED


class Runner(ForkRunner):  # type: ignore[misc,unused-ignore]
    """Forks what has collected."""

    def startup(self) -> None:
        """Collect once all is ready, and before the first fork."""
        self.test_runner.collect()
        super().startup()
