"""The report as one SVG: the table, the traffic, and for each policy a row of charts."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from infscale_sim.report import chart
from infscale_sim.report.drawn import Drawn, Report
from infscale_sim.report.page import resource
from infscale_sim.report.panels import HEADINGS, cells, notes, panels, sentence

_MARGIN, _GAP = 24, 28
_WIDTH = 2 * _MARGIN + 4 * chart.WIDTH + 3 * _GAP
_HEAD = 72
_TABLE_ROW, _NOTE_ROW = 19, 14
_ROW = chart.HEIGHT + 58
_LETTERS = 48
"""Of a policy's name, in the table; whole in front of its charts."""
_COLUMN_ENDS = (400, 470, 550, 630, 732, 810, 864, 956)
"""Where the columns after the first end, from the begin of the first."""


def svg_picture(report: Report) -> str:
    """The picture; write it as UTF-8."""
    arranged = panels(report)
    table = (len(report.policies) + 1) * _TABLE_ROW + len(notes(report)) * _NOTE_ROW
    top = _HEAD + max(chart.HEIGHT, table) + 16
    height = top + len(report.policies) * _ROW + _MARGIN - 10
    column = chart.WIDTH + _GAP
    rows = []
    for number, (one, charts) in enumerate(zip(report.policies, arranged.policies, strict=True)):
        y = top + number * _ROW
        rows.append(_heading(one, y))
        for index, each in enumerate(charts):
            drawn = chart.draw(each, arranged.time, arranged.horizon_s)
            label = escape(f"{each.title}, policy {one.policy}: {each.description}")
            rows.append(_placed(drawn, _MARGIN + index * column, y + 48, label))
    rate = chart.draw(arranged.rate, arranged.time, arranged.horizon_s)
    label = escape(f"{arranged.rate.title}: {arranged.rate.description}")
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="title">',
            f'<title id="title">Scaling policies compared: {escape(report.headline)}</title>',
            f"<style>\n{resource('chart.css')}</style>\n",
            f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
            f'<text class="policy" x="{_MARGIN}" y="32">Scaling policies compared</text>',
            f'<text class="dim" x="{_MARGIN}" y="52">{escape(report.headline)}</text>\n',
            _placed(rate, _MARGIN, _HEAD, label),
            *_table(report, _MARGIN + column),
            *rows,
            "</svg>\n",
        ]
    )


def _placed(drawn: str, x: int, y: int, label: str) -> str:
    return f'<g transform="translate({x} {y})" role="img" aria-label="{label}">{drawn}</g>\n'


def _heading(one: Drawn, y: int) -> str:
    return (
        f'<path class="grid" d="M{_MARGIN} {y}h{_WIDTH - 2 * _MARGIN}"/>'
        f'<text class="policy" x="{_MARGIN}" y="{y + 21}">{escape(one.policy)}</text>'
        f'<text class="dim" x="{_MARGIN}" y="{y + 38}">{escape(sentence(one.totals))}</text>\n'
    )


def _table(report: Report, x: int) -> Iterator[str]:
    y = _HEAD + 12
    yield _cells(HEADINGS, x, y, "tick")
    for one in report.policies:
        y += _TABLE_ROW
        name, *others = cells(one)
        short = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
        yield f'<path class="grid" d="M{x} {y - 13}h{_COLUMN_ENDS[-1]}"/>'
        yield _cells((short, *others), x, y, "cell")
    for line, words in enumerate(notes(report), start=1):
        yield f'<text class="tick" x="{x}" y="{y + 4 + line * _NOTE_ROW}">{escape(words)}</text>\n'


def _cells(texts: tuple[str, ...], x: int, y: int, style: str) -> str:
    first, *others = texts
    row = "".join(
        f'<text class="{style}" x="{x + end}" y="{y}" text-anchor="end">{escape(text)}</text>'
        for end, text in zip(_COLUMN_ENDS, others, strict=True)
    )
    return f'<text class="{style}" x="{x}" y="{y}">{escape(first)}</text>{row}\n'
