"""Pages that hypothesis makes: the peer's parsers, the strict reader against the selective one, and hostile input.

The pages are built of legal and slightly illegal pieces; what the tables of differences list is left out.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from infscale.errors import ExpositionError
from infscale.exposition import Selection, Selector, mentions, parse
from tests.test_exposition import ours, peers

QUICK = settings(max_examples=150)

names = st.sampled_from(["x", "y:z", "vllm:num_requests_running", "_a9"])
blanks = st.sampled_from([" ", "\t", "  ", " \t "])
no_blanks = st.sampled_from(["", "", "", " ", "\t"])
numbers = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["+1", "5.", ".5", "1e3", "1E-3", "NaN", "nan", "-nan", "+Inf", "-inf", "Infinity"]),
)
texts = st.one_of(st.sampled_from(["", "0", "+Inf", "{}", ",", "=", " # ", "a b"]), st.text(max_size=8))


def escaped(text: str) -> str:
    """A label's value as it is written."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@st.composite
def series(draw, wide=True):
    """`name{labels}` in any legal spelling; with `wide` false in the single one that OpenMetrics' readers agree on."""
    free = no_blanks if wide else st.just("")
    name = draw(names)
    keys = draw(st.lists(st.sampled_from(["a", "b_1", "le", '"c.d"', '"e"']), unique=True, max_size=3))
    parts = [f'{key}{draw(free)}={draw(free)}"{escaped(draw(texts))}"' for key in keys]
    if wide and draw(st.booleans()):
        parts.insert(0, f'"{name}"')
        name = ""
    if not parts and draw(st.booleans()):
        return name
    end = draw(st.sampled_from(["", ","])) if wide and parts else ""
    gap = draw(free)
    return f"{name}{gap if name else ''}{{{gap}{(gap + ',' + gap).join(parts)}{gap}{end}{gap}}}"


@st.composite
def samples(draw):
    """A legal sample line of the text format."""
    stamp = draw(st.one_of(st.just(""), st.integers(-(2**63), 2**63 - 1).map(str)))
    line = f"{draw(no_blanks)}{draw(series())}{draw(blanks)}{draw(numbers)}"
    return f"{line}{draw(blanks)}{stamp}{draw(st.sampled_from(['', ' ', chr(13)]))}"


REMARKS = [
    "",
    " ",
    "#",
    "# x",
    "# HELP x",
    '# HELP y:z a \\\\ \\n " text',
    "#HELP",
    "# EOFX",
    "\t# remark",
    '# HELP "q.r" t',
]
BROKEN = [
    "x", "x{", 'x{a="1"}', 'x{a="1" 5', 'x{a="1}', 'x{a="1"b="2"} 5', 'x{a="1",,b="2"} 5', 'x{a="1",a="2"} 5',
    "x{a=1} 5",
    "x 1_000", "x one", "x 1 two", 'x{"y"} 5', '{"x","y"} 5', '{a="1"} 5', "x-y 5", "9x 5", "# TYPE x",
    "# TYPE x speed",
    "# TYPE 9x gauge", "# HELP 9x text", "x{a} 5", 'x{a="1"} 5}', 'x{__a="1"} 5', '"x" 5', "# TYPE", "é 5", "}{ 5",
]  # fmt: skip


@QUICK
@given(st.lists(st.one_of(samples(), st.sampled_from(REMARKS)), max_size=8), st.sampled_from(["", "\n"]))
@example(["# TYPE x gauge", "x 1", "# TYPE y:z counter", "y:z 1", "x 2"], "\n")
def test_legal_text_reads_as_the_client_reads_it(lines, end):
    """Whatever legal pieces a page is made of, both read it, and the same."""
    page = "\n".join(lines) + end
    assert ours(page, openmetrics=False) == peers(page)
    assert ours(page, openmetrics=False) is not None


