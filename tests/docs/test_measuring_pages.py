"""The pages on load, drains, traces and tuning, whose commands take their time: each command runs."""

from __future__ import annotations

import pytest

from tests.docs.shell import run_page
from tests.docs.table import MEASURING


@pytest.mark.parametrize("page", MEASURING)
def test_commands_of_page(page, tmp_path, stand_ins):
    """Every command that is not marked runs in an empty folder, and prints what the page shows."""
    run_page(page, tmp_path, stand_ins)
