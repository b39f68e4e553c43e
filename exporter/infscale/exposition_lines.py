"""One line of a metrics page: `name{labels} value`, in every spelling that Prometheus or an engine writes.

`infscale.exposition` reads whole pages with it, `exposition_select` the lines asked for. Where the written formats and
their readers differ, the rules are those of Prometheus' own text parser (model/textparse in prometheus/prometheus):
numbers are what Go's `strconv.ParseFloat` reads, less hexadecimal ones and underscores; an escape that is none stays as
it is; a quoted name stands anywhere in the braces. Blanks and tabs are free between tokens, in OpenMetrics as well,
where the specification wants single blanks: what comes through a proxy that rewrites pages does not keep to it.

Every function takes a line without its end and without blanks around it, and needs time in proportion to its length,
whatever stands in it: strings are found with `str.find`, and no regular expression has two ways to match one text.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Mapping, NamedTuple, NoReturn

BLANKS = " \t\r"
"""What may stand around a line; the carriage return is that of a CRLF line end."""

_NO_LABELS: Mapping[str, str] = {}

DECIMAL = "0123456789.eE+-"
"""The characters of every number but NaN and infinity; of what is made of them, `float` reads what Prometheus does."""

MEMO_CHARACTERS = 1000
"""What is longer is read anew each time it comes, so that no page can make anything here hold much of it."""

META = re.compile(r"#[ \t]+(HELP|TYPE|UNIT)(?:[ \t]+(.*))?")
"""A comment that means something; its name and what follows are in the second group."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PLAIN_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\]*)"([,}])')
_SKIP = re.compile(r"[ \t]*")
_FIELD = re.compile(r"[^ \t]+")
_ESCAPE = re.compile(r'\\([\\"n])')
_NOT_FINITE = frozenset(sign + word for sign in ("", "+", "-") for word in ("inf", "infinity", "nan"))
_FIRST_NAME = re.compile(r'\{[ \t]*"([^"\\,} \t]*)|[^{ \t]*?([a-zA-Z_:][a-zA-Z0-9_:]*)')


class Sample(NamedTuple):
    """One sample of a page.

    Attributes:
        name: as on the page; a quoted name without its quotes and escapes.
        labels: shared between samples, never to be changed.
        value: in the unit of the metric; may be NaN or infinite.
    """

    name: str
    labels: Mapping[str, str]
    value: float


class LineError(ValueError):
    """What is wrong with a line; `infscale.exposition` adds where it stands."""

    def __init__(self, why: str, text: str) -> None:
        self.why, self.text = why, text
        super().__init__(why)


def read_sample(line: str, openmetrics: bool) -> Sample:
    """Read a whole sample line; LineError when it is not one.

    A timestamp must be whole milliseconds, in OpenMetrics any finite number of seconds, and is not kept. An exemplar is
    read in OpenMetrics only, as Prometheus does, and not kept.
    """
    name, labels, at = read_series(line)
    return Sample(name, labels, _read_rest(line, at, openmetrics))


def read_series(line: str) -> tuple[str, Mapping[str, str], int]:
    """Read the name and the labels at the start of a line, and say where they end."""
    match = _NAME.match(line)
    at = _skip(line, match.end()) if match else 0
    if line.startswith("{", at):
        quoted, labels, at = _read_labels(line, at + 1)
        if match and quoted:
            raise LineError("a second metric name", quoted)
        if not match and not quoted:
            raise LineError("no metric name", line)
        return match.group() if match else quoted, labels, at
    if not match:
        raise LineError("expected a metric name (letters, digits, _ and :; others in quotes inside the braces)", line)
    if at == match.end() < len(line):
        raise LineError("expected a blank or { after the metric name", line[at:])
    return match.group(), _NO_LABELS, at


def read_number(text: str) -> float:
    """Read a number as Prometheus does, and `-nan` besides, which llama.cpp wrote (ggml-org/llama.cpp pull 11915)."""
    try:
        value = float(text)
    except ValueError:
        _not_a_number(text)
    # Python also reads 1_000, other scripts' digits and blanks such as form feeds, and makes 1e999 infinite, which is
    # out of range for Go.
    if text.strip(DECIMAL):
        if text.lower() not in _NOT_FINITE:
            _not_a_number(text)
    elif math.isinf(value):
        raise LineError("a number too large for 64 bits", text)
    return value


def read_name(text: str) -> tuple[str, int]:
    """Read a metric name at the start of a text, quoted or not, and say where it ends."""
    if text.startswith('"'):
        name, at = _read_string(text, 0)
        if not name:
            raise LineError("an empty metric name", text)
        return name, at
    match = _NAME.match(text)
    if not match:
        raise LineError("expected a metric name", text)
    return match.group(), match.end()


def plain_labels(inside: str) -> Mapping[str, str] | None:
    """Read all labels of a text such as `a="1",b="2"}`, fast; None when it is spelled otherwise, long or wrong.

    With no backslash in it, every quote is one end of a value: splitting at the quotes gives names and values in turn.
    """
    parts = ("," + inside).split('"')
    if parts.pop() not in ("}", ",}") or len(parts) % 2 or "\\" in inside or len(inside) > MEMO_CHARACTERS:
        return None
    names = [_plain_label_name(part) for part in parts[::2]]
    labels = dict(zip(names, parts[1::2]))
    return labels if len(labels) == len(names) and "" not in labels else None


@lru_cache(maxsize=512)
def _plain_label_name(text: str) -> str:
    """Give the label name of `,name=`, empty when it is not one; there are few, and they come again and again."""
    name = text[1:-1]
    return name if text == f",{name}=" and _LABEL_NAME.fullmatch(name) and not name.startswith("__") else ""


