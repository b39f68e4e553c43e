"""The documentation: its links lead somewhere, and no flag is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from infscale.cli import COMMANDS, cli

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")])


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    """Every relative link of a page leads to a file, and its anchor to a heading there."""
    broken = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]*)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_documented(command):
    """Each flag of each command stands in the guides."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name != "reference")
    found = cli.get_command(click.Context(cli), command)
    assert found is not None

    flags = {flag for parameter in found.params if isinstance(parameter, click.Option) for flag in parameter.opts}

    assert sorted(flag for flag in flags if flag.startswith("--") and not re.search(rf"{flag}(?![\w.-])", text)) == []
