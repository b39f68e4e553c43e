"""The report without a browser: its values, its axes, and what stands in the page and in the picture."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale_sim.report import Drawn, Line, Report, Totals, Traffic, html_page, report_of, svg_picture
from infscale_sim.report.adapt import target_of
from infscale_sim.report.axes import count_axis, linear_axis, seconds_axis, time_axis
from infscale_sim.report.drawn import MOST_POINTS
from infscale_sim.scenario import load_scenario
from infscale_sim.simulate import run

SCENARIO = load_scenario("default")
SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "link", "input", "br"}


class Checked(HTMLParser):
    """Reads a page and holds that its elements are closed in order and its ids are unique."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        """An element begins."""
        given = dict(attrs)
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.references += (given.get("aria-labelledby") or "").split()
        self.links += [value for name, value in attrs if name in ("href", "src") and value]

    def handle_startendtag(self, tag, attrs):
        """An element without content: only SVG's may be written so."""
        assert tag in ("path", "tspan"), tag

    def handle_endtag(self, tag):
        """An element ends."""
        assert self.open.pop() == tag


def checked(page: str) -> Checked:
    """A page that was read to its end."""
    parser = Checked()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    assert set(parser.references) <= set(parser.ids)
    return parser


@pytest.fixture(scope="module")
def report() -> Report:
    """The default scenario's policies."""
    return made(*SCENARIO.policies)


def made(*policies: str, scenario=SCENARIO) -> Report:
    """A report of some policies."""
    requests = scenario.requests()
    return report_of("what was run", scenario, requests, [run(scenario, policy, requests) for policy in policies])


def small(policy: str = "queue:24", headline: str = "h", value: float | None = 1.0) -> Report:
    """A report that was not simulated."""
    line = Line((0.0, 5.0), (0.0, value))
    totals = Totals(1, 0, 0.0, None, None, 1.0, 1.5, 0.5, 1, 0)
    one = Drawn(policy, None, line, line, line, None, (("p50", line),), line, totals)
    return Report(headline, Traffic(10.0, 5.0, 2.0, line, line), (one,))


# Values


def test_values_agree_with_the_totals(report):
    """Misses and arrivals over time add up to those of the table; the replicas' largest is the peak."""
    traffic = report.traffic
    starts = [index * traffic.window_s for index in range(100)]

    assert traffic.window_s == 15
    assert sum(traffic.rate.at(start) for start in starts) * 15 == pytest.approx(15555)
    for one in report.policies:
        assert sum(one.misses.at(start) for start in starts) * 15 == pytest.approx(one.totals.slo_misses)
        assert one.ready.most == one.totals.peak_replicas == one.recommended.most


def test_required_is_the_work_over_what_a_replica_carries(report):
    """30 requests of 385.7 output tokens a second are 1.9 times the 6,154 tokens of a full batch, prompts included."""
    assert report.traffic.required.at(600.0) == 2
    assert report.traffic.required.at(900.0) == 1
    assert report.traffic.required.at(1200.0) == 0


def test_ready_follows_the_cold_start(report):
    """What is recommended is ready 91 s later, and not before."""
    queue = report.policies[2]
    first_s = queue.recommended.time_s[1]

    assert queue.ready.at(first_s + 90.9) == 1
    assert queue.ready.at(first_s + 91.1) > 1
    assert queue.wanted == Line(queue.ready.time_s, tuple(24 * (count or 0) for count in queue.ready.value))


@pytest.mark.parametrize(
    ("policy", "target"),
    [
        ("queue:24,lookahead=90", 24),
        ("hpa:queue:9", 9),
        ("keda:queue:8", 8),
        ("kpa:queue:7", 7),
        ("hpa:cpu:60", None),
        ("static:2", None),
        ("oracle", None),
    ],
)
def test_target_in_flight(policy, target):
    """Every form on the queue has one; what looks at something else has none."""
    assert target_of(policy, SCENARIO) == target


