"""Only the lines asked for: which names count, what a broken line does, and that what was learned stays true."""

from __future__ import annotations

import math

import pytest

from infscale import exposition_select
from infscale.exposition import Sample, Selector, mentions

RUNNING = "num_requests_running"
WAITING = "num_requests_waiting"


def select(text, *names, prefix="vllm", **more):
    """What a new Selector reads, as {name: [(labels, value)]}; the page must have no broken line that matters."""
    selection = Selector(names or (RUNNING, WAITING), prefix=prefix, **more).select(text)
    assert selection.broken == {}
    return {name: [(dict(s.labels), s.value) for s in samples] for name, samples in selection.samples.items()}


@pytest.mark.parametrize(
    "full",
    [
        "vllm:num_requests_running", "vllm_num_requests_running", "kserve_vllm:num_requests_running",
        "ray_vllm_num_requests_running", "a:b_vllm:num_requests_running", "vllm_vllm:num_requests_running",
    ],
)  # fmt: skip
def test_a_prefix_with_either_mark_and_a_gateways_words(full):
    """A name counts after its prefix with a colon or an underscore, whatever words a gateway put before."""
    assert select(f"{full} 5") == {RUNNING: [({}, 5.0)]}
    assert select(f'{{"{full}",engine="0"}} 5') == {RUNNING: [({"engine": "0"}, 5.0)]}
    assert Selector([RUNNING], prefix="vllm").select(f"{full} 5").samples[RUNNING][0].name == full


@pytest.mark.parametrize(
    "full",
    [
        "num_requests_running", "vllm:num_requests_running_total", "vllm:num_requests_runnin",
        "vllmnum_requests_running",
        "vllm:x_num_requests_running", "xvllm:num_requests_running", "vllm_omni:num_requests_running",
        "sglang:num_requests_running", "vllm:num_requests_waiting_by_reason",
    ],
)  # fmt: skip
def test_names_that_only_resemble_a_wanted_one(full):
    """A longer name, another prefix or none is not it: `num_requests_waiting_by_reason` would count twice."""
    assert select(f'{full}{{a="b"}} 5\n{full} 5\n{{"{full}"}} 5') == {}


def test_complete_names():
    """With no prefix, and for plain names, the whole name must be equal."""
    page = "tgi_queue_size 3\nray_tgi_queue_size 4\nprocess_start_time_seconds 1.5\nvllm:process_start_time_seconds 2"
    assert select(page, "tgi_queue_size", prefix="") == {"tgi_queue_size": [({}, 3.0)]}
    plain = select(page, RUNNING, plain=["process_start_time_seconds"])
    assert plain == {"process_start_time_seconds": [({}, 1.5)]}


def test_other_spellings_of_lines():
    """A wanted line is read in every legal spelling, its series in the order of the page."""
    lines = [
        'vllm:num_requests_running{e="0"} 0', '\t vllm:num_requests_running {\te = "1" , } 1 1700000000000',
        'vllm:num_requests_running{e="2"}2\r', 'vllm:num_requests_running{e="} 9"} 3',
        'vllm:num_requests_running{e="\\"4\\""}\t4', '{e="5","vllm:num_requests_running"} 5',
        'vllm:num_requests_running{e="6"} -Inf', 'vllm:num_requests_running{e="7",} 7e0',
        'vllm:num_requests_running{"e"="8"} +8.', "vllm:num_requests_running 9",
    ]  # fmt: skip
    read = select("\n".join(lines))[RUNNING]
    assert [labels.get("e") for labels, _ in read] == ["0", "1", "2", "} 9", '"4"', "5", "6", "7", "8", None]
    assert [value for _, value in read] == [0, 1, 2, 3, 4, 5, -math.inf, 7, 8, 9]


def test_comments_and_label_values_are_no_samples():
    """A wanted name in a comment, in a label's value or behind another name is no sample."""
    page = (
        f"# HELP vllm:{RUNNING} vllm:{RUNNING} 5\n# TYPE vllm:{RUNNING} gauge\n  # vllm:{RUNNING} 5\n"
        f'info{{metric="vllm:{RUNNING}"}} 1\n{{"info",metric="vllm:{RUNNING}"}} 1\n'
        f'info {{m="}} vllm:{RUNNING} 5"}} 1\n'
    )
    assert select(page) == {}


