"""Queries, variables and dashboards as plain dicts, in Grafana's classic JSON model (schemaVersion 39: 10.4 and newer).

`panels` makes the panels. `dashboard` numbers them and lays them out from left to right in the order given, so that two
never overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]

SCHEMA_VERSION = 39
COLUMNS = 24
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
TAG = "infscale"

_METRIC = re.compile(r"(?<![\w:\"])[a-z_:]*(?:infscale|kube)_\w+(?::\w+)?|(?<![\w:\"])up(?=\{)")


def metrics_in(expr: str) -> list[str]:
    """The metrics that a query reads, each once, in their order."""
    return list(dict.fromkeys(_METRIC.findall(expr)))


def query(expr: str, legend: str = "__auto", *, instant: bool = False, form: str = "time_series") -> Json:
    """One query of a panel.

    Args:
        expr: PromQL, with the dashboard's variables.
        legend: the name of its series, `{{label}}` for a label's value.
        instant: only the value at the end of the time shown, for tables.
        form: `time_series`, `table` or `heatmap`.
    """
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expr.strip(),
        "legendFormat": legend,
        "instant": instant,
        "range": not instant,
        "format": form,
    }


def colour(name: str, shade: str, **custom: Any) -> Json:
    """A fixed colour for the series of a name; `custom` are further options of a time series' line."""
    properties = [{"id": "color", "value": {"mode": "fixed", "fixedColor": shade}}]
    properties += [{"id": f"custom.{option}", "value": value} for option, value in custom.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": properties}


def thresholds(*steps: tuple[float, str], below: str = "green") -> Json:
    """Colours from a value on: `thresholds((1, "red"))` is green below 1."""
    first: Json = {"color": below, "value": None}
    return {"mode": "absolute", "steps": [first, *({"color": shade, "value": value} for value, shade in steps)]}


PLAIN = thresholds(below="text")
"""A value that is neither good nor bad."""


def words_for(words: Mapping[float, tuple[str, str]]) -> list[Json]:
    """Words and a colour in place of values: value to (word, colour)."""
    options = {
        f"{value:g}": {"text": word, "color": shade, "index": place}
        for place, (value, (word, shade)) in enumerate(words.items())
    }
    return [{"type": "value", "options": options}]


def row(title: str, *panels: Json) -> list[Json]:
    """A heading, and the panels under it from left to right."""
    heading: Json = {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": COLUMNS, "h": 1}}
    return [heading, *panels]


def query_var(
    name: str, label: str, expr: str, *, regex: str = "", multi: bool = True, every: str | None = ".+"
) -> Json:
    """A variable whose values a query gives, asked again when the time shown changes.

    Args:
        name: of the variable.
        label: what a person reads.
        expr: `label_values(METRIC, LABEL)` or `query_result(EXPR)`, on one line.
        regex: takes the value out of what `query_result` gives.
        multi: whether several may be chosen, or all of them, which it begins with.
        every: what "All" stands for; None: each value in turn.
    """
    kind = 3 if expr.startswith("query_result") else 1
    chosen: Json = {"selected": True, "text": ["All"], "value": ["$__all"]} if multi else {}
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "definition": expr,
        "query": {"query": expr, "refId": f"variable-{name}", "qryType": kind},
        "regex": regex,
        "refresh": 2,
        "sort": 1,
        "multi": multi,
        "includeAll": multi,
        "allValue": every if multi else None,
        "current": chosen,
        "hide": 0,
        "options": [],
        "skipUrlSync": False,
    }


def dashboard(
    uid: str,
    title: str,
    about: str,
    variables: Iterable[Json],
    rows: Iterable[list[Json]],
    *,
    annotations: Iterable[Json] = (),
) -> Json:
    """A whole dashboard.

    Args:
        uid: fixed, so that links and imports find it again.
        title: what a person reads.
        about: what it answers.
        variables: after that of the data source.
        rows: see `row`.
        annotations: drawn over every graph.
    """
    source = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }
    link = {
        "type": "dashboards",
        "title": "infscale",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "The other dashboards, for the same workload and time",
        "url": "",
    }
    return {
        "uid": uid,
        "title": title,
        "description": about,
        "id": None,
        "schemaVersion": SCHEMA_VERSION,
        "tags": [TAG],
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [link],
        "annotations": {"list": list(annotations)},
        "templating": {"list": [source, *variables]},
        "panels": _laid_out([panel for each in rows for panel in each]),
    }


def _laid_out(panels: Iterable[Json]) -> list[Json]:
    """The panels with their numbers and places; one that does not fit into its line begins the next."""
    placed: list[Json] = []
    x = y = line = 0
    for number, panel in enumerate(panels, start=1):
        width, height = panel["gridPos"]["w"], panel["gridPos"]["h"]
        if x + width > COLUMNS:
            x, y, line = 0, y + line, 0
        placed.append({"id": number, **panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}})
        x, line = x + width, max(line, height)
    return placed
