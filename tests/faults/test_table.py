"""docs/faults.md: each row names the test that makes its fault happen, and each of these tests has a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "faults.md").read_text(encoding="utf-8")


def names_in(name: str) -> set[str]:
    """The tests of a file of this folder, as the page names them."""
    tree = ast.parse((HERE / name).read_text(encoding="utf-8"))
    found = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return {f"{name}::{function}" for function in found if function.startswith("test_")}


def test_every_row_names_a_test_that_is_there():
    """Four cells, of which the last is a test of this folder."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| fault")]
    known = set().union(*(names_in(path.name) for path in HERE.glob("test_*.py")))
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, row
        assert cells[3].strip("`") in known, row


def test_every_fault_has_a_row():
    """No test of a fault without its row."""
    named = set(re.findall(r"`(test_\w+\.py::test_\w+)`", PAGE))
    for name in ("test_engine.py", "test_sources.py", "test_kube.py", "test_state.py", "test_clock.py"):
        assert names_in(name) <= named
