"""The pages with the simulator's tables and pictures: they show what it prints and draws."""

from __future__ import annotations

import pytest

from tests.docs.fences import ROOT
from tests.docs.shell import run_page
from tests.docs.table import SIMULATOR


@pytest.mark.parametrize("page", SIMULATOR)
def test_commands_of_page(page, tmp_path, stand_ins):
    """Every command that is not marked runs in an empty folder, and prints what the page shows."""
    run_page(page, tmp_path, stand_ins)

    for picture in (tmp_path / "work").glob("*.svg"):
        kept = ROOT / "docs" / picture.name
        assert picture.read_text() == kept.read_text(), f"docs/{picture.name} is not what {page} makes: make it anew"
