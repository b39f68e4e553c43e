"""What a newcomer has to find: every page, every target of the Makefile, and how made files are made anew."""

from __future__ import annotations

import re

from tests.docs.fences import ROOT, pages

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_page_is_found_from_the_readme():
    """No page is left that only those who know of it can read."""
    found, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in found or page.suffix != ".md":
            continue
        found.add(page)
        links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
        ahead += [(page.parent / link).resolve() for link in links]

    assert sorted(set(pages()) - {page.relative_to(ROOT).as_posix() for page in found}) == []


def test_every_target_is_described():
    """CONTRIBUTING has what `make help` lists."""
    described = re.findall(r"`make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    targets = re.findall(r"(?m)^([a-z-]+):.*##", MAKEFILE)

    assert sorted(set(targets) - {*described}) == []


def test_generate_makes_all_that_is_made():
    """What a file says that it is made by is run by `make generate`."""
    folders = [ROOT / name for name in ("docs", "rules", "k8s/components")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".md", ".yaml")]
    heads = "".join(path.read_text(encoding="utf-8")[:400] for path in files)
    makers = set(re.findall(r"(?:# |<!-- |\. )Made by `?(?:python -m )?([\w./]+\w)", heads))
    recipe = re.search(r"(?m)^generate:.*\n((?:\t.*\n)+)", MAKEFILE)
    assert recipe is not None
    run = {word.removesuffix(".py").replace("/", ".") for word in re.findall(r"[\w./]+", recipe[1])}

    assert len(makers) > 3
    assert {maker.removesuffix(".py").replace("/", ".") for maker in makers} <= run
