"""Only the lines of some names out of a metrics page, nearly for nothing.

`Selector` searches the page for a few substrings and looks at the lines that hold one, so that a broken line elsewhere
does not blind it, for a sixtieth of a full parse; `mentions` tells whether a page has anything of an engine. Both are
imported from `infscale.exposition`.

Where the time goes, on a vLLM page of 65 kB with two engines, against 16.7 ms for prometheus_client: 0.14 ms to search
it for eight substrings (only to split it into lines takes 0.09 ms), 0.11 ms for the 50 lines found, 0.05 ms less once
their labels are known (bench/page_to_samples.py).

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Iterable, Mapping, NamedTuple, Tuple, TypeVar

from infscale.errors import ExpositionError
from infscale.exposition_lines import (
    BLANKS,
    DECIMAL,
    MEMO_CHARACTERS,
    META,
    LineError,
    Sample,
    ends_with_eof,
    is_name,
    name_of,
    plain_labels,
    read_name,
    read_sample,
)

MEMO_ENTRIES = 4096
"""Names, and sets of labels, that a Selector knows by heart: 16 vLLM engines with three histograms have 1,200 sets."""

WINDOW = 8192
"""Characters after a line found that are split into lines, not searched, at most: a histogram of three engines."""

_NAN = float("nan")

_Owner = Tuple[str, str]
"""A wanted name and the needle in charge of its lines; both empty for a name that is not wanted."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Selection:
    """What a page says about the names asked for.

    Attributes:
        samples: the samples of each name that has any, by the name asked for (without the prefix), in the page's order.
        broken: the first broken line of each name that has any, by the same name.
    """

    samples: Mapping[str, list[Sample]]
    broken: Mapping[str, ExpositionError]


class _Fault(NamedTuple):
    """A broken line: where the lines it is among start, which of them it is (from 0), the offending text, what is wrong."""

    start: int
    nth: int
    text: str
    why: str


@dataclass
class _Page:
    """What was found on a page so far, by full name; of broken lines, the first."""

    openmetrics: bool
    found: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    broken: dict[str, _Fault] = field(default_factory=dict)


class Selector:
    """Reads only the lines of some names; keep one for all pages of an engine, it learns their series by heart.

    Not for several threads at once.

    Args:
        names: the names wanted. With the prefix `vllm` that is a sample of `vllm:NAME` or `vllm_NAME`, also behind
            words that a gateway put there, `ray_vllm_NAME` or `kserve_vllm:NAME`; without a prefix, of exactly NAME.
        prefix: the engine's prefix.
        plain: names that are always complete (`process_start_time_seconds`).
        needles: substrings of the names, fewer than them, to search the page for; speed only. Each costs a quarter of a
            nanosecond a character of the page, and each line that has it a microsecond. A plain name without one is its
            own; without any, every name is.

    Raises:
        ValueError: when a name contains none of the needles, and would never be found.
    """

    def __init__(
        self, names: Iterable[str], *, prefix: str = "", plain: Iterable[str] = (), needles: Iterable[str] = ()
    ) -> None:
        wanted, whole = list(names), list(plain)
        search = [needle for needle in needles if needle] or wanted[:]
        for name in wanted:
            if not any(needle in name for needle in search):
                raise ValueError(f"no needle for the name {name!r}: have {', '.join(search)}")
        search += [name for name in whole if not any(needle in name for needle in search)]
        # A needle that contains another finds nothing that the other does not find.
        self._needles = [n for n in dict.fromkeys(search) if not any(o != n and o in n for o in search)]
        # A name with two needles is found twice and must count once: its first needle is in charge of it.
        owners = {name: (name, next(n for n in self._needles if n in name)) for name in wanted + whole}
        self._prefix = prefix
        self._suffixes = {name: owners[name] for name in wanted if prefix}
        self._reach = len(prefix) + 1 + max(map(len, wanted), default=0)
        self._complete = {name: owners[name] for name in (whole if prefix else wanted + whole)}
        # What pages taught: a full name -> the needle in charge, empty when not wanted; text of the labels -> labels.
        self._charges = {name: needle for name, (_, needle) in self._complete.items()}
        self._charges.update((f"{prefix}{mark}{name}", owners[name][1]) for name in self._suffixes for mark in ":_")
        self._labels: dict[str, Mapping[str, str]] = {}

    def select(self, text: str, source: str = "<page>") -> Selection:
        """Read the wanted names of a page; never raises for what stands on it.

        When samples of one name come under several spellings (`vllm:x` beside `vllm_x` or `ray_vllm_x`), one is kept
        so that nothing counts twice: prefix and colon, else prefix and underscore, else the first in the alphabet.
        """
        page = _Page(ends_with_eof(text))
        for needle in self._needles:
            at = text.find(needle)
            while at >= 0:
                start = text.rfind("\n", 0, at) + 1
                if text[start] == "#":
                    end = text.find("\n", at)
                else:
                    end = _end_of_family(text, at)
                    self._read_lines(page, needle, start, text[start : end if end >= 0 else len(text)].split("\n"))
                at = text.find(needle, end) if end >= 0 else -1
        return self._choose(page, text, source)

    def _read_lines(self, page: _Page, needle: str, start: int, lines: list[str]) -> None:
        """Keep the samples of the names that the needle is in charge of. This is where the time goes."""
        found, charges, memo, new = page.found, self._charges, self._labels, tuple.__new__
        for line in lines:
            name, brace, rest = line.partition("{")
            if brace:
                inside, _, number = rest.rpartition(" ")
            else:
                name, _, number = line.rpartition(" ")
                inside = "}"
            charge = charges.get(name)
            if charge is None:
                charge = self._learn_name(name)
            if charge is needle:
                labels = memo.get(inside)
                if labels is None:
                    labels = self._learn_labels(inside)
                try:
                    value = float(number)
                except ValueError:
                    value = _NAN
                # inf - inf and nan - nan are nan: all but plain finite numbers are for the slow way to judge.
                if labels is None or value - value != 0.0 or number.strip(DECIMAL):
                    self._read_line(page, needle, start, lines, line)
                else:
                    # Sample(...) does the same in twice the time.
                    found[name].append(new(Sample, (name, labels, value)))
            elif charge is None:
                self._read_line(page, needle, start, lines, line)

    def _learn_name(self, name: str) -> str | None:
        """Learn which needle is in charge of a name (empty: it is not wanted); None when it is not just a name."""
        return _remember(self._charges, name, self._owner(name)[1]) if is_name(name) else None

    def _learn_labels(self, inside: str) -> Mapping[str, str] | None:
        """Learn what stands between the brace and the value; None when that needs a closer look."""
        labels = plain_labels(inside)
        return None if labels is None else _remember(self._labels, inside, labels)

    def _read_line(self, page: _Page, needle: str, start: int, lines: list[str], raw: str) -> None:
        """Read a line in whatever spelling, and if it is a wanted one keep its sample or what is wrong with it."""
        line = raw.strip(BLANKS)
        name = name_of(line)
        if line.startswith("#") or self._owner(name)[1] is not needle:
            return
        try:
            sample = read_sample(line, page.openmetrics)
        except LineError as error:
            if name not in page.broken:
                page.broken[name] = _Fault(start, lines.index(raw), error.text, error.why)
        else:
            page.found[name].append(sample)

    def _owner(self, full: str) -> _Owner:
        """Give the wanted name that a full name stands for, and the needle in charge; both empty: not wanted."""
        if full in self._complete:
            return self._complete[full]
        # Only the end of the name can be one that is wanted: a long name must not be searched again and again.
        at = _after_prefix(full, self._prefix, max(0, len(full) - self._reach)) if self._suffixes else 0
        while at:
            if full[at:] in self._suffixes:
                return self._suffixes[full[at:]]
            at = _after_prefix(full, self._prefix, at)
        return "", ""

    def _choose(self, page: _Page, text: str, source: str) -> Selection:
        """Keep one spelling of each name, and number the broken lines."""
        spellings: dict[str, str] = {}
        for full in {**page.found, **page.broken}:
            base = self._owner(full)[0]
            other = spellings.setdefault(base, full)
            if other != full:
                spellings[base] = min(other, full, key=self._rank)
        broken = {}
        for base, full in spellings.items():
            fault = page.broken.get(full)
            if fault:
                line = text.count("\n", 0, fault.start) + fault.nth + 1
                broken[base] = ExpositionError(source, line, fault.text, fault.why)
        return Selection({base: page.found[full] for base, full in spellings.items() if full in page.found}, broken)

    def _rank(self, full: str) -> tuple[bool, bool, str]:
        return not full.startswith(self._prefix + ":"), not full.startswith(self._prefix + "_"), full