def test_request_without_a_token_never_got_one():
    """Percentiles count it as infinite, and the chart has a place for that."""
    cut = replace(SCENARIO, horizon_s=500.0)
    one = made("hpa:cpu:60", scenario=cut).policies[0]

    assert dict(one.ttft)["p99"].value[-1] == math.inf
    assert ">never</text>" in svg_picture(made("hpa:cpu:60", scenario=cut))


def test_window_without_requests_has_no_percentile(report):
    """The line is interrupted where nothing came."""
    assert all(line.at(1200.0) is None for one in report.policies for _, line in one.ttft)


def test_nothing_ran():
    """No request and no replica is a report, too."""
    quiet = replace(SCENARIO, horizon_s=0.0, start=0)

    checked(html_page(made("queue:24,min=0", "static:0", scenario=quiet)))
    ElementTree.fromstring(svg_picture(made("queue:24,min=0", scenario=quiet)))


points = st.lists(st.tuples(st.floats(0, 1e6), st.none() | st.just(math.inf) | st.floats(0, 1e9)), max_size=300)


@given(points, st.integers(8, 100))
def test_thinned_line_keeps_its_peaks(pairs, most):
    """Fewer points, the same extremes, and no value that was not there."""
    line = Line.of(sorted(pairs, key=lambda pair: pair[0]))
    thinned = line.thinned(most)

    assert len(thinned.time_s) <= most
    assert set(zip(thinned.time_s, thinned.value, strict=True)) <= set(zip(line.time_s, line.value, strict=True))
    assert list(thinned.time_s) == sorted(set(thinned.time_s))
    if line.value:
        ranks = [-1.0 if value is None else value for value in line.value]
        kept = [-1.0 if value is None else value for value in thinned.value]
        assert (max(kept), min(kept), kept[-1]) == (max(ranks), min(ranks), ranks[-1])


# Axes


@pytest.mark.parametrize(
    ("horizon_s", "ticks"),
    [
        (60, "0 15 30 45 60 s"),
        (1500, "0 5 10 15 20 25 min"),
        (3600, "0 15 30 45 60 min"),
        (86400, "0 6 12 18 24 h"),
        (14 * 86400, "0 5 10 d"),
        (400 * 86400, "0 100 200 300 400 d"),
    ],
)
def test_time_axis_has_the_unit_that_fits(horizon_s, ticks):
    """Seconds to days, at most six ticks, the unit once."""
    assert " ".join(text for _, text in time_axis(horizon_s).ticks) == ticks


def test_axes_of_values():
    """Round ticks; counts in whole steps; over 400 tenfold ones; seconds in ms below one, and a place for never."""
    assert [text for _, text in linear_axis(30).ticks] == ["0", "10", "20", "30"]
    assert [text for _, text in linear_axis(0.25).ticks] == ["0", "0.1", "0.2", "0.3"]
    assert [text for _, text in count_axis(1).ticks] == ["0", "1"]
    assert [text for _, text in count_axis(8).ticks] == ["0", "4", "8"]
    assert [text for _, text in count_axis(4100).ticks] == ["0", "10", "100", "1k"]
    axis = seconds_axis(0.009, 250.0, never=True)
    assert [text for _, text in axis.ticks] == ["10 ms", "100 ms", "1 s", "10 s", "100 s", "never"]
    assert axis.share(250.0) < axis.share(math.inf) == 1


@given(st.floats(0, 1e12), st.floats(0, 1))
def test_values_stay_on_their_axis(most, part):
    """No value up to the largest lies outside, whatever the largest."""
    for axis in (linear_axis(most), count_axis(most), seconds_axis(min(most, 2.0), max(most, 2.0), never=False)):
        assert 0 <= axis.share(most * part) <= 1
        assert all(-1e-9 <= share <= 1 + 1e-9 for share, _ in axis.ticks)


# The page and the picture


