"""The types of panels, each a pure function that returns a dict; `builder.dashboard` puts them together.

Each takes a title, a sentence that says what it answers, and its queries; the metrics of the queries are named at the
end of its description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.dashboards.builder import DATASOURCE, PLAIN, Json, metrics_in, query


def stat(
    title: str,
    about: str,
    queries: Sequence[Json],
    *,
    unit: str = "short",
    width: int = 4,
    decimals: int | None = None,
    limits: Json = PLAIN,
    empty: str = "no data",
    texts: Sequence[Json] = (),
) -> Json:
    """One number each query: its last value.

    Args:
        title: of the panel.
        about: what it answers, in sentences.
        queries: see `query`.
        unit: Grafana's id of the unit.
        width: columns of 24.
        decimals: shown; None: as Grafana finds fit.
        limits: see `thresholds`.
        empty: shown in place of a value.
        texts: words in place of values, see `words_for`.
    """
    # A query over the whole time shown would be as slow as that time is long, at each step of a graph.
    queries = [each | {"instant": True, "range": False} if "$__range]" in each["expr"] else each for each in queries]
    defaults = _defaults(unit, limits, empty, texts) | {"color": {"mode": "thresholds"}}
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value" if len(queries) == 1 else "value_and_name",
    }
    return _panel("stat", title, about, queries, (width, 4), defaults, options)


def timeseries(
    title: str,
    about: str,
    queries: Sequence[Json],
    *,
    unit: str = "short",
    width: int = 12,
    height: int = 8,
    stepped: bool = False,
    stacked: bool = False,
    bars: bool = False,
    table: bool = False,
    empty: str = "no data",
    limits: Json | None = None,
    low: float | None = 0,
    top: float | None = None,
    overrides: Sequence[Json] = (),
) -> Json:
    """Lines over time.

    Args:
        title: of the panel.
        about: what it answers, in sentences.
        queries: see `query`.
        unit: Grafana's id of the unit.
        width: columns of 24.
        height: in grid units.
        stepped: a whole number that holds until it changes.
        stacked: parts that add up.
        bars: events, counted.
        table: a legend with last and largest value, for many series.
        empty: shown in place of the graph.
        limits: drawn as lines into the graph.
        low: where the axis begins; None: as the values need.
        top: where it ends.
        overrides: see `colour`.
    """
    custom = {
        "drawStyle": "bars" if bars else "line",
        "lineInterpolation": "stepAfter" if stepped else "linear",
        "lineWidth": 1 if stacked or bars else 2,
        "fillOpacity": 60 if stacked or bars else 0,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if limits else "off"},
    }
    defaults = _defaults(unit, limits or PLAIN, empty)
    defaults |= {"color": {"mode": "palette-classic"}, "custom": custom}
    defaults |= {name: value for name, value in (("min", low), ("max", top)) if value is not None}
    if unit == "short" and (stepped or bars):
        defaults["decimals"] = 0
    legend = {
        "displayMode": "table" if table else "list",
        "placement": "bottom",
        "showLegend": True,
        "calcs": ["lastNotNull", "max"] if table else [],
        **({"sortBy": "Max", "sortDesc": True} if table else {}),
    }
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    return _panel("timeseries", title, about, queries, (width, height), defaults, options, overrides=overrides)


def state_timeline(
    title: str,
    about: str,
    queries: Sequence[Json],
    texts: Sequence[Json],
    *,
    width: int = 24,
    height: int = 7,
    empty: str = "no data",
) -> Json:
    """A row for each series, coloured by what it is in: see `stat` for the arguments, `words_for` for `texts`."""
    defaults = _defaults("none", PLAIN, empty, texts) | {"color": {"mode": "thresholds"}}
    defaults["custom"] = {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False}
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.85,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return _panel("state-timeline", title, about, queries, (width, height), defaults, options)


def heatmap(
    title: str, about: str, expr: str, *, unit: str = "s", width: int = 12, height: int = 8, empty: str = "no data"
) -> Json:
    """How often what duration: `expr` gives the growth of each bucket, by `le`. See `stat` for the other arguments."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "reverse": False, "exponent": 0.5},
        "filterValues": {"le": 1e-9},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "unit": unit, "reverse": False},
        "legend": {"show": True},
    }
    defaults = _defaults("short", PLAIN, empty)
    return _panel("heatmap", title, about, [query(expr, "{{le}}", form="heatmap")], (width, height), defaults, options)


def table(
    title: str,
    about: str,
    keys: Mapping[str, str],
    columns: Sequence[tuple[str, str, Json]],
    *,
    width: int = 24,
    height: int = 7,
    empty: str = "no data",
) -> Json:
    """A line for each set of labels, a column for each query.

    Args:
        title: of the panel.
        about: what it answers, in sentences.
        keys: the labels that a line stands for, and their headings.
        columns: (heading, query, the field's own settings, as unit and thresholds).
        width: columns of 24.
        height: in grid units.
        empty: shown in place of the lines.
    """
    queries = [query(expr, heading, instant=True, form="table") for heading, expr, _ in columns]
    value = "Value" if len(columns) == 1 else "Value #{}"
    fields = [value.format(_ref(number)) for number in range(len(columns))]
    names = {**keys, **{field: heading for field, (heading, _, _) in zip(fields, columns, strict=True)}}
    organise = {
        "excludeByName": {"Time": True},
        "renameByName": names,
        "indexByName": {name: place for place, name in enumerate(names)},
    }
    overrides = [
        {
            "matcher": {"id": "byName", "options": heading},
            "properties": [{"id": name, "value": value} for name, value in settings.items()],
        }
        for heading, _, settings in columns
        if settings
    ]
    options = {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}}
    defaults = _defaults("short", PLAIN, empty) | {"color": {"mode": "thresholds"}}
    defaults["custom"] = {"align": "auto", "cellOptions": {"type": "color-text"}, "filterable": False}
    panel = _panel("table", title, about, queries, (width, height), defaults, options, overrides=overrides)
    return panel | {
        "transformations": [{"id": "merge", "options": {}}, {"id": "organize", "options": organise}],
    }


def _panel(
    kind: str,
    title: str,
    about: str,
    queries: Sequence[Json],
    size: tuple[int, int],
    defaults: Json,
    options: Json,
    *,
    overrides: Sequence[Json] = (),
) -> Json:
    """What every type of panel has."""
    names = dict.fromkeys(name for each in queries for name in metrics_in(each["expr"]))
    named = ", ".join(f"`{name}`" for name in names)
    return {
        "type": kind,
        "title": title,
        "description": f"{about}\n\nMetric: {named}",
        "datasource": DATASOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options,
        "targets": [{"refId": _ref(number), **each} for number, each in enumerate(queries)],
    }


def _defaults(unit: str, limits: Json, empty: str, texts: Sequence[Json] = ()) -> Json:
    return {"unit": unit, "thresholds": limits, "noValue": empty, "mappings": list(texts)}


def _ref(number: int) -> str:
    """The refId of a panel's query: A, B, ..."""
    return chr(ord("A") + number)
