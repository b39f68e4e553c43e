"""The report as one HTML page that needs nothing from elsewhere; without its script all but the pointer works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path

from infscale_sim.report import chart
from infscale_sim.report.chart import Chart
from infscale_sim.report.drawn import Drawn, Line, Report
from infscale_sim.report.panels import HEADINGS, Panels, cells, notes, panels, sentence


def html_page(report: Report) -> str:
    """The page; write it as UTF-8."""
    arranged = panels(report)
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">',
            f"<title>infscale simulate · {escape(report.headline)}</title>",
            f"<style>\n{resource('chart.css')}{resource('page.css')}</style></head>\n<body>",
            f"<header><h1>Scaling policies compared</h1><p>{escape(report.headline)}</p></header>\n<main>",
            '<div class="top">',
            _chart(arranged.rate, "traffic", arranged, "the traffic of all policies"),
            _comparison(report),
            "</div>\n",
            _choice(report),
            *_runs(report, arranged),
            "</main>\n",
            '<div class="clock" hidden><label for="time">Time</label>'
            '<input type="range" id="time" min="0" max="1000" value="0">'
            '<output for="time">no time chosen</output></div>\n',
            f'<script type="application/json" id="data">{_data(arranged)}</script>\n',
            f"<script>\n{resource('page.js')}</script>\n</body></html>\n",
        ]
    )


@cache
def resource(name: str) -> str:
    """The text of a file beside this one."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _comparison(report: Report) -> str:
    head = "".join(f'<th scope="col" role="columnheader">{escape(name)}</th>' for name in HEADINGS)
    rows = "".join(_row(number, one) for number, one in enumerate(report.policies))
    return (
        '<div class="compare"><table role="table" aria-label="Comparison of the policies">'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead><tbody role="rowgroup">{rows}</tbody></table>'
        f'<p class="dim">{escape(" ".join(notes(report)))}</p></div>'
    )


def _row(number: int, one: Drawn) -> str:
    name, *others = cells(one)
    row = "".join(
        f'<td role="cell" data-label="{escape(heading)}">{escape(text)}</td>'
        for heading, text in zip(HEADINGS[1:], others, strict=True)
    )
    head = f'<th scope="row" role="rowheader"><a href="#p{number}">{escape(name)}</a></th>'
    return f'<tr role="row" data-policy="{number}">{head}{row}</tr>\n'


def _choice(report: Report) -> str:
    """A box for each policy; the script shows them."""
    boxes = "".join(
        f'<label><input type="checkbox" value="{number}" checked autocomplete="off">{escape(one.policy)}</label>'
        for number, one in enumerate(report.policies)
    )
    return f"<fieldset hidden><legend>Show</legend>{boxes}</fieldset>\n"


def _runs(report: Report, arranged: Panels) -> Iterator[str]:
    for number, (one, charts) in enumerate(zip(report.policies, arranged.policies, strict=True)):
        drawn = "".join(
            _chart(each, f"p{number}c{index}", arranged, f"policy {one.policy}") for index, each in enumerate(charts)
        )
        yield (
            f'<section class="run" id="p{number}" data-policy="{number}" aria-labelledby="p{number}h">'
            f'<h2 id="p{number}h"><code>{escape(one.policy)}</code></h2>'
            f'<p class="totals">{escape(sentence(one.totals))}</p><div class="charts">{drawn}</div></section>\n'
        )


def _chart(one: Chart, name: str, arranged: Panels, of: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {chart.WIDTH} {chart.HEIGHT}" role="img" aria-labelledby="{name}t {name}d">'
        f'<title id="{name}t">{escape(f"{one.title}, {of}")}</title><desc id="{name}d">{escape(one.description)}</desc>'
        f"{chart.draw(one, arranged.time, arranged.horizon_s)}</svg>"
    )


def _data(arranged: Panels) -> str:
    """For the script: each line once, and for each value of a key in the order of the page its line and unit."""
    numbers: dict[Line, int] = {}
    values = [
        (numbers.setdefault(series.line, len(numbers)), series.unit)
        for one in (arranged.rate, *(one for charts in arranged.policies for one in charts))
        for series in one.series
    ]
    lines = [
        ([float(f"{time_s:.1f}") for time_s in line.time_s], [chart.written(value) for value in line.value])
        for line in numbers
    ]
    data = {
        "horizon": arranged.horizon_s,
        "width": chart.WIDTH,
        "left": chart.LEFT,
        "right": chart.RIGHT,
        "lines": lines,
        "values": values,
    }
    return json.dumps(data, separators=(",", ":")).replace(".0,", ",").replace(".0]", "]")
