"""The fences of the documentation: what a reader would type, what the page shows for it, and why a fence does not run.

A fence of commands is ```sh (all of it is typed) or ```console (lines that begin with `$ ` are typed, the others are
their output). It runs in a test, or the line before it is a mark, `<!-- needs a cluster -->`, which says why not.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

MARKS: Mapping[str, str] = {
    "needs a cluster": "there is none in a test: its manifests exist and build, and infscale knows its flags",
    "needs a GPU engine": "the engine itself is started, which takes its image and a GPU",
    "needs an image builder": "as root, for minutes: `make image-test` builds the image and runs it",
    "takes minutes": "a reader waits for it; what it does is tested by tests of its own, on smaller input",
    "installs packages": "into the reader's system; tests/test_packaging.py builds the wheel and installs it",
}
"""Every reason for which a fence of commands may stay out, as it stands in the mark."""

NUMBERS_VARY = "numbers vary"
"""The mark of an output that is compared with its numbers left out."""

COMMANDS = ("sh", "console")
NOT_COMMANDS = ("", "text", "yaml", "json", "promql", "csv", "markdown")
"""Languages of fences that nobody types. Any other, as `bash` or `shell`, is refused, so that nothing slips by."""

_OPEN = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>\S*)[^`]*")
_MARK = re.compile(r" *<!-- (.*) -->")


@dataclass(frozen=True)
class Command:
    """What is typed at once: one line, or several that belong together.

    Attributes:
        text: as the shell gets it.
        line: of the page, from 1.
        output: what the page shows for it; None where it shows nothing.
        exact: whether the numbers in it count.
    """

    text: str
    line: int
    output: str | None = None
    exact: bool = True


@dataclass(frozen=True)
class Fence:
    """A fenced block.

    Attributes:
        page: relative to the repository.
        line: of its first line of text, from 1.
        language: the word after the ticks.
        mark: the comment on the line before it; empty where there is none.
        text: between the ticks, without a common indent.
        output: the fence of `text` right after it, if there is one.
    """

    page: str
    line: int
    language: str
    mark: str
    text: str
    output: Fence | None = None

    @property
    def place(self) -> str:
        """For a message."""
        return f"{self.page}:{self.line}"

    def commands(self) -> list[Command]:
        """What is typed, in order, with the outputs that the page shows."""
        if self.language == "console":
            return list(_console(self))
        typed = list(_typed(self.text.splitlines(), self.line))
        if typed and self.output is not None:
            exact = self.output.mark != NUMBERS_VARY
            typed[-1] = Command(typed[-1].text, typed[-1].line, self.output.text, exact)
        return typed


def pages() -> list[str]:
    """Every page whose commands count, relative to the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[a-z]*/README.md")]
    return sorted({path.relative_to(ROOT).as_posix() for path in found})


@cache
def fences(page: str) -> tuple[Fence, ...]:
    """The fences of a page of the repository."""
    return tuple(parse(page, (ROOT / page).read_text(encoding="utf-8")))


def parse(page: str, text: str) -> list[Fence]:
    """The fences of a page's text; one of `text` that follows another at once is that one's output too."""
    found: list[Fence] = []
    lines = text.splitlines()
    end = -1
    position = 0
    while position < len(lines):
        opened = _OPEN.fullmatch(lines[position])
        if not opened:
            position += 1
            continue
        close = re.compile(rf" *{opened['ticks']}`* *")
        last = next((n for n in range(position + 1, len(lines)) if close.fullmatch(lines[n])), None)
        assert last is not None, f"{page}:{position + 1}: a fence that nothing closes"
        body = [line.removeprefix(opened["indent"]) for line in lines[position + 1 : last]]
        mark = _MARK.fullmatch(lines[position - 1]) if position else None
        fence = Fence(page, position + 2, opened["language"], mark[1] if mark else "", "\n".join(body))
        follows = end >= 0 and all(not line or _MARK.fullmatch(line) for line in lines[end + 1 : position])
        if follows and fence.language == "text" and found[-1].language == "sh":
            before = found.pop()
            found.append(Fence(before.page, before.line, before.language, before.mark, before.text, fence))
        found.append(fence)
        end, position = last, last + 1
    return found


def of_commands(page: str) -> list[Fence]:
    """The fences of a page that a reader would type from."""
    return [fence for fence in fences(page) if fence.language in COMMANDS]


def _console(fence: Fence) -> Iterator[Command]:
    shown: list[str] = []
    prompt, typed = fence.line, ""
    for number, line in enumerate(fence.text.splitlines(), fence.line):
        if line.startswith("$ "):
            if typed:
                yield Command(typed, prompt, "\n".join(shown))
            prompt, typed, shown = number, line[2:], []
        elif typed.endswith("\\"):
            typed += "\n" + line
        else:
            shown.append(line)
    if typed:
        yield Command(typed, prompt, "\n".join(shown) if shown else None)


def _typed(lines: list[str], first: int) -> Iterator[Command]:
    """The lines, those together that make one command: continued, or in a loop or in quotes."""
    begun: list[str] = []
    for number, line in enumerate(lines, first):
        if not begun and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun.append(line)
        text = "\n".join(begun)
        if not line.endswith("\\") and _complete(text):
            yield Command(text, number - len(begun) + 1)
            begun = []
    assert not begun, f"line {first}: the shell cannot read {begun}"


@cache
def _complete(text: str) -> bool:
    return subprocess.run(["sh", "-n", "-c", text], capture_output=True, check=False).returncode == 0
