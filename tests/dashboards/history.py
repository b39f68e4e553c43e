"""A real Prometheus with the scenario's history in it, and with what the rules record of that.

The history is loaded by `promtool tsdb create-blocks-from openmetrics`. Rules build upon rules, up to sixteen deep, and
`create-blocks-from rules` takes only what the server has already. So each rule is asked for over the whole time, in the
order of dependence, and its answer is given back by remote write before the next is asked.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from tests.dashboards.scenario import END_S, START_S, STEP_S, lines
from tests.prometheus_server import LONG_S, Prometheus
from tools.dashboards.builder import metrics_in
from tools.prometheus_rule import rule_files

_LOOKBACK = "14s"
"""A history that was loaded has no marks where a series ends. So a sample counts until the next is due, 15 s later."""

_CONFIG = {"storage": {"tsdb": {"out_of_order_time_window": "1d"}}}

Series = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """One rule of a file; `record` is empty for an alert, `labels` are those that the rule itself gives."""

    name: str
    record: str
    expr: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Answer:
    """What a query gave: its series with their values over time, and how long that took."""

    series: list[Series]
    seconds: float

    @property
    def totals(self) -> dict[int, float]:
        """The sum of all series at each instant, by seconds after START_S."""
        sums: dict[int, float] = {}
        for one in self.series:
            for when, value in one["values"]:
                at = round(when) - START_S
                sums[at] = sums.get(at, 0.0) + float(value)
        return sums


class History(Prometheus):
    """A running server that is given its series instead of scraping them.

    Args:
        folder: for its data.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            _CONFIG,
            f"--query.lookback-delta={_LOOKBACK}",
            "--web.enable-remote-write-receiver",
            "--web.cors.origin=.*",
        )
        self._kept: dict[str, Answer] = {}

    def over_time(self, expr: str) -> Answer:
        """A query's answer over the whole history, kept until more is written."""
        if expr not in self._kept:
            self._kept[expr] = self.ask_over_time(expr)
        return self._kept[expr]

    def ask_over_time(self, expr: str) -> Answer:
        """The same, asked for now."""
        began = time.monotonic()
        series = self.query(expr, "query_range", start=str(START_S), end=str(END_S), step=str(STEP_S))
        return Answer(series, time.monotonic() - began)

    def now(self, expr: str, at_s: float = END_S) -> Answer:
        """A query's answer at one instant."""
        began = time.monotonic()
        series = [{**one, "values": [one["value"]]} for one in self.query(expr, time=str(at_s))]
        return Answer(series, time.monotonic() - began)

    def values_of(self, label: str, selector: str) -> list[str]:
        """The values of a label among the series that match, over the whole history."""
        form = {"match[]": selector, "start": str(START_S), "end": str(END_S)}
        values: list[str] = self.ask(f"label/{label}/values", form)
        return values

    def write(self, series: Iterable[tuple[Mapping[str, str], Sequence[tuple[float, str]]]]) -> None:
        """Remote write."""
        self._kept.clear()
        body = b"".join(_field(1, _series(labels, values)) for labels, values in series)
        headers = {"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
        answer = self.session.post(f"{self.url}/api/v1/write", _snappy(body), headers=headers, timeout=LONG_S)
        assert answer.status_code in (200, 204), answer.text

    def record(self, rule: Rule) -> Answer:
        """Ask for a recording rule over the whole time, and keep its answer under its name."""
        answer = self.over_time(rule.expr)
        self.write(
            ({**one["metric"], **dict(rule.labels), "__name__": rule.record}, one["values"]) for one in answer.series
        )
        return answer


@contextlib.contextmanager
def history(folder: Path) -> Iterator[tuple[History, dict[Rule, Answer]]]:
    """A server with the scenario in it, and what each recording rule gave."""
    text = folder / "scenario.openmetrics"
    with text.open("w") as file:
        file.writelines(lines())
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True, timeout=LONG_S)
    text.unlink()
    server = History(folder)
    try:
        server.wait_ready()
        # The first sample of an empty server tells it what is old; from then on older ones are out of order.
        server.write([({"__name__": "end_of_history"}, [(END_S, "1")])])
        yield server, {rule: server.record(rule) for rule in recording_rules()}
    finally:
        server.close()


def rules() -> list[Rule]:
    """Every rule of the files, those of a group in their order, each group after those that it builds upon."""
    groups = {
        f"{path.name}: {group['name']}": group["rules"]
        for path in rule_files()
        for group in yaml.safe_load(path.read_text())["groups"]
    }
    recorded = {rule["record"]: name for name, group in groups.items() for rule in group if "record" in rule}
    needs = {
        name: {recorded[metric] for rule in group for metric in metrics_in(rule["expr"]) if metric in recorded} - {name}
        for name, group in groups.items()
    }
    return [
        Rule(f"{name}: {rule.get('record') or rule['alert']}", rule.get("record", ""), rule["expr"], _labels(rule))
        for name in TopologicalSorter(needs).static_order()
        for rule in groups[name]
    ]


def recording_rules() -> list[Rule]:
    """The rules that record something."""
    return [rule for rule in rules() if rule.record]


def _labels(rule: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(rule.get("labels", {}).items())


def _series(labels: Mapping[str, str], values: Sequence[tuple[float, str]]) -> bytes:
    """A TimeSeries of the remote-write protocol (prometheus/prompb/types.proto)."""
    named = (_field(1, name.encode()) + _field(2, text.encode()) for name, text in sorted(labels.items()))
    samples = (
        b"\x09" + struct.pack("<d", float(value)) + b"\x10" + _varint(round(when * 1000)) for when, value in values
    )
    return b"".join(_field(1, one) for one in named) + b"".join(_field(2, one) for one in samples)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _snappy(content: bytes) -> bytes:
    """The block format without compression: literals of at most 64 KiB."""
    out = bytearray(_varint(len(content)))
    for start in range(0, len(content), 1 << 16):
        part = content[start : start + (1 << 16)]
        out += b"\xf4" + (len(part) - 1).to_bytes(2, "little") + part
    return bytes(out)
