"""All other pages with commands, new ones too: each command runs."""

from __future__ import annotations

import pytest

from tests.docs.fences import MARKS, of_commands, pages
from tests.docs.shell import run_page
from tests.docs.table import MEASURING, SIMULATOR

PAGES = [
    page
    for page in pages()
    if page not in (*SIMULATOR, *MEASURING) and any(fence.mark not in MARKS for fence in of_commands(page))
]


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_page(page, tmp_path, stand_ins):
    """Every command that is not marked runs in an empty folder, and prints what the page shows."""
    run_page(page, tmp_path, stand_ins)