def test_text_or_openmetrics_is_told_from_the_page():
    """Timestamps in seconds and exemplars are read on a page that ends with `# EOF`, and are faults on any other."""
    page = f'vllm:{RUNNING} 5 1.5\nvllm:{WAITING}{{a="b"}} 6 # {{c="d"}} 1 1.5\n'
    assert select(page + "# EOF\n") == {RUNNING: [({}, 5.0)], WAITING: [({"a": "b"}, 6.0)]}
    assert set(Selector([RUNNING, WAITING], prefix="vllm").select(page).broken) == {RUNNING, WAITING}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("vllm:num_requests_running", "no value"), ("vllm:num_requests_running five", "not a number"),
        ("vllm:num_requests_running 1_0", "not a number"), ("vllm:num_requests_running 1e999", "too large"),
        ('vllm:num_requests_running{a="b} 5', "not closed"), ('vllm:num_requests_running{a="1",a="2"} 5', "twice"),
        ('vllm:num_requests_running{a="b" 5', "expected ,"),
        ("vllm:num_requests_running 5 6 7", "text after the value"),
        ('vllm:num_requests_running"{a="b"} 5', "blank or {"), ("\ufeffvllm:num_requests_running 5", "metric name"),
        ('{"vllm:num_requests_running",a=b} 5', "quotes"), ('{"vllm:num_requests_running} 5', "not closed"),
        ('{a="b","vllm:num_requests_running"} x', "not a number"), ("vllm:num_requests_running\x0b5", "blank or {"),
    ],
)  # fmt: skip
def test_a_broken_line_of_a_wanted_name(line, why):
    """It is told with its place, and blinds neither the name's other lines nor other names."""
    page = f'\n# TYPE y gauge\ny 1\nvllm:{RUNNING}{{e="0"}} 3\n{line}\nvllm:{RUNNING} x\nvllm:{WAITING} 4\n'
    selection = Selector([RUNNING, WAITING], prefix="vllm").select(page, "page.prom")
    assert selection.samples == {
        RUNNING: [Sample("vllm:" + RUNNING, {"e": "0"}, 3.0)],
        WAITING: [Sample("vllm:" + WAITING, {}, 4.0)],
    }
    assert set(selection.broken) == {RUNNING}
    error = selection.broken[RUNNING]
    assert (error.source, error.line) == ("page.prom", 5)
    assert why in error.why


@pytest.mark.parametrize(
    "line", ['x{a="num_requests_running} 5', "num_requests_running_x", "9 vllm:num_requests_running", "\\"]
)
def test_a_broken_line_elsewhere_does_not_blind(line):
    """What is broken in lines of other names is not looked at."""
    assert select(f"{line}\nvllm:{RUNNING} 5\n{line}\n{line}") == {RUNNING: [({}, 5.0)]}


@pytest.mark.parametrize(
    ("spellings", "kept"),
    [
        (("ray_vllm_", "vllm_", "vllm:"), "vllm:"),
        (("ray_vllm_", "kserve_vllm:", "vllm_"), "vllm_"),
        (("ray_vllm_", "kserve_vllm:"), "kserve_vllm:"),
    ],
)
def test_one_spelling_of_a_name_is_kept(spellings, kept):
    """A page that carries a metric twice, renamed, counts once: with the colon, else the underscore, else the first."""
    page = "\n".join(f'{spelling}{RUNNING}{{e="{e}"}} {e}' for e in (1, 2) for spelling in spellings)
    selection = Selector([RUNNING], prefix="vllm").select(page)
    assert [(s.name, s.value) for s in selection.samples[RUNNING]] == [(kept + RUNNING, 1.0), (kept + RUNNING, 2.0)]
    broken = Selector([RUNNING], prefix="vllm").select(page + f"\n{spellings[0]}{RUNNING} x\n{kept}{WAITING} x").broken
    assert broken == {}


def test_a_preferred_spelling_that_is_broken_is_told():
    """The copy under another name does not stand in for a broken line."""
    selection = Selector([RUNNING], prefix="vllm").select(f"vllm_{RUNNING} 5\nvllm:{RUNNING} x")
    assert selection.samples == {}
    assert selection.broken[RUNNING].line == 2


