"""The scoreboard as text for a terminal, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.scoreboard.cases import Case
from bench.scoreboard.judge import Part, Row, judge
from bench.scoreboard.play import Foresight, Score

TITLES = {
    1: "The published 20 requests/s",
    2: "Start-up sweep on Mooncake's conversations",
    3: "ServeGen m-large, 14 days",
    4: "BurstGPT week with scale to zero",
    5: "Drain of long answers",
    6: "Regressions",
}


@dataclass(frozen=True, slots=True)
class Played:
    """A case with all that was simulated of it; no rows where its trace is absent."""

    case: Case
    rows: tuple[Row, ...]
    foresight: Foresight | None

    @property
    def parts(self) -> list[Part]:
        """The goal's parts, where it is for this case."""
        return judge(self.rows, self.foresight) if self.case.is_judged and self.rows else []


def headline(played: Played) -> str:
    """What the case is, in a line."""
    case, scenario = played.case, played.case.scenario
    if case.trace is not None and not case.is_there:
        return f"{case.trace.name} is absent: not run"
    requests = f"{played.rows[0][1].requests:,} requests in {scenario.horizon_s:,.0f} s"
    cold = f"start-up {scenario.cold_start.mean:.0f} s, SLO {scenario.slo.ttft_s:g} s to the first token"
    if case.trace is None:
        return f"{requests}, {scenario.hardware.name}, {cold}"
    scale = f" at scale 1/{1 / case.trace.scale:.0f}" if case.trace.scale != 1 else ""
    return f"{requests}, {scenario.hardware.name}, {cold}; {case.trace.name}{scale}, sha256 {case.trace.sha256()}"


def lines(played: Played, columns: Sequence[str]) -> Iterator[list[str]]:
    """The rows of a case's table, the headings first, the oracle last."""
    yield ["policy", *columns]
    oracle = played.foresight.replica_minutes if played.foresight else None
    for entry, score in played.rows:
        advised = " *" if entry.is_fixed and played.case.is_judged else ""
        yield [entry.policy + advised, *(CELLS[column](score, oracle) for column in columns)]
    if played.foresight is not None:
        yield ["oracle, at most 1 % misses", *(_foreseen(played.foresight, column) for column in columns)]


def columns_of(case: Case) -> list[str]:
    """The columns that tell something in the case's row."""
    extra = {
        1: ["TTFT p95", "TTFT p99"],
        2: ["TTFT p95", "TTFT p99"],
        4: ["held", "wait p50", "wait p95", "longest"],
        5: ["left", "cut", "cut per leave"],
        6: ["TTFT p99", "first up"],
    }.get(case.row, ["TTFT p99"])
    oracle = ["x oracle"] if case.has_oracle else []
    return ["miss %", "replica-min", *oracle, *extra, "peak", "events"]


def text(played: Sequence[Played]) -> Iterator[str]:
    """For a terminal."""
    row = 0
    for one in played:
        if one.case.row != row:
            row = one.case.row
            yield f"\n{row}. {TITLES[row]}"
        yield f"\n   {one.case.title}: {headline(one)}"
        if one.rows:
            table = list(lines(one, columns_of(one.case)))
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            for cells in table:
                rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
                yield "   " + "  ".join((cells[0].ljust(widths[0]), *rest))
        yield from (f"   {verdict(part)}" for part in one.parts)


def markdown(played: Sequence[Played], command: str, date: str) -> Iterator[str]:
    """For a page, from the line that says how it was made."""
    yield f"Made by `{command}` on {date}."
    row = 0
    for one in played:
        if one.case.row != row:
            row = one.case.row
            yield f"\n## {row}. {TITLES[row]}"
        yield f"\n**{one.case.title[0].upper()}{one.case.title[1:]}**: {headline(one)}"
        if one.rows:
            table = list(lines(one, columns_of(one.case)))
            yield ""
            for number, (name, *cells) in enumerate(table):
                shown = f"`{name}`" if number and not name.startswith("oracle") else name
                yield f"| {' | '.join((shown.replace(' *`', '` *'), *cells))} |"
                if number == 0:
                    yield f"|---|{'---:|' * len(cells)}"
        if one.parts:
            yield ""
            yield from (f"- {verdict(part)}" for part in one.parts)


def as_json(played: Sequence[Played]) -> list[dict[str, Any]]:
    """A list of cases with their policies."""
    return [
        {
            "row": one.case.row,
            "case": one.case.title,
            "trace": one.case.trace.name if one.case.trace else None,
            "sha256": one.case.trace.sha256() if one.case.trace and one.case.is_there else None,
            "scale": one.case.trace.scale if one.case.trace else None,
            "oracle": asdict(one.foresight) if one.foresight else None,
            "policies": [
                {"policy": entry.policy, "family": entry.family, "trouble": entry.trouble or None}
                | {"miss_percent": score.miss_percent, **asdict(score)}
                for entry, score in one.rows
            ],
            "goal": [asdict(part) for part in one.parts],
        }
        for one in played
    ]


def verdict(part: Part) -> str:
    """A part of the goal in a line."""
    word = {True: "met", False: "missed", None: "not comparable"}[part.is_met]
    return f"{word}: {part.words}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"


def _oracle(score: Score, minutes: float | None) -> str:
    return f"{score.replica_minutes / minutes:.2f}" if minutes and score.is_within else "-"


def _foreseen(foresight: Foresight, column: str) -> str:
    if column == "miss %" and foresight.replica_minutes is None:
        return f"{foresight.fewest_miss_percent:.2f} at the least"
    if column == "replica-min":
        minutes = foresight.replica_minutes
        found = "none" if minutes is None else f"{minutes:,.1f}"
        return f"{found} (bound {foresight.bound_minutes:,.1f})"
    return ""


CELLS: dict[str, Callable[[Score, float | None], str]] = {
    "miss %": lambda score, _: f"{score.miss_percent:.2f}",
    "replica-min": lambda score, _: f"{score.replica_minutes:,.1f}",
    "x oracle": _oracle,
    "TTFT p95": lambda score, _: _seconds(score.ttft_p95_s),
    "TTFT p99": lambda score, _: _seconds(score.ttft_p99_s),
    "first up": lambda score, _: _seconds(score.first_up_s),
    "held": lambda score, _: f"{score.held:,}",
    "wait p50": lambda score, _: _seconds(score.held_p50_s),
    "wait p95": lambda score, _: _seconds(score.held_p95_s),
    "longest": lambda score, _: _seconds(score.held_most_s),
    "left": lambda score, _: f"{score.leaves:,}",
    "cut": lambda score, _: f"{score.cut:,}",
    "cut per leave": lambda score, _: f"{score.cut / score.leaves:.1f}" if score.leaves else "-",
    "peak": lambda score, _: f"{score.peak}",
    "events": lambda score, _: f"{score.events:,}",
}
