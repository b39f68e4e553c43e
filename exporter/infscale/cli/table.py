"""Rows of text as aligned columns, for commands that print a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from infscale.errors import printable


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """One line a row, columns two spaces apart; those in `right` (indices) flush right. All rows have one length."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
