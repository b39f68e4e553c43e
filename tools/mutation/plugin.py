"""Pytest's part in a mutation run (`-p tools.mutation.plugin`): cheap examples, and the mutant in child processes.

Hypothesis draws the same few examples each time and does not shrink what fails: one failure is all that is asked for.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=10,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

PASSED_ON = ("MUTANT_UNDER_TEST", "MUTANT_HITS")

_POPEN: Any = subprocess.Popen
_start = _POPEN.__init__


def _start_with_mutant(self: Any, *args: Any, env: Mapping[str, str] | None = None, **options: Any) -> None:
    """A test that gives a child its own environment gives it the mutant too."""
    if env is not None:
        env = {**{name: os.environ[name] for name in PASSED_ON if name in os.environ}, **env}
    _start(self, *args, env=env, **options)


_POPEN.__init__ = _start_with_mutant


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """While tests are matched to functions: take what the test's child processes called, before mutmut looks."""
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":
        from mutmut.state import state  # type: ignore[import-not-found,unused-ignore]

        hits = Path(os.environ["MUTANT_HITS"])
        if hits.exists():
            state()._stats.update(hits.read_text(encoding="utf-8").split())
            hits.unlink()
    yield