def test_families_split_shuffled_and_without_comments():
    """The samples of a name are found wherever they stand: between other families, and far apart."""
    filler = "".join(f'other{{i="{i}"}} {i}\n' for i in range(2000))
    page = "".join(f'{filler}vllm:{RUNNING}{{e="{e}"}} {e}\nx 1\nvllm:{WAITING} 1\n' for e in range(3))
    expected: dict[str, object] = {RUNNING: [({"e": str(e)}, float(e)) for e in range(3)], WAITING: [({}, 1.0)] * 3}
    assert select(page) == expected
    assert select(page.replace("x 1", "# TYPE y gauge")) == expected
    assert select(f'vllm:{RUNNING}{{e="{"e" * 20_000}"}} 1\nvllm:{WAITING} 1')[WAITING] == [({}, 1.0)]


def test_what_was_learned_does_not_leak_into_the_next_page():
    """A Selector that knows series by heart reads the next page's own values, faults and labels."""
    selector = Selector([RUNNING], prefix="vllm")
    line = f'vllm:{RUNNING}{{e="0"}} '
    assert selector.select(line + "1").samples[RUNNING] == [Sample("vllm:" + RUNNING, {"e": "0"}, 1.0)]
    assert selector.select(line + "2").samples[RUNNING] == [Sample("vllm:" + RUNNING, {"e": "0"}, 2.0)]
    assert selector.select(line + "x").samples == {}
    assert selector.select(line + "x").broken[RUNNING].line == 1
    assert selector.select("").samples == {}
    assert selector.select(f'vllm:{RUNNING}{{e="0",e="0"}} 1').broken[RUNNING].why == "a label twice in one sample"


def test_what_is_learned_is_bounded(monkeypatch):
    """Pages with ever new names and labels do not make a Selector grow without end, and are still read right."""
    monkeypatch.setattr(exposition_select, "MEMO_ENTRIES", 10)
    selector = Selector([RUNNING], prefix="vllm")
    for page in range(5):
        text = "".join(f'vllm:{RUNNING}{{e="{page}-{e}"}} {e}\nw{page}_{e}_{RUNNING}{{}} 1\n' for e in range(25))
        assert [s.value for s in selector.select(text).samples[RUNNING]] == list(range(25))
        assert len(selector._labels) <= 10
        assert len(selector._wanted) <= 10
        assert len(selector._unwanted) <= 10


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("vllm:x 1", "samples"), ("ray_vllm_x{} 1", "samples"), ('{"vllm:x"} 1', "samples"),
        ("  vllm:x nonsense", "samples"),
        ("# TYPE vllm:x gauge\nvllm_x 1", "samples"), ("# HELP vllm:x text", "comments"),
        ("#\tTYPE\tvllm_x gauge", "comments"), ('# TYPE "vllm:x" gauge', "comments"),
        ("# UNIT vllm:x s\n# EOF", "comments"), ("# vllm:x 1", "none"), ("# HELP x about vllm:y", "none"),
        ('x{model="vllm:y"} 1', "none"), ("xvllm:y 1", "none"), ("vllm 1", "none"),
        ("vllm-x 1", "none"), ("", "none"), ('{"detail":"Not Found"}', "none"), ('# HELP "vllm:x', "none"),
    ],
)  # fmt: skip
def test_mentions(page, found):
    """A prefix is on a page in a sample's name, in comments only, or not at all."""
    assert mentions(page, "vllm") == found
    assert mentions(f'a{{b="vllm:c"}} 1\n{page}\n# HELP d vllm:e\n', "vllm") == found


def test_mentions_is_sure_only_of_a_sample():
    """A comment with the prefix does not end the search for a sample that has it."""
    assert mentions("# TYPE vllm:x gauge\n" * 3 + "vllm:x 1", "vllm") == "samples"


def test_mentions_without_a_prefix():
    """An engine without a prefix is mentioned by any sample."""
    assert mentions("# TYPE x gauge\n\nx 1\n", "") == "samples"
    assert mentions("\n\n", "") == "none"
