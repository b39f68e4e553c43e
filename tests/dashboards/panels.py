"""The panels of the committed dashboards and their queries, with the variables put in as Grafana would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted((ROOT / "dashboards").glob("*.json"))

RATE_INTERVAL = "1m"
"""Four scrapes of 15 s: Grafana's smallest."""

_VARIABLE = re.compile(r"\$\{?([a-z_]\w*)\}?")


@dataclass(frozen=True)
class Query:
    """One query of a panel.

    Attributes:
        uid: of the dashboard.
        panel: the panel's title.
        number: which of the panel's queries, from 0.
        expr: as it stands in the file.
        legend: the name of its series.
        instant: only its value now is shown.
    """

    uid: str
    panel: str
    number: int
    expr: str
    legend: str
    instant: bool

    def __str__(self) -> str:
        return f"{self.uid}: {self.panel}: {self.legend}"


def dashboards() -> list[dict[str, Any]]:
    """Every committed dashboard."""
    return [json.loads(path.read_text()) for path in FILES]


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The panels of a dashboard, without the headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: Mapping[str, Any]) -> Iterator[Query]:
    """Every query of a dashboard's panels."""
    for panel in panels(dashboard):
        for number, target in enumerate(panel["targets"]):
            told = target["expr"], target["legendFormat"], target["instant"]
            yield Query(dashboard["uid"], panel["title"], number, *told)


def expanded(expr: str, chosen: Mapping[str, str] | None = None, *, range_s: int = 3600) -> str:
    """A query as Grafana sends it.

    Args:
        expr: with variables.
        chosen: the value of each variable; ".+", that is All, where it is not named.
        range_s: the time shown.
    """
    known = {"__rate_interval": RATE_INTERVAL, "__range": f"{range_s}s", **(chosen or {})}
    return _VARIABLE.sub(lambda found: known.get(found[1], ".+"), expr)