def test_page_holds_everything(report):
    """Well-formed, nothing from elsewhere, the table, and for each policy four charts, each with its words."""
    page = html_page(report)
    parser = checked(page)

    assert parser.links == ["data:,", *(f"#p{number}" for number in range(6))]
    assert "http" not in page.replace("http-equiv", "")
    assert parser.tags.count("tr") == 1 + 6
    assert parser.tags.count("section") == 6
    assert parser.tags.count("svg") == parser.tags.count("desc") == 1 + 6 * 4
    assert all(one.policy in page for one in report.policies)
    assert re.search(r"3\d\d of 15,555 requests missed", page)


def test_data_of_the_page_match_its_keys(report):
    """The script finds a line for every value that it fills in."""
    page = html_page(report)
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found is not None
    data = json.loads(found[1])

    assert page.count('<tspan class="value"/>') == len(data["values"])
    assert all(0 <= line < len(data["lines"]) for line, _ in data["values"])
    assert all(len(times) == len(values) for times, values in data["lines"])


def test_picture_holds_everything(report):
    """Well-formed XML, a group a chart with a label in words, every policy."""
    root = ElementTree.fromstring(svg_picture(report))
    labels = [group.get("aria-label") for group in root.iter(f"{SVG}g")]
    texts = {text.text for text in root.iter(f"{SVG}text")}

    assert len(labels) == 1 + 6 * 4
    assert "Replicas, policy static:2: ready 2 to 2; required 0 to 2; recommended 2 to 2." in labels
    assert {one.policy for one in report.policies} <= texts


def test_lines_differ_without_colour(report):
    """The lines of one chart have each their own dashes."""
    dashes = dict(re.findall(r"\.line\.(\w+)\{[^}]*stroke-dasharray:([^;}]*)", svg_picture(report)))

    assert {"want", "need", "limit", "dashed", "dotted"} <= set(dashes)
    assert dashes["want"] != dashes["need"]
    assert dashes["dashed"] != dashes["dotted"] != dashes["limit"]


def test_same_report_same_bytes(report):
    """Nothing depends on the clock, on addresses or on the order of a set."""
    again = made(*SCENARIO.policies)

    assert html_page(report) == html_page(again)
    assert svg_picture(report) == svg_picture(again)


def test_everything_is_escaped():
    """A policy and a headline are text, whatever they hold."""
    hostile = """</script></title><script>alert("1")</script>&amp;'"""
    report = small(policy=hostile, headline=hostile)
    page, picture = html_page(report), svg_picture(report)

    assert checked(page).tags.count("script") == 2
    root = ElementTree.fromstring(picture)
    assert [element.tag for element in root.iter()].count(f"{SVG}script") == 0
    assert hostile in {text.text for text in root.iter(f"{SVG}text")}


def test_oracle_and_bound_are_said():
    """The ratio stands in the table, the bound below it."""
    requests = SCENARIO.requests()
    result = replace(run(SCENARIO, "static:2", requests), oracle_ratio=2.0, bound_replica_minutes=23.0)
    report = report_of("h", SCENARIO, requests, [result])

    for text in (html_page(report), svg_picture(report)):
        assert ">2.00<" in text
        assert "no schedule needs less than 23.0 replica-min." in text


def test_two_weeks_of_six_policies_stay_small():
    """80,000 looks a policy: at most MOST_POINTS a line, and a page that a mail takes."""
    horizon_s = 14 * 86400.0
    looks = [index * 15.0 for index in range(80640)]
    busy = Line.of((time_s, float((index * 7919) % 101)) for index, time_s in enumerate(looks))
    hours = Line.of((index * 3600.0, 0.001 * ((index * 31) % 977)) for index in range(336))
    totals = small().policies[0].totals
    ttft = tuple((name, hours) for name in ("p50", "p95", "p99"))
    policies = tuple(Drawn(f"queue:{n}", 1.0, busy, busy, busy, busy, ttft, hours, totals) for n in range(6))
    report = Report("h", Traffic(horizon_s, 3600.0, 2.0, hours, hours), policies)
    page, picture = html_page(report), svg_picture(report)

    assert max(path.count("H") for path in re.findall(r' d="([^"]*)"', picture)) <= MOST_POINTS
    assert len(page) < 2_500_000
    assert len(picture) < 2_000_000