@QUICK
@given(st.lists(samples(), max_size=3), st.sampled_from(BROKEN), st.lists(samples(), max_size=3))
def test_broken_text_is_refused_as_the_client_refuses_it(before, broken, after):
    """One broken line anywhere, and both refuse the page; ours says which."""
    page = "\n".join([*before, broken, *after])
    assert peers(page) is None
    with pytest.raises(ExpositionError) as caught:
        parse(page, openmetrics=False)
    assert caught.value.line == len(before) + 1


@QUICK
@given(samples(), st.integers(0, 200), st.integers(0, 3), st.text(alphabet='{}",=\\ #x1\t\n_:', max_size=3))
@example('x{a="1"} 5', 9, 0, " ")
def test_what_is_read_of_damaged_lines_the_client_reads_too(line, at, cut, inserted):
    """We are never laxer: of a damaged line that we read, the client reads the same."""
    page = line[:at] + inserted + line[at + cut :]
    mine = ours(page, openmetrics=False)
    assert mine is None or mine == peers(page)


@st.composite
def families(draw):
    """A legal OpenMetrics page, and its lines: families that keep every rule the client asks for."""
    lines = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["gauge", "unknown", "counter"]))
        name = f"n{number}"
        lines += [f"# TYPE {name} {kind}"] if draw(st.booleans()) or kind == "counter" else []
        lines += [f"# HELP {name} {escaped(draw(texts)) or 'h'}"] if lines and draw(st.booleans()) else []
        suffix = "_total" if kind == "counter" else ""
        stamp = draw(st.sampled_from(["", " 1700000000", " 1700000000.123", " 1.7e9"]))
        for value in range(draw(st.integers(1, 3))):
            labels = f'a="{value}"' + draw(
                st.sampled_from(["", ',"b.c"="d"']) | texts.map(lambda t: f',e="{escaped(t)}"')
            )
            exemplar = draw(st.sampled_from(["", ' # {t="x}"} 1', " # {} 1.5 17.5"])) if kind == "counter" else ""
            number_text = draw(numbers) if kind != "counter" else str(value)
            lines.append(f"{name}{suffix}{{{labels}}} {number_text}{stamp}{exemplar}")
    return lines


@QUICK
@given(families())
def test_legal_openmetrics_reads_as_the_client_reads_it(lines):
    """Types, timestamps in seconds and exemplars: both read them, and the same."""
    page = "\n".join([*lines, "# EOF", ""])
    assert ours(page) == peers(page, openmetrics=True)
    assert ours(page) is not None


BROKEN_OPENMETRICS = [
    *(line for line in BROKEN if line not in ("# HELP 9x text",)),
    "x 1 nan", "x 1 2 3", "x_total 1 # {", "x_total 1 # {} ", 'x_total 1 # {a="1"} one', "# TYPE x untyped", "# EOF",
]  # fmt: skip


@QUICK
@given(families(), st.sampled_from(BROKEN_OPENMETRICS), families())
def test_broken_openmetrics_is_refused_as_the_client_refuses_it(before, broken, after):
    """One broken line, or text after the end, and both refuse the page."""
    page = "\n".join([*before, broken, *after, "# EOF", ""])
    assert peers(page, openmetrics=True) is None
    assert ours(page, openmetrics=True) is None


