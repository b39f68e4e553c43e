"""Only the lines of some names out of a metrics page, nearly for nothing.

`Selector` splits the page into lines and passes over those whose name it knows not to be wanted, so that a broken line
elsewhere does not blind it; `mentions` tells whether a page has anything of an engine. Both are imported from
`infscale.exposition`.

Where the time goes on a vLLM page of 65 kB with two engines, against 16 ms for prometheus_client: 0.05 ms to split it,
0.05 ms to pass over 600 lines, 0.5 us for each line wanted. The first page of an engine teaches the names and costs
three times as much (bench/page_to_samples.py).

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Set

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
"""Names, beginnings of lines and sets of labels that a Selector knows by heart: 16 vLLM engines with three histograms
have 1,200 sets of labels, and a page some 350 beginnings of lines."""

GATEWAY = 24
"""Characters before the engine's prefix in a name, at most: the words of a gateway, as `ray_` or `kserve_`."""

HEAD = 48
"""Characters of a line that say whether it can be wanted: few names are longer, and with a longer prefix it is
more."""

_NAN = float("nan")


@dataclass(frozen=True)
class Selection:
    """What a page says about the names asked for.

    Attributes:
        samples: the samples of each name that has any, by the name asked for (without the prefix), in the page's order.
        broken: the first broken line of each name that has any, by the same name.
    """

    samples: Mapping[str, List[Sample]]
    broken: Mapping[str, ExpositionError]


class _Fault(NamedTuple):
    """A broken line as it stands on the page, the offending text, what is wrong."""

    line: str
    text: str
    why: str


@dataclass
class _Page:
    """What was found on a page so far, by full name; of broken lines, the first."""

    openmetrics: bool
    found: Dict[str, List[Sample]] = field(default_factory=lambda: defaultdict(list))
    broken: Dict[str, _Fault] = field(default_factory=dict)


