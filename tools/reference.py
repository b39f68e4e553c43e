"""Write docs/reference from the code: `python tools/reference.py`. A test holds the pages to it.

Each page is made by a module of tools/reference_pages. docs/metrics.md is made by metrics_table.py beside this.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "exporter"), str(ROOT / "sim")]

from tools.reference_pages import configuration, engines, flags, policy, rules  # noqa: E402

FOLDER = ROOT / "docs" / "reference"


def pages() -> dict[str, str]:
    """Every page of the folder by its file's name."""
    return {
        "flags.md": flags.page(),
        "policy.md": policy.page(),
        "engines.md": engines.page(),
        "configuration.md": configuration.page(),
        "rules.md": rules.page(),
    }


def main() -> None:
    """Write the pages, and take away what is made no more."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for path in FOLDER.iterdir():
        if path.name not in made:
            path.unlink()
    for name, page in made.items():
        (FOLDER / name).write_text(page, encoding="utf-8", newline="\n")
    print(f"wrote {len(made)} pages: {FOLDER.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