WANTED = ("num_requests_running", "num_requests_waiting", "running")
FULL = re.compile(r"(?:[a-zA-Z_:][a-zA-Z0-9_:]*[_:])?vllm[:_](" + "|".join(WANTED) + ")")
some_names = st.builds(
    "{}{}".format,
    st.sampled_from(["vllm:", "vllm:", "vllm_", "ray_vllm_", "k:vllm:", "sglang:", "", "vllm", "vllm:vllm_"]),
    st.sampled_from([*WANTED, "num_requests_waiting_by_reason", "nonsense"]),
)
rests = st.sampled_from([
    " 1", "\t2", " 3 1700000000000", ' {a="1"} 4', '{a="\\"\\\\",b="}"}5', "{} NaN", '{a="1"} -Inf\r', '{e="0",} 1e3',
    '{e="0"} 7', '{e="1"} 8', "", " x", '{e="0"', '{e="0"} 1_0', '{e="0",e="0"} 1', '{e="0" f="1"} 1', '"{} 1',
    " 1 # {} 2",
    '{e="0"} 1e999', " 1 1.5", '{"n"} 1', "{e='0'} 1", "-x 1", "{__e=\"0\"} 1",
])  # fmt: skip
some_lines = st.one_of(
    st.builds("{}{}{}".format, no_blanks, some_names, rests),
    st.builds('{{{}"{}"{}'.format, no_blanks, some_names, st.sampled_from(["} 1", ',a="1"} 2', ',a="1"}', ', "a"} 1'])),
    st.builds('{{e="0","{}"}} {}'.format, some_names, st.sampled_from(["1", "nan"])),
    st.builds("{} {} gauge".format, st.sampled_from(["# TYPE", "# HELP", " #", "#"]), some_names),
    st.builds('other{{l="{}"}} 1'.format, some_names),
    st.sampled_from(["", " ", "garbage", "}{", "# EOF", '"', "\\"]),
)  # fmt: skip


def line_by_line(page: str) -> tuple[dict[str, list[object]], dict[str, tuple[int, str]]]:
    """The definition of what `Selector` gives: each line strictly, alone; one spelling of each wanted name."""
    openmetrics = page.rstrip().rpartition("\n")[2].strip() == "# EOF"
    found: dict[str, dict[str, tuple[list[object], list[tuple[int, str]]]]] = {}
    for number, line in enumerate(page.split("\n"), 1):
        text = line.strip(" \t\r")
        name = re.match(r'(?:\{[ \t]*(?:e="0",)?")?([a-zA-Z_:][a-zA-Z0-9_:]*)', text)
        wanted = name and FULL.fullmatch(name.group(1))
        if not wanted or not name:
            continue
        read, broken = found.setdefault(wanted.group(1), {}).setdefault(name.group(1), ([], []))
        try:
            read += map(repr, parse(text + "\n# EOF" * openmetrics, openmetrics=openmetrics))
        except ExpositionError as error:
            broken.append((number, error.why))
    chosen = {
        base: spellings[min(spellings, key=lambda full: (full[:5] != "vllm:", full[:5] != "vllm_", full))]
        for base, spellings in found.items()
    }
    return (
        {base: read for base, (read, _) in chosen.items() if read},
        {base: broken[0] for base, (_, broken) in chosen.items() if broken},
    )


def told(selection: Selection) -> tuple[dict[str, list[object]], dict[str, tuple[int, str]]]:
    """A Selection in the form of `line_by_line`; repr makes NaN equal NaN."""
    return (
        {base: [repr(sample) for sample in found] for base, found in selection.samples.items()},
        {base: (error.line, error.why) for base, error in selection.broken.items()},
    )


USED = Selector(WANTED, prefix="vllm")
"""One that has seen all the pages before."""


@settings(max_examples=300)
@given(st.lists(some_lines, max_size=12), st.sampled_from(["", "\n", "\n# EOF\n"]))
def test_selected_lines_read_as_the_strict_reader_reads_them_alone(lines, end):
    """For its names a Selector, old or new, gives what the strict reader makes of their lines."""
    page = "\n".join(lines) + end
    expected = line_by_line(page)
    for selector in (USED, Selector(WANTED, prefix="vllm")):
        assert told(selector.select(page)) == expected


@QUICK
@given(
    st.one_of(st.text(), st.text(alphabet='x{}",=\\ #\t\n\r1.e+-_:ETYPHLOFUN', max_size=60)),
    st.sampled_from([None, False, True]),
)
def test_nothing_but_exposition_errors(text, openmetrics):
    """Arbitrary text is read or refused; selecting from it never raises."""
    ours(text, openmetrics=openmetrics)
    for end in ("x", "1", " "):
        Selector(["x", " ", "1 "], plain=["x1"]).select(text + end)
    assert mentions(text, "x") in ("samples", "comments", "none")
