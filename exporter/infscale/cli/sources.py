"""Metrics pages that a command line names, as files or URLs: what to fetch, one bounded read, how a row shows it.

`infscale parse` and `infscale decide` read their sources through here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infscale.cli.engine_options import Chosen
from infscale.cli.engine_options import target as target_of
from infscale.errors import ExpositionError, UsageError
from infscale.reading import UNREACHABLE, ReadFailure, Reading

if TYPE_CHECKING:
    from infscale.scrape import Target

Outcome = Reading | ReadFailure
Named = tuple[str, "Target | None"]
"""A source as it was given, and what to fetch where it is a URL."""

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]+([/?#].*)?", re.ASCII)
_THREADS = 64
"""As many URLs are read at once: 1,000 engines that all hang take 16 times `--engine.timeout`."""


def named(source: str, connection: Mapping[str, Any]) -> Named:
    """The source with what to fetch for it.

    Args:
        source: a file, `-` for standard input, or a URL.
        connection: the values of the `--engine.` flags.

    Raises:
        UsageError: a URL that cannot be used, or one without its scheme.
    """
    if "://" in source or source.startswith(("http:", "https:")):
        return source, target_of(source, **connection)
    if _ADDRESS.fullmatch(source) and not os.path.exists(source):
        raise UsageError(f"{source!r}: no such file, and no URL without its scheme: expected http://{source}")
    return source, None


@dataclass(frozen=True)
class Reader:
    """How every source of one call is read.

    Attributes:
        engine: as which engine.
        strict: whether any line that breaks the format is an error.
        histograms: whether the engine's histograms are read too.
    """

    engine: Chosen
    strict: bool = False
    histograms: bool = False

    def read(self, source: str, target: Target | None) -> Outcome:
        """One read of a file, or of a URL where there is a target."""
        return self._url(source, target) if target else self._file(source)

    def read_all(self, sources: Sequence[Named]) -> list[Outcome]:
        """One read of each, in their order; URLs are read at the same time."""
        if not any(target for _, target in sources):
            return [self.read(source, target) for source, target in sources]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(_THREADS, len(sources)), "source") as pool:
            return list(pool.map(lambda pair: self.read(*pair), sources))

    def _file(self, source: str) -> Outcome:
        from infscale.cli.page_file import page_in_file
        from infscale.normalise import read_page

        text = page_in_file(source)
        if isinstance(text, ReadFailure):
            return text
        engine = self.engine
        read = read_page(text, profile=engine.told, profiles=engine.profiles, source=source, histograms=self.histograms)
        return self._checked(read, text, source)

    def _url(self, source: str, target: Target) -> Outcome:
        from infscale.outcome import outcome
        from infscale.scrape import Page, fetch

        answer = fetch(target)
        engine = self.engine
        read = outcome(answer, profile=engine.told, profiles=engine.profiles, source=source, histograms=self.histograms)
        if isinstance(answer, Page) and answer.status == 200:
            return self._checked(read, answer.body.decode("utf-8", "replace"), source)
        return read

    def _checked(self, read: Outcome, text: str, source: str) -> Outcome:
        """With `strict`, the page's first broken line instead of what was read from the others."""
        if not self.strict or (isinstance(read, ReadFailure) and read.reason == "not_metrics"):
            return read
        from infscale.exposition import parse

        try:
            parse(text, source)
        except ExpositionError as exc:
            return ReadFailure(UNREACHABLE, "unusable", str(exc), read.engine)
        return read


def whole(value: float | None) -> float | None:
    """5 rather than 5.0: most of what a page says are counts."""
    return int(value) if value is not None and value == int(value) else value


def cell(value: object) -> str:
    """A value in a table; `-` where it is not known."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def tell_errors(errors: Iterable[tuple[str, str | None]]) -> None:
    """A line on standard error for each source with an error, for those who read the output by program."""
    from infscale.cli import say

    for source, error in errors:
        if error:
            say(error if error.startswith(source) else f"{source}: {error}")
