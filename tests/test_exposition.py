"""Whole pages, strictly: every legal spelling, every fault, and prometheus_client's parsers as the peer.

The peer is prometheus_client 0.26. Where the two differ on purpose, the tables of differences say so line by line with
the reason, and the tests hold both sides to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from infscale.errors import ExpositionError
from infscale.exposition import Sample, parse

PAGES = sorted(
    path
    for path in (Path(__file__).parent / "data" / "pages").iterdir()
    if path.suffix != ".md" and path.stem != "expected"
)

Row = tuple[str, tuple[tuple[str, str], ...], str]


def ours(text: str, *, openmetrics: bool | None = None) -> list[Row] | None:
    """What `parse` reads, comparable (NaN equals NaN, 5 equals 5.0); None when it refuses."""
    try:
        return [row(*sample) for sample in parse(text, openmetrics=openmetrics)]
    except ExpositionError:
        return None


def peers(text: str, *, openmetrics: bool = False) -> list[Row] | None:
    """What the client library reads, comparable; None when it refuses, with whatever exception it has for it."""
    families = openmetrics_families if openmetrics else text_families
    try:
        return [row(sample.name, sample.labels, sample.value) for family in families(text) for sample in family.samples]
    except Exception:  # it also raises IndexError, KeyError and UnboundLocalError
        return None


def row(name: str, labels: Mapping[str, str] | None, value: float | None) -> Row:
    """A sample as something to compare. The client adds _total to counters that lack it, so both sides go without.

    A native histogram, which only the client reads, has no value, and perhaps no labels.
    """
    number = "none" if value is None else repr(float(value))
    return name.removesuffix("_total"), tuple(sorted((labels or {}).items())), number


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_read_as_the_client_library_reads_them(path):
    """All pages of real engines give the same samples in the same order as the peer, or both refuse them."""
    text = path.read_text()
    openmetrics = text.endswith("# EOF\n")
    assert ours(text) == peers(text, openmetrics=openmetrics)


SPELLINGS = {
    "bare": ("x 1", Sample("x", {}, 1.0)),
    "no labels in braces": ("x{} 1", Sample("x", {}, 1.0)),
    "blank in empty braces": ("x{ } 1", Sample("x", {}, 1.0)),
    "colons in the name": ("vllm:a:b_c9 1", Sample("vllm:a:b_c9", {}, 1.0)),
    "label": ('x{a="b"} 1', Sample("x", {"a": "b"}, 1.0)),
    "trailing comma": ('x{a="b",} 1', Sample("x", {"a": "b"}, 1.0)),
    "blanks everywhere": (' \tx \t{ a = "b" , c\t=\t"d" , } \t 1 \t', Sample("x", {"a": "b", "c": "d"}, 1.0)),
    "tab before the value": ("x\t1", Sample("x", {}, 1.0)),
    "no blank after the brace": ('x{a="b"}1', Sample("x", {"a": "b"}, 1.0)),
    "escapes": (r'x{a="\\ \" \n \t"} 1', Sample("x", {"a": '\\ " \n \\t'}, 1.0)),
    "escaped backslash at the end": (r'x{a="C:\\"} 1', Sample("x", {"a": "C:\\"}, 1.0)),
    "any character in a value": ('x{a="{}=, #\t\'é→\x00\u2028"} 1', Sample("x", {"a": "{}=, #\t'é→\x00\u2028"}, 1.0)),
    "value like a sample": ('x{a="} 5 # {"} 1', Sample("x", {"a": "} 5 # {"}, 1.0)),
    "empty value": ('x{a=""} 1', Sample("x", {"a": ""}, 1.0)),
    "quoted name": ('{"my.metric"} 1', Sample("my.metric", {}, 1.0)),
    "quoted name and labels": ('{"my.metric", a="b"} 1', Sample("my.metric", {"a": "b"}, 1.0)),
    "quoted name last": ('{a="b","my.metric"} 1', Sample("my.metric", {"a": "b"}, 1.0)),
    "quoted name that needs none": ('{"x",a="b"} 1', Sample("x", {"a": "b"}, 1.0)),
    "quoted name with escapes": (r'{"a\"b\\c"} 1', Sample('a"b\\c', {}, 1.0)),
    "quoted label name": ('x{"label.x"="y"} 1', Sample("x", {"label.x": "y"}, 1.0)),
    "CRLF": ("x 1\r", Sample("x", {}, 1.0)),
}  # fmt: skip


@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "openmetrics"])
@pytest.mark.parametrize(("line", "sample"), SPELLINGS.values(), ids=SPELLINGS)
def test_spellings(line, sample, openmetrics):
    """A sample reads the same in every legal spelling, in both formats, with and without a final newline."""
    end = "\n# EOF" if openmetrics else ""
    assert parse(line + end, openmetrics=openmetrics) == [sample]
    assert parse(f"\n \t\n# a remark\n{line}{end}\n", openmetrics=openmetrics) == [sample]


NUMBERS = {
    "0": 0.0, "+1": 1.0, "-1": -1.0, "5.": 5.0, ".5": 0.5, "1e3": 1e3, "1E+3": 1e3, "1.5e-3": 1.5e-3, "007": 7.0,
    "1.7976931348623157e308": 1.7976931348623157e308, "1e-400": 0.0, "12345678901234567890": 1.2345678901234567e19,
    "+Inf": math.inf, "-Inf": -math.inf, "Inf": math.inf, "inf": math.inf, "INFINITY": math.inf, "-infinity": -math.inf,
}  # fmt: skip
NANS = ("NaN", "nan", "NAN", "-nan", "+NaN")
NOT_NUMBERS = (
    "1_000", "0x10", "0x1p3", "1,5", "1e", ".", "--1", "e5", "1e999", "-1e999", "١", "５", "1\x0c", "\x1c1", "infin",
)  # fmt: skip


@pytest.mark.parametrize("line", ["x {}", 'x{{a="b"}} {}', "x {} 1700000000000"])
@pytest.mark.parametrize(("number", "value"), NUMBERS.items())
def test_numbers(line, number, value):
    """Every number that Prometheus accepts is read."""
    assert parse(line.format(number))[0].value == value


@pytest.mark.parametrize("number", NANS)
def test_not_a_number_in_every_spelling(number):
    """NaN in any case is read, and so is `-nan`, which llama.cpp wrote (its pull 11915) and Prometheus refuses."""
    assert math.isnan(parse(f"x {number}")[0].value)


@pytest.mark.parametrize("number", NOT_NUMBERS)
def test_what_is_no_number(number):
    """What Python reads as a number and Prometheus does not is refused: underscores, other scripts, out of range."""
    with pytest.raises(ExpositionError, match=r"^p:1: .*(number|text after)"):
        parse(f"x {number}", "p")


FAULTS = {
    "no value": ("x", "no value"),
    "no value after braces": ('x{a="b"}', "no value"),
    "bad name": ("9x 1", "metric name"),
    "dash in the name": ("x-y 1", "blank or {"),
    "no name": ('{a="b"} 1', "no metric name"),
    "empty name": ('{""} 1', "an empty metric name"),
    "two names": ('x{"y"} 1', "a second metric name"),
    "two quoted names": ('{"x","y"} 1', "a second metric name"),
    "bad label name": ('x{9="b"} 1', "expected a label name"),
    "colon in a label name": ('x{a:b="c"} 1', "expected ="),
    "empty label name": ('x{""="b"} 1', "empty or reserved"),
    "reserved label name": ('x{__name__="y"} 1', "empty or reserved"),
    "label without a value": ("x{a} 1", "expected ="),
    "value without quotes": ("x{a=b} 1", "double quotes"),
    "single quotes": ("x{a='b'} 1", "double quotes"),
    "label twice": ('x{a="b",a="c"} 1', "a label twice"),
    "label twice, once quoted": ('x{a="b","a"="c"} 1', "a label twice"),
    "missing comma": ('x{a="b" c="d"} 1', "expected , or }"),
    "text after a quote": ('x{a="b"c} 1', "expected , or }"),
    "leading comma": ('x{,a="b"} 1', "expected a label name"),
    "two commas": ('x{a="b",,c="d"} 1', "expected a label name"),
    "unclosed quote": ('x{a="b} 1', "not closed"),
    "quote closed by an escape": (r'x{a="b\"} 1', "not closed"),
    "unclosed brace": ('x{a="b" 1', "expected , or }"),
    "brace alone": ("x{", "expected a label name"),
    "value is a word": ("x one", "not a number"),
    "text after the value": ("x 1 one", "whole milliseconds"),
    "text after the timestamp": ("x 1 2 3", "text after the value"),
    "timestamp in seconds": ("x 1 1.5", "whole milliseconds"),
    "timestamp out of range": ("x 1 9223372036854775808", "whole milliseconds"),
    "exemplar in text": ('x_total 1 # {a="b"} 1', "whole milliseconds"),
    "a page of another kind": ("<html>", "metric name"),
    "JSON": ('{"error": "not found"}', "expected , or }"),
    "TYPE without a type": ("# TYPE x", "expected one of counter"),
    "TYPE without a name": ("# TYPE", "expected a metric name"),
    "unknown type": ("# TYPE x speed", "expected one of counter"),
    "OpenMetrics type in text": ("# TYPE x info", "expected one of counter"),
    "two types": ("# TYPE x gauge counter", "expected one of counter"),
    "TYPE with a bad name": ("# TYPE 9x gauge", "expected a metric name"),
    "TYPE with a broken quote": ('# TYPE "x gauge', "not closed"),
    "HELP with a bad name": ("# HELP x{} text", "expected a blank"),
}


@pytest.mark.parametrize(("line", "why"), FAULTS.values(), ids=FAULTS)
def test_faults_are_told_with_place_and_reason(line, why):
    """A line that breaks the format is refused with its file, number, text and what is wrong, on one line."""
    with pytest.raises(ExpositionError) as caught:
        parse(f"# HELP y text\r\ny 1\n\n{line}\nz 1\n", "page.prom")
    assert (caught.value.source, caught.value.line) == ("page.prom", 4)
    assert why in caught.value.why
    assert caught.value.text
    assert caught.value.text in line
    assert str(caught.value).startswith("page.prom:4: ")
    assert "\n" not in str(caught.value)


def test_long_lines_are_cut_in_errors():
    """The offending text of an error never fills a screen."""
    with pytest.raises(ExpositionError) as caught:
        parse("x" * 10_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("second", ["# TYPE x gauge", "y 1\n# TYPE x counter", 'x 1\n# TYPE "x" gauge'])
def test_a_second_type_line_is_refused(second):
    """One metric has one type: exposition_formats.md allows only one TYPE line."""
    with pytest.raises(ExpositionError, match="a second TYPE line"):
        parse(f"# TYPE x gauge\n{second}\n")


def test_a_type_line_after_its_samples_is_refused():
    """The type comes before the first sample, but after samples of other metrics that begin like it."""
    with pytest.raises(ExpositionError, match=":2: a TYPE line after the samples"):
        parse("x 1\n# TYPE x gauge\n")
    assert len(parse("x_bucket 1\nxy 1\n# TYPE x gauge\nx 1\n")) == 3


def test_comments_say_nothing():
    """Remarks of any kind are passed over: near-HELP, near-TYPE, quotes, and in text a UNIT line and an early EOF."""
    remarks = [
        "#",
        "# ",
        "#x",
        "# TYPEx y",
        "#TYPE x speed",
        "# type x speed",
        '# say "x',
        "# UNIT x",
        "# HELP",
        "# EOF",
    ]
    assert parse("\n".join([*remarks, "x 1"])) == [Sample("x", {}, 1.0)]


def test_openmetrics_is_known_by_its_end():
    """A page whose last line is `# EOF` is OpenMetrics, where a timestamp is seconds; otherwise it is text."""
    assert parse("x 1 1.5\n# EOF") == parse("x 1 1.5\n# EOF\n") == parse("x 1 1.5\r\n# EOF\r\n\n")
    with pytest.raises(ExpositionError, match="whole milliseconds"):
        parse("x 1 1.5\n# EOFX")
    assert parse("x 1\n# EOF", openmetrics=False) == [Sample("x", {}, 1.0)]


def test_openmetrics_that_was_cut_off_is_refused():
    """OpenMetrics without `# EOF`, or with text after it, is not a whole page."""
    with pytest.raises(ExpositionError, match=":2: no # EOF at the end"):
        parse("x 1\ny 1", openmetrics=True)
    with pytest.raises(ExpositionError, match=":3: text after # EOF: 'y 1'"):
        parse("x 1\n# EOF\ny 1", openmetrics=True)
    assert parse("# EOF", openmetrics=True) == []
    assert parse("") == []


@pytest.mark.parametrize("kind", ["gaugehistogram", "info", "stateset", "unknown"])
def test_openmetrics_types(kind):
    """OpenMetrics has types of its own, and `untyped` is not one."""
    assert parse(f"# TYPE x {kind}\n# UNIT x seconds\n# EOF") == []
    with pytest.raises(ExpositionError, match="expected one of"):
        parse("# TYPE x untyped\n# EOF")


@pytest.mark.parametrize(
    "exemplar",
    [
        '# {trace_id="a b} 9"} 0.5',
        '# {trace_id="a"} 0.5 1700000000.123',
        "# {} 1",
        "1700000000.5 # {} 1",
        '#\t{a="b",}\t1',
    ],
)
def test_exemplars_are_passed_over(exemplar):
    """An OpenMetrics exemplar changes nothing about the sample before it."""
    assert parse(f'x_total{{a="1"}} 5 {exemplar}\n# EOF') == [Sample("x_total", {"a": "1"}, 5.0)]
    assert parse(f"x_total 5 {exemplar}\n# EOF") == [Sample("x_total", {}, 5.0)]


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("5 # 1", "expected { after"), ("5 # {", "label name"), ('5 # {a="b"}', "no value"),
        ("5 # {} x", "not a number"),
        ("5 # {} 1 x", "not a number"), ("5 # {} 1 2 3", "text after"), ('5 # {"a"} 1', "a metric name in"),
        ("5 nan", "finite"), ("5 +Inf # {} 1", "finite"), ("5 1 2", "text after"), ("5 # {} 1 # {} 1", "text after"),
    ],
)  # fmt: skip
def test_faults_in_openmetrics(rest, why):
    """What follows an OpenMetrics value must be a finite timestamp, or an exemplar, or both."""
    with pytest.raises(ExpositionError, match=why):
        parse(f"x_total {rest}\n# EOF")


READS, REFUSES, OTHERWISE = "reads", "refuses", "reads something else"
TEXT_DIFFERENCES = {
    "other scripts' digits": ("x ١", REFUSES, "Go reads ASCII digits only"),
    "out of range": ("x 1e999", REFUSES, "Go: value out of range; Prometheus drops the page"),
    "third number": ("x 1 2 3", REFUSES, "the client takes the first and the last; Prometheus refuses"),
    "fractional timestamp": ("x 1 1.5", REFUSES, "the text format has whole milliseconds"),
    "timestamp NaN": ("x 1 nan", REFUSES, "the text format has whole milliseconds"),
    "timestamp with a plus": ("x 1 +5", REFUSES, "Prometheus refuses; no one writes it"),
    "word that ends in a number": ("inf", REFUSES, "the client reads a metric `in` of value inf"),
    "name before braces": ('9x{a="b"} 1', REFUSES, "the client does not check names before labels"),
    "two words before braces": ('x y{a="b"} 1', REFUSES, "the client does not check names before labels"),
    "colon in a label name": ('x{a:b="c"} 1', REFUSES, "label names have no colon"),
    "label without a value": ("x{a=} 1", REFUSES, "the client drops the label; it would be counted as another series"),
    "leading comma": ('x{,a="b"} 1', REFUSES, "Prometheus refuses"),
    "blank between commas": ('x{a="b", ,c="d"} 1', REFUSES, "Prometheus refuses"),
    "empty label name": ('x{""="a"} 1', REFUSES, "Prometheus: not a valid label name"),
    "name as a label": ('{__name__="x"} 1', REFUSES, "Prometheus: metric name not set"),
    "no-break space": ("x 1\xa0", REFUSES, "only blanks and tabs part tokens"),
    "form feed": ("x 1\x0c", REFUSES, "only blanks and tabs part tokens"),
    "exemplar in text": ('x 1 # {a="b"} 2', REFUSES, "the client takes the exemplar's value for a timestamp"),
    "OpenMetrics type": ("# TYPE x info", REFUSES, "Prometheus: invalid metric type"),
    "second TYPE": ("# TYPE x gauge\n# TYPE x gauge", REFUSES, "exposition_formats.md: only one TYPE line"),
    "TYPE after samples": ("x 1\n# TYPE x gauge", REFUSES, "exposition_formats.md: before the first sample"),
}
"""In the text format: page, what we do where the client reads it, why."""


@pytest.mark.parametrize(("page", "what", "reason"), TEXT_DIFFERENCES.values(), ids=TEXT_DIFFERENCES)
def test_differences_from_the_client_in_text(page, what, reason):
    """The client is laxer than Prometheus; we are not."""
    assert reason
    assert peers(page) is not None
    assert what == REFUSES
    assert ours(page, openmetrics=False) is None


HISTOGRAM = "# TYPE h histogram\n"
OPENMETRICS_DIFFERENCES = {
    # Spellings.
    "blank line": ("\nx 1", READS, "legal in text, harmless"),
    "CRLF": ("x 1\r", READS, "as in text"),
    "leading blanks": (" x 1", READS, "as in text"),
    "two blanks": ("x  1", READS, "as in text"),
    "tab": ("x\t1", READS, "as in text"),
    "blank at the end": ("x 1 ", READS, "as in text"),
    "blank before the brace": ('x {a="b"} 1', OTHERWISE, "the client takes the blank for a part of the name"),
    "trailing comma": ('x{a="b",} 1', READS, "as in text; Prometheus reads it"),
    "no blank after the brace": ('x{a="b"}1', READS, "as in text"),
    "no blank, two digits": ('x{a="b"}12', OTHERWISE, "the client skips a character and reads 2"),
    "remark": ("# a remark", READS, "as in text"),
    "HELP without text": ("# HELP x", READS, "as in text"),
    "TYPE with a blank at the end": ("# TYPE x gauge ", READS, "as in text"),
    "quoted name without TYPE": ('{"my.metric"} 1', READS, "the client checks the unquoted name"),
    # The client is laxer than Prometheus.
    "other scripts' digits": ("x ١", REFUSES, "Go reads ASCII digits only"),
    "out of range": ("x 1e999", REFUSES, "Go: value out of range"),
    "colon in a label name": ('x{a:b="c"} 1', REFUSES, "label names have no colon"),
    "empty label name": ('x{""="a"} 1', REFUSES, "Prometheus: not a valid label name"),
    "name as a label": ('{__name__="x"} 1', REFUSES, "Prometheus: metric name not set"),
    "native histogram": (HISTOGRAM + "h {count:1,sum:1,schema:0,zero_threshold:0,zero_count:0}", REFUSES, "families"),
    "series twice": ("x 1\nx 2", OTHERWISE, "the client keeps the first; which is right the page cannot tell"),
    # Rules about families: breaking them makes no sample wrong to read, and engines do (shuffled families).
    "HELP twice": ("# HELP x a\n# HELP x b", READS, "families"),
    "UNIT twice": ("# UNIT x_s s\n# UNIT x_s s", READS, "families"),
    "HELP after samples": ("# TYPE x gauge\nx 1\n# HELP x a", READS, "families"),
    "unit not in the name": ("# TYPE x gauge\n# UNIT x seconds", READS, "families"),
    "family in two places": ("# HELP x a\n# HELP y a\n# HELP x a", READS, "families"),
    "names that clash": ("# TYPE x counter\n# TYPE x_total gauge", READS, "families"),
    "groups mixed": ('# TYPE x gauge\nx{a="1"} 1\nx{a="2"} 1\nx{a="1"} 2', READS, "families"),
    "timestamps mixed": ("# TYPE x gauge\nx 1 1\nx 1", READS, "families"),
    "timestamps backwards": ("# TYPE x gauge\nx 1 2\nx 1 1", READS, "families"),
    "negative counter": ("# TYPE x counter\nx_total -1", READS, "families"),
    "counter NaN": ("# TYPE x counter\nx_total NaN", READS, "families"),
    "bucket without le": (HISTOGRAM + "h_bucket 1", READS, "families"),
    "bucket with a strange le": (HISTOGRAM + 'h_bucket{le="INF"} 1', READS, "families"),
    "bucket with a fraction": (HISTOGRAM + 'h_bucket{le="+Inf"} 1.5', READS, "families"),
    "no +Inf bucket": (HISTOGRAM + 'h_bucket{le="1"} 1', READS, "families"),
    "buckets out of order": (HISTOGRAM + 'h_bucket{le="+Inf"} 1\nh_bucket{le="1"} 1', READS, "families"),
    "buckets that fall": (HISTOGRAM + 'h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1', READS, "families"),
    "count is not +Inf": (HISTOGRAM + 'h_bucket{le="+Inf"} 1\nh_count 2\nh_sum 1', READS, "families"),
    "sum without count": (HISTOGRAM + 'h_bucket{le="+Inf"} 1\nh_sum 1', READS, "families"),
    "count without sum": (HISTOGRAM + 'h_bucket{le="+Inf"} 1\nh_count 1', READS, "families"),
    "count with a fraction": ("# TYPE s summary\ns_count 1.5", READS, "families"),
    "quantile out of range": ('# TYPE s summary\ns{quantile="2"} 1', READS, "families"),
    "negative quantile": ('# TYPE s summary\ns{quantile="0.5"} -1', READS, "families"),
    "info that is not 1": ("# TYPE i info\ni_info 2", READS, "families"),
    "stateset that is 2": ('# TYPE s stateset\ns{s="a"} 2', READS, "families"),
    "stateset without its label": ("# TYPE s stateset\ns 1", READS, "families"),
    "exemplar on a gauge": ("# TYPE x gauge\nx 1 # {} 1", READS, "families"),
    "long exemplar": ('# TYPE x counter\nx_total 1 # {a="' + "b" * 200 + '"} 1', READS, "families"),
}  # fmt: skip
"""In OpenMetrics: page less its `# EOF`, what we do where the client does the opposite, why."""


@pytest.mark.parametrize(("page", "what", "reason"), OPENMETRICS_DIFFERENCES.values(), ids=OPENMETRICS_DIFFERENCES)
def test_differences_from_the_client_in_openmetrics(page, what, reason):
    """We read more spellings, ask nothing of families, and take no numbers that Prometheus would not."""
    assert reason
    mine, theirs = ours(page + "\n# EOF\n"), peers(page + "\n# EOF\n", openmetrics=True)
    assert (mine is None) == (what == REFUSES)
    assert (theirs is None) == (what == READS)
    assert mine != theirs