def mentions(text: str, prefix: str) -> str:
    """Tell where a page names metrics of an engine.

    Returns:
        `samples` when the name of a sample line has the prefix (as `Selector` understands it), `comments` when only
        HELP, TYPE or UNIT lines have it (vLLM without its statistics), else `none`. Lines need not be legal otherwise.
    """
    found = "none"
    at = text.find(prefix)
    while at >= 0:
        start = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[start:end].strip(BLANKS)
        if not line.startswith("#"):
            name = name_of(line)
            if name and _after_prefix(name, prefix):
                return "samples"
        elif found == "none":
            name = _name_in_comment(line)
            if name and _after_prefix(name, prefix):
                found = "comments"
        at = text.find(prefix, end + 1) if end < len(text) else -1
    return found


def _end_of_family(text: str, at: int) -> int:
    """Give the end of the last line before the next comment: the samples of one family, as a rule; -1: the page's end.

    Splitting these lines costs less than a search for each. Of a page without comments it is a window of them.
    """
    end = text.find("\n#", at, at + WINDOW)
    if end < 0:
        end = text.rfind("\n", at, at + WINDOW)
    return end if end >= 0 else text.find("\n", at)


def _remember(memo: dict[str, _T], key: str, value: _T) -> _T:
    if len(key) <= MEMO_CHARACTERS:
        if len(memo) >= MEMO_ENTRIES:
            memo.clear()
        memo[key] = value
    return value


def _name_in_comment(line: str) -> str:
    """Give the name that a HELP, TYPE or UNIT line is about; empty for any other comment."""
    meta = META.fullmatch(line)
    try:
        return read_name(meta.group(2) or "")[0] if meta else ""
    except LineError:
        return ""


def _after_prefix(name: str, prefix: str, at: int = 0) -> int:
    """Give the place after the first `prefix:` or `prefix_` in a name that begins a word, from `at` on; 0: none."""
    if not prefix:
        return 1
    found = name.find(prefix, at)
    while found >= 0:
        end = found + len(prefix)
        if name[end : end + 1] in (":", "_") and (found == 0 or name[found - 1] in ":_"):
            return end + 1
        found = name.find(prefix, end)
    return 0
