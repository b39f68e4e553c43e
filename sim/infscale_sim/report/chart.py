"""One chart as SVG, a box of `WIDTH` by `HEIGHT` units: title, key, axes, lines. `page` and `picture` place it.

All charts have the same time axis at the same place, so that those above each other can be read together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from infscale_sim.report.axes import Axis
from infscale_sim.report.drawn import Line

WIDTH, HEIGHT = 300, 150
LEFT, RIGHT, TOP, BOTTOM = 40, 282, 40, 130
_LETTER = 5.7
"""Units that a letter of the key takes on the mean; it is 10.5 high."""
_SAMPLE = 16
"""Units that a stroke takes in the key."""
_VALUES = {"count": 30, "rate": 47, "seconds": 47}
"""Units that a value takes behind its name, when the pointer asks for it: `8,888`, `0.517/s`, `100 ms`."""
_DENSE = 300
"""Points from which on a line is drawn thinner, or its strokes run into each other."""
BELOW = -0.025
"""Where the bars below an axis lie, as a share of its height."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line with its name in the key.

    Attributes:
        name: as it stands there.
        style: a class of chart.css: what it looks like, in colour and in dashes.
        line: the values.
        unit: how a value is written: `count`, `rate` or `seconds`.
        filled: whether the area below is, too.
        outlined: whether there is a line; without one, 0 leaves no trace, and a bar below the axis marks all above 0.
    """

    name: str
    style: str
    line: Line
    unit: str = "count"
    filled: bool = False
    outlined: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        title: with the unit.
        series: from back to front.
        axis: of the values.
        limit: a value with a line across, and its name.
        note: words at the end of the key.
    """

    title: str
    series: tuple[Series, ...]
    axis: Axis
    limit: tuple[float, str] | None = None
    note: str = ""

    @property
    def description(self) -> str:
        """The lines in words, for those who cannot see them."""
        parts = [f"{series.name} {_range(series)}" for series in self.series]
        return "; ".join([*parts, *([self.limit[1]] if self.limit else []), *([self.note] if self.note else [])]) + "."


def draw(chart: Chart, time: Axis, horizon_s: float) -> str:
    """The elements of a chart, without an element around them."""
    return "".join(
        [
            f'<text class="title" x="0" y="12">{escape(chart.title)}</text>',
            *_key(chart),
            *_frame(chart.axis, time),
            *(_line(series, chart.axis, time, horizon_s) for series in chart.series),
            *_limit(chart),
            f'<path class="cursor" d="M0 {TOP}V{BOTTOM}"/>',
        ]
    )


def _range(series: Series) -> str:
    """From where to where the values go."""
    known = series.line.known
    never = " and never" if series.line.has_never else ""
    if not known:
        return "never" if never else "without a value"
    unit = {"count": "", "rate": "/s", "seconds": " s"}[series.unit]
    return f"{min(known):,.4g} to {max(known):,.4g}{unit}{never}"


def _key(chart: Chart) -> Iterator[str]:
    """A stroke and the name of each line; the empty span takes its value under the pointer."""
    x = 0.0
    for series in chart.series:
        yield f'<path class="line {series.style}" d="M{_digits(x)} 25h{_SAMPLE - 3}"/>'
        yield f'<text class="key" x="{_digits(x + _SAMPLE)}" y="29">{escape(series.name)} <tspan class="value"/></text>'
        x += _SAMPLE + len(series.name) * _LETTER + _VALUES[series.unit]
    if chart.limit:
        yield f'<path class="line limit" d="M{_digits(x)} 25h{_SAMPLE - 3}"/>'
        yield f'<text class="key" x="{_digits(x + _SAMPLE)}" y="29">{escape(chart.limit[1])}</text>'
    if chart.note:
        yield f'<text class="key" x="{_digits(x)}" y="29">{escape(chart.note)}</text>'


def _frame(axis: Axis, time: Axis) -> Iterator[str]:
    """Grid and ticks."""
    for share, text in axis.ticks:
        y = _digits(_y(share))
        yield f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>'
        baseline = _digits(_y(share) + 3.5)
        yield f'<text class="tick" x="{LEFT - 4}" y="{baseline}" text-anchor="end">{escape(text)}</text>'
    for share, text in time.ticks:
        x = _x(share)
        yield f'<path class="grid" d="M{_digits(x)} {BOTTOM}v3"/>'
        yield f'<text class="tick" x="{_digits(x)}" y="{BOTTOM + 14}" text-anchor="middle">{escape(text)}</text>'


def _line(series: Series, axis: Axis, time: Axis, horizon_s: float) -> str:
    pieces = list(_pieces(series.line, axis, time, horizon_s))
    outline = "".join(piece for _, _, piece in pieces)
    drawn = ""
    if series.filled:
        closed = "".join(f"{piece}V{BOTTOM}H{begin}Z" for begin, _, piece in pieces)
        drawn += f'<path class="area {series.style}" d="{closed}"/>'
    if series.outlined:
        dense = " dense" if len(series.line.time_s) > _DENSE else ""
        return f'{drawn}<path class="line {series.style}{dense}" d="{outline}"/>'
    positive = Line(series.line.time_s, tuple(BELOW if value else None for value in series.line.value))
    bars = "".join(piece for _, _, piece in _pieces(positive, Axis(lambda share: share, ()), time, horizon_s))
    return f'{drawn}<path class="bar {series.style}" d="{bars}"/>'


def _pieces(line: Line, axis: Axis, time: Axis, horizon_s: float) -> Iterator[tuple[str, str, str]]:
    """Where each unbroken piece of a line begins and ends, and its path; positions of a tenth of a unit."""
    until_s = (*line.time_s[1:], horizon_s)
    begin = end = path = ""
    for time_s, next_s, value in zip(line.time_s, until_s, line.value, strict=True):
        if value is None:
            if path:
                yield begin, end, path
            path = ""
            continue
        y = _digits(_y(axis.share(value)))
        if path:
            path += f"V{y}"
        else:
            begin = _digits(_x(time.share(time_s)))
            path = f"M{begin} {y}"
        end = _digits(_x(time.share(next_s)))
        path += f"H{end}"
    if path:
        yield begin, end, path


def _limit(chart: Chart) -> Iterator[str]:
    if chart.limit is None:
        return
    y = _digits(_y(chart.axis.share(chart.limit[0])))
    yield f'<path class="line limit" d="M{LEFT} {y}H{RIGHT}"/>'


def _x(share: float) -> float:
    return LEFT + share * (RIGHT - LEFT)


def _y(share: float) -> float:
    return BOTTOM - share * (BOTTOM - TOP)


def _digits(number: float) -> str:
    """A position, to a tenth of a unit."""
    text = f"{number:.1f}"
    return text.removesuffix(".0")


def written(value: float | None) -> float | None:
    """A value for the page's script: four digits, -1 for never."""
    if value is None:
        return None
    return -1.0 if value == math.inf else float(f"{value:.4g}")