class Selector:
    """Reads only the lines of some names; keep one for all pages of an engine, it learns their names and labels.

    Args:
        names: the names wanted. With the prefix `vllm` that is a sample of `vllm:NAME` or `vllm_NAME`, also behind
            words that a gateway put there, `ray_vllm_NAME` or `kserve_vllm:NAME`; without a prefix, of exactly NAME.
        prefix: the engine's prefix.
        plain: names that are always complete (`process_start_time_seconds`).
    """

    def __init__(self, names: Iterable[str], *, prefix: str = "", plain: Iterable[str] = ()) -> None:
        wanted, whole = list(names), list(plain)
        self._prefix = prefix
        self._suffixes = frozenset(wanted if prefix else ())
        self._complete = frozenset(whole if prefix else wanted + whole)
        self._head = max(HEAD, GATEWAY + len(prefix) + 1)
        # What pages taught, so that several threads may share it: only ever added to or cleared as a whole.
        self._wanted = set(self._complete)  # full names
        self._wanted.update(f"{prefix}{mark}{name}" for name in self._suffixes for mark in ":_")
        self._unwanted: Set[str] = set()  # the heads of lines that are none of ours
        self._labels: Dict[str, Mapping[str, str]] = {}  # by what stands between the brace and the value

    def select(self, text: str, source: str = "<page>") -> Selection:
        """Read the wanted names of a page; never raises for what stands on it.

        When samples of one name come under several spellings (`vllm:x` beside `vllm_x` or `ray_vllm_x`), one is kept
        so that nothing counts twice: prefix and colon, else prefix and underscore, else the first in the alphabet.
        """
        page = _Page(ends_with_eof(text))
        lines, unwanted, head = text.split("\n"), self._unwanted, self._head
        self._read_lines(page, [line for line in lines if line[:head] not in unwanted])
        return self._choose(page, lines, source)

    def _read_lines(self, page: _Page, lines: List[str]) -> None:
        """Keep the samples of the wanted names. This is where the time goes."""
        found, wanted, memo, new = page.found, self._wanted, self._labels, tuple.__new__
        unwanted, head = self._unwanted, self._head
        for line in lines:
            if line[:head] in unwanted:  # learned from a line above
                continue
            name, brace, rest = line.partition("{")
            if brace:
                inside, _, number = rest.rpartition(" ")
            else:
                name, _, number = line.rpartition(" ")
                inside = "}"
            labels = memo.get(inside) if name in wanted else None
            if labels is None and name in wanted:
                labels = self._learn_labels(inside)
            if labels is None:
                self._read_line(page, line)
                continue
            try:
                value = float(number)
            except ValueError:
                value = _NAN
            # inf - inf and nan - nan are nan: all but plain finite numbers are for the slow way to judge.
            if value - value != 0.0 or number.strip(DECIMAL):
                self._read_line(page, line)
            else:
                # Sample(...) does the same in twice the time.
                found[name].append(new(Sample, (name, labels, value)))

    def _read_line(self, page: _Page, raw: str) -> None:
        """Read a line in whatever spelling, and if it is a wanted one keep its sample or what is wrong with it."""
        if self._is_unwanted(raw[: self._head]):
            return
        line = raw.strip(BLANKS)
        name = "" if line.startswith("#") else name_of(line)
        if not name or not self._base(name):
            return
        if name not in self._wanted:
            _remember(self._wanted, name)
        try:
            sample = read_sample(line, page.openmetrics)
        except LineError as error:
            page.broken.setdefault(name, _Fault(raw, error.text, error.why))
        else:
            page.found[name].append(sample)

    def _is_unwanted(self, head: str) -> bool:
        """Whether no line that begins so can be wanted; remembered where it is so."""
        if not head.startswith("#"):
            name, brace, _ = head.partition("{")
            if brace:
                if self._base(name) or not is_name(name):
                    return False
            elif len(head) < self._head or not is_name(name) or self._may_become_wanted(name):
                return False
        _remember(self._unwanted, head)
        return True

    def _may_become_wanted(self, start: str) -> bool:
        """Whether a name that begins so and goes on can be wanted."""
        rests = [start[at:] for at in _after_prefix(start, self._prefix)] if self._suffixes else []
        return any(name.startswith(start) for name in self._complete) or any(
            name.startswith(rest) for rest in rests for name in self._suffixes
        )

    def _learn_labels(self, inside: str) -> Optional[Mapping[str, str]]:
        """Learn what stands between the brace and the value; None when that needs a closer look."""
        labels = plain_labels(inside)
        if labels is not None:
            if len(self._labels) >= MEMO_ENTRIES:
                self._labels.clear()
            self._labels[inside] = labels
        return labels

    def _base(self, full: str) -> str:
        """Give the wanted name that a full name stands for; empty: it is not wanted."""
        if full in self._complete:
            return full
        if self._suffixes:
            for at in _after_prefix(full, self._prefix):
                if full[at:] in self._suffixes:
                    return full[at:]
        return ""

    def _choose(self, page: _Page, lines: List[str], source: str) -> Selection:
        """Keep one spelling of each name, and number the broken lines."""
        spellings: Dict[str, str] = {}
        for full in {**page.found, **page.broken}:
            base = self._base(full)
            other = spellings.setdefault(base, full)
            if other != full:
                spellings[base] = min(other, full, key=self._rank)
        broken = {}
        for base, full in spellings.items():
            fault = page.broken.get(full)
            if fault:
                broken[base] = ExpositionError(source, lines.index(fault.line) + 1, fault.text, fault.why)
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


def _remember(memo: Set[str], text: str) -> None:
    if len(text) <= MEMO_CHARACTERS:
        if len(memo) >= MEMO_ENTRIES:
            memo.clear()
        memo.add(text)


def _name_in_comment(line: str) -> str:
    """Give the name that a HELP, TYPE or UNIT line is about; empty for any other comment."""
    meta = META.fullmatch(line)
    try:
        return read_name(meta.group(2) or "")[0] if meta else ""
    except LineError:
        return ""


def _after_prefix(name: str, prefix: str) -> List[int]:
    """Give the places after each `prefix:` or `prefix_` that begins a word among a name's first GATEWAY characters."""
    if not prefix:
        return [0]
    places = []
    found = name.find(prefix, 0, GATEWAY + len(prefix))
    while found >= 0:
        end = found + len(prefix)
        if name[end : end + 1] in (":", "_") and (found == 0 or name[found - 1] in ":_"):
            places.append(end + 1)
        found = name.find(prefix, end, GATEWAY + len(prefix))
    return places
