"""The goal of the policies, case by case, at no more than 1 % misses: what infscale advises against all others.

Replica-minutes within 1.5 of the oracle, within 1.15 of the best policy in hindsight, below the best-tuned plain HPA.
With more misses than that no part is met, however cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.scoreboard.menu import Entry
from bench.scoreboard.play import Foresight, Score

ORACLE_LIMIT, HINDSIGHT_LIMIT = 1.5, 1.15
Row = tuple[Entry, Score]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the goal: whether it is met (None: nothing to compare with), and in words with the numbers."""

    is_met: bool | None
    words: str


def judge(rows: Sequence[Row], foresight: Foresight | None) -> list[Part]:
    """The parts of the goal for one case; empty where no policy is the advised one."""
    advised = next(((entry, score) for entry, score in rows if entry.is_fixed), None)
    if advised is None:
        return []
    entry, score = advised
    minutes = score.replica_minutes
    within = Part(score.is_within, f"{entry.policy} misses {score.miss_percent:.2f} %")
    parts = [within, _against_oracle(score, foresight)]
    best = cheapest(rows, lambda entry: True)
    if best is None:
        parts.append(Part(None, "no policy keeps within 1 % misses"))
    else:
        words = f"{_times(minutes, best)} of the best in hindsight, {best[0].policy} ({best[1].replica_minutes:,.1f})"
        parts.append(Part(score.is_within and minutes <= HINDSIGHT_LIMIT * best[1].replica_minutes, words))
    rival = cheapest(rows, lambda entry: entry.family == "hpa")
    if rival is None:
        parts.append(Part(True if score.is_within else None, "no plain HPA of the grid keeps within 1 % misses"))
    else:
        words = f"{_times(minutes, rival)} of the best-tuned HPA, {rival[0].policy} ({rival[1].replica_minutes:,.1f})"
        parts.append(Part(score.is_within and minutes < rival[1].replica_minutes, words))
    return parts


def cheapest(rows: Sequence[Row], is_meant: Callable[[Entry], bool]) -> Row | None:
    """The one with the fewest replica-minutes of those meant that keep within the budget of misses."""
    within = [row for row in rows if is_meant(row[0]) and row[1].is_within]
    return min(within, key=lambda row: row[1].replica_minutes, default=None)


def _against_oracle(score: Score, foresight: Foresight | None) -> Part:
    if foresight is None or foresight.replica_minutes is None:
        return Part(None, "no schedule was found that keeps within 1 % misses")
    ratio = score.replica_minutes / foresight.replica_minutes
    return Part(
        score.is_within and ratio <= ORACLE_LIMIT, f"{ratio:.2f} of the oracle ({foresight.replica_minutes:,.1f})"
    )


def _times(minutes: float, row: Row) -> str:
    return f"{minutes / row[1].replica_minutes:.2f}"
