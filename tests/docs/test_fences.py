"""The fences that do not run: each says why, and what it names is there, builds, and has the flags that it gives."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import pytest

from infscale.cli import cli
from tests.docs.fences import (
    COMMANDS,
    MARKS,
    NOT_COMMANDS,
    NUMBERS_VARY,
    ROOT,
    Command,
    Fence,
    fences,
    of_commands,
    pages,
    parse,
)
from tests.docs.shell import same
from tests.docs.table import FILES, MEASURING, OTHER_STAND_INS, SIMULATOR
from tests.k8s.manifests import kustomize, load

PAGE = """\
<!-- needs a cluster -->
```sh
kubectl get pods
```

- in a list:

  ```sh
  echo one   # first
  for n in 1 2; do
    echo $n
  done
  ```

  <!-- numbers vary -->
  ```text
  1
  2
  ```

```console
$ echo two \\
  three
two three
$ true
```
"""


@cache
def marked(page: str) -> tuple[Fence, ...]:
    """The fences of a page that do not run."""
    return tuple(fence for fence in of_commands(page) if fence.mark in MARKS)


CLUSTER_PAGES = [page for page in pages() if marked(page)]


def typed(page: str) -> Iterator[tuple[Command, list[str]]]:
    """The commands of those fences, in words; comments are none."""
    for fence in marked(page):
        for command in fence.commands():
            for line in re.split(r"\||&&|;|\n(?!\s)", command.text.replace("\\\n", " ")):
                words = shlex.split(line, comments=True)
                if words:
                    yield command, words


def test_fences_are_read():
    """Marks, indents, loops, continued lines, outputs and comments of a page come out as a reader sees them."""
    first, second, shown, third = parse("page.md", PAGE)

    assert (first.mark, first.line, first.commands()) == ("needs a cluster", 3, [Command("kubectl get pods", 3)])
    assert second.commands() == [
        Command("echo one   # first", 9),
        Command("for n in 1 2; do\n  echo $n\ndone", 10, "1\n2", exact=False),
    ]
    assert (shown.language, shown.mark) == ("text", NUMBERS_VARY)
    assert third.commands() == [Command("echo two \\\n  three", 22, "two three"), Command("true", 25)]


@pytest.mark.parametrize(
    ("shown", "printed", "exact", "equal"),
    [
        ("a  1\n", "a 1\n\n", True, True),
        ("a 1", "a 2", True, False),
        ("a 1 s, 2.5 %", "a 22 s, 0 %", False, True),
        ("a 1 s", "b 1 s", False, False),
        ("a\n...\nd", "a\nb\nc\nd", True, True),
        ("a\n...\nd", "a\nd", True, True),
        ("a\n...\nd", "a\nb\nc", True, False),
        ("a", "a\nb", True, False),
    ],
)
def test_outputs_are_compared(shown, printed, exact, equal):
    """Blanks do not count, numbers as the page says, and `...` is any number of lines."""
    assert same(shown, printed, exact=exact) is equal


@pytest.mark.parametrize("page", pages())
def test_marks_are_known(page):
    """A fence is of a known language; a mark on commands is one of the reasons that are listed."""
    wrong = [
        f"{fence.place}: language {fence.language!r}, mark {fence.mark!r}"
        for fence in fences(page)
        if fence.language not in (*COMMANDS, *NOT_COMMANDS)
        or (fence.language in COMMANDS and fence.mark not in ("", *MARKS))
    ]
    assert wrong == []


def test_tables_name_pages_that_are_there():
    """No entry of the tables outlives its page."""
    assert {*SIMULATOR, *MEASURING, *FILES, *OTHER_STAND_INS} <= set(pages())


@pytest.mark.parametrize("page", CLUSTER_PAGES)
def test_manifests_are_there_and_build(page):
    """What a command for a cluster applies exists in the repository, and a kustomization of it builds."""
    for command, words in typed(page):
        if words[0] != "kubectl":
            continue
        for flag, value in pairwise(words):
            where = f"{page}:{command.line}: {value}"
            if flag in ("-k", "--kustomize", "kustomize") and not value.startswith("-"):
                assert built(ROOT / value), where
            elif flag in ("-f", "--filename", "--patch-file") and value not in ("-",) and "/" in value:
                assert load((ROOT / value).read_text(encoding="utf-8")), where


@cache
def built(folder: Path) -> bool:
    """Whether a folder builds to at least one object."""
    return bool(kustomize(folder))


@pytest.mark.parametrize("page", CLUSTER_PAGES)
def test_programs_of_ours_are_there(page):
    """What such a command starts of the repository's own is there: a target of the Makefile, a script."""
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    for command, words in typed(page):
        where = f"{page}:{command.line}: {command.text}"
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, where
        elif words[0].endswith(".sh"):
            assert (ROOT / words[0]).is_file(), where


@pytest.mark.parametrize("page", CLUSTER_PAGES)
def test_flags_are_those_of_the_command(page):
    """A command of infscale that does not run in a test has its flags all the same."""
    for command, words in typed(page):
        if Path(words[0]).name != "infscale" or len(words) < 2:
            continue
        found = cli.get_command(click.Context(cli), words[1])
        assert found is not None, f"{page}:{command.line}: no command {words[1]}"
        arguments = [word for word in words[2:] if word != "&"]
        try:
            found.make_parser(click.Context(found)).parse_args(arguments)
        except click.UsageError as error:
            raise AssertionError(f"{page}:{command.line}: {error.message}") from None
