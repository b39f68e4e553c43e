"""A whole metrics page to samples, strictly; and the door to reading only what is asked for.

`parse` looks at every line of a page (`infscale parse --strict`, the tests). `Selector` and `mentions`, which serve
what reads an engine again and again (`infscale.normalise`, `infscale.absence`), are in `exposition_select`. The grammar
of one line is in `exposition_lines`.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from infscale.errors import ExpositionError
from infscale.exposition_lines import BLANKS, META, LineError, Sample, ends_with_eof, read_name, read_sample
from infscale.exposition_select import Selection, Selector, mentions

__all__ = ["Sample", "Selection", "Selector", "mentions", "parse"]

_TEXT_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")
_OPENMETRICS_TYPES = ("counter", "gauge", "gaugehistogram", "histogram", "info", "stateset", "summary", "unknown")


def parse(text: str, source: str = "<page>", *, openmetrics: bool | None = None) -> list[Sample]:
    """Read every line of a page.

    Args:
        text: the page.
        source: its file or URL, for the error.
        openmetrics: which of the two formats; None: OpenMetrics when the last line is `# EOF`.

    Raises:
        ExpositionError: for the first line that breaks the format: a sample that cannot be read, a TYPE line with an
            unknown type, after its samples or for the second time (exposition_formats.md of prometheus/docs allows one,
            before the first sample), and in OpenMetrics text after `# EOF` or a page without it, which was cut off.
    """
    if openmetrics is None:
        openmetrics = ends_with_eof(text)
    samples: list[Sample] = []
    typed: set[str] = set()
    sampled: set[str] = set()
    ended = False
    number, line = 0, ""
    try:
        for raw in text.split("\n"):
            number += 1
            line = raw.strip(BLANKS)
            if not line:
                continue
            if ended:
                raise LineError("text after # EOF", line)
            if line.startswith("#"):
                ended = openmetrics and line == "# EOF"
                _check_comment(line, openmetrics, typed, sampled)
                continue
            sample = read_sample(line, openmetrics)
            sampled.add(sample.name)
            samples.append(sample)
        if openmetrics and not ended:
            raise LineError("no # EOF at the end: the page was cut off", line)
    except LineError as error:
        raise ExpositionError(source, number, error.text, error.why) from None
    return samples


def _check_comment(line: str, openmetrics: bool, typed: set[str], sampled: set[str]) -> None:
    """Look at a line that begins with `#`; what is neither HELP, TYPE nor (in OpenMetrics) UNIT is a remark."""
    meta = META.fullmatch(line)
    if not meta or (meta.group(1) == "UNIT" and not openmetrics):
        return
    kind, rest = meta.group(1), meta.group(2) or ""
    if kind != "TYPE" and not rest:
        return
    if not rest:
        raise LineError("expected a metric name and a type after TYPE", line)
    name, at = read_name(rest)
    if rest[at : at + 1].strip(BLANKS):
        raise LineError(f"expected a blank after the metric name in a {kind} line", rest)
    if kind != "TYPE":
        return
    types = _OPENMETRICS_TYPES if openmetrics else _TEXT_TYPES
    if rest[at:].strip(BLANKS) not in types:
        raise LineError(f"expected one of {', '.join(types)} after the name in a TYPE line", line)
    if name in typed:
        raise LineError("a second TYPE line for one metric", line)
    if name in sampled:
        raise LineError("a TYPE line after the samples of its metric", line)
    typed.add(name)