def is_name(text: str) -> bool:
    """Tell whether a whole text is a metric name that needs no quotes."""
    return bool(_NAME.fullmatch(text))


def name_of(line: str) -> str:
    """Tell the metric that a sample line is about, as far as can be told when it is broken; empty when it cannot.

    It is the first run of a name's characters before a brace or blank, so that `name"{x="1"} 2` counts as a broken line
    of `name` instead of going unseen. In braces it is the quoted name of a legal series, else the first string.
    """
    if line.startswith("{"):
        try:
            return read_series(line)[0]
        except LineError:
            pass
    match = _FIRST_NAME.match(line)
    return (match.group(1) or match.group(2) or "") if match else ""


def ends_with_eof(page: str) -> bool:
    """Tell whether the last line that is not blank, among the last 256 characters (no copy of the page), is `# EOF`."""
    return page[-256:].rstrip(BLANKS + "\n").rpartition("\n")[2].strip(BLANKS) == "# EOF"


def _not_a_number(text: str) -> NoReturn:
    raise LineError("not a number (expected one such as 5, 0.5, 1e3, NaN or +Inf)", text)


def _skip(line: str, at: int) -> int:
    match = _SKIP.match(line, at)
    return match.end() if match else at


def _read_labels(line: str, at: int) -> tuple[str, Mapping[str, str], int]:
    """Read what follows an opening brace: the quoted metric name (or empty), the labels, the place after the brace."""
    name = ""
    labels: dict[str, str] = {}
    while True:
        match = _PLAIN_LABEL.match(line, at)
        if match:
            key, value, separator = match.groups()
            _add(labels, key, value)
            at = match.end()
            if separator == "}":
                return name, labels, at
            continue
        at = _skip(line, at)
        if line.startswith("}", at):
            return name, labels, at + 1
        key, quoted, at = _read_key(line, at)
        if line.startswith("=", at):
            at = _skip(line, at + 1)
            if not line.startswith('"', at):
                raise LineError("a label's value must stand in double quotes", line[at:] or line)
            value, at = _read_string(line, at)
            _add(labels, key, value)
        elif not quoted:
            raise LineError("expected = after the label name", line[at:] or line)
        elif name or not key:
            raise LineError("a second metric name" if name else "an empty metric name", line)
        else:
            name = key
        at = _skip(line, at)
        if line.startswith(",", at):
            at += 1
        elif not line.startswith("}", at):
            raise LineError("expected , or } after a label", line[at:] or line)


def _read_key(line: str, at: int) -> tuple[str, bool, int]:
    """Read a label name, or the quoted metric name, and the blanks after it; True when it was quoted."""
    if line.startswith('"', at):
        key, at = _read_string(line, at)
        return key, True, _skip(line, at)
    match = _LABEL_NAME.match(line, at)
    if not match:
        raise LineError("expected a label name or the closing }", line[at:] or line)
    return match.group(), False, _skip(line, match.end())


def _add(labels: dict[str, str], key: str, value: str) -> None:
    if key in labels:
        raise LineError("a label twice in one sample", key)
    if not key or key.startswith("__"):
        raise LineError("a label name that is empty or reserved (begins with __)", key or '""')
    labels[key] = value


def _read_string(line: str, at: int) -> tuple[str, int]:
    """Read the string whose opening quote stands at `at`, and say where it ends."""
    start = begin = at + 1
    while True:
        end = line.find('"', begin)
        if end < 0:
            raise LineError("a quote that is not closed", line[at:])
        between = line[begin:end]
        if (len(between) - len(between.rstrip("\\"))) % 2 == 0:
            break
        begin = end + 1
    text = line[start:end]
    return (_ESCAPE.sub(_unescape, text) if "\\" in text else text), end + 1


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match.group(1) == "n" else match.group(1)


def _read_rest(line: str, at: int, openmetrics: bool) -> float:
    """Read the value and what may follow it: a timestamp, and in OpenMetrics an exemplar."""
    at = _skip(line, at)
    value, at = _read_value(line, at, openmetrics)
    if openmetrics and line.startswith("#", at):
        at = _skip(line, at + 1)
        if not line.startswith("{", at):
            raise LineError("expected { after the # of an exemplar", line[at:] or line)
        name, _, at = _read_labels(line, at + 1)
        if name:
            raise LineError("a metric name in an exemplar", name)
        at = _skip(line, at)
        _, at = _read_value(line, at, openmetrics)
    if at < len(line):
        raise LineError("text after the value", line[at:])
    return value


def _read_value(line: str, at: int, openmetrics: bool) -> tuple[float, int]:
    """Read a number and the timestamp that may follow it, and the blanks after them."""
    field = _FIELD.match(line, at)
    if not field:
        raise LineError("no value", line)
    value = read_number(field.group())
    at = _skip(line, field.end())
    stamp = _FIELD.match(line, at)
    if stamp and not (openmetrics and stamp.group().startswith("#")):
        _check_timestamp(stamp.group(), openmetrics)
        at = _skip(line, stamp.end())
    return value, at


def _check_timestamp(text: str, openmetrics: bool) -> None:
    if openmetrics:
        if math.isfinite(read_number(text)):
            return
        raise LineError("a timestamp must be a finite number of seconds", text)
    digits = text[1:] if text.startswith("-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and -(2**63) <= int(text) < 2**63):
        raise LineError("expected the end of the line or a timestamp in whole milliseconds", text)
