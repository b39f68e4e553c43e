"""Shows a load run: a line while it goes on, a table or JSON at its end. `load` calls it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from infscale.cli.table import aligned
from infscale_sim.load_record import Record
from infscale_sim.load_run import Runner
from infscale_sim.load_sweep import Knee, Level

_BAR = 24


def result(record: Record, window_s: float) -> dict[str, Any]:
    """Return what a run measured over `window_s` seconds, as `--json` prints it."""
    failed = record.errors.total()
    return {
        "duration_s": round(window_s, 3),
        "requests": {
            "sent": record.sent,
            "completed": record.completed,
            "failed": failed,
            "unfinished": record.unfinished,
        },
        "errors": dict(record.errors.most_common()),
        "requests_per_s": record.completed / window_s if window_s else 0.0,
        "prompt_tokens": record.prompt_tokens,
        "output_tokens": record.output_tokens,
        "output_tokens_per_s": record.output_tokens / window_s if window_s else 0.0,
        "slo_miss_percent": 100 * record.late_share,
        "ttft_s": record.ttft_s.summary(),
        "inter_token_s": record.gap_s.summary(),
        "total_s": record.total_s.summary(),
    }


def text(found: Mapping[str, Any], slo_ttft_s: float | None) -> str:
    """Return a result as lines for a person."""
    requests = found["requests"]
    lines = [
        f"{requests['completed']} of {requests['sent']} requests completed in {found['duration_s']:.1f} s, "
        f"{requests['failed']} failed, {requests['unfinished']} under way at the end",
        f"{found['requests_per_s']:.2f} requests/s, {found['output_tokens_per_s']:,.0f} output tokens/s",
    ]
    if slo_ttft_s is not None:
        lines.append(f"{found['slo_miss_percent']:.1f} % of the first tokens after {slo_ttft_s:g} s")
    lines += [f"  failed: {kind} ({count})" for kind, count in found["errors"].items()]
    names = {"ttft_s": "first token", "inter_token_s": "between tokens", "total_s": "whole answer"}
    columns = ("mean", "p50", "p90", "p95", "p99", "max")
    rows = [
        ["", *columns],
        *([name, *(_time(found[key][column]) for column in columns)] for key, name in names.items()),
    ]
    return "\n".join([*lines, "", *aligned(rows, right=range(1, 7))])


def sweep_text(levels: Sequence[Level], knee: Knee) -> str:
    """Return a sweep as a table, and what follows from it."""
    rows = [["at once", "output tokens/s", "TTFT p95", "late %", "failed"]]
    rows += [
        [
            str(level.concurrency),
            f"{level.output_tokens_per_s:,.0f}",
            _time(level.ttft_p95_s),
            f"{100 * level.late_share:.1f}",
            str(level.errors),
        ]
        for level in levels
    ]
    target = "no target" if knee.target is None else f"target per replica: {knee.target} (policy queue:{knee.target})"
    return "\n".join([*aligned(rows, right=range(5)), "", target, *knee.why])


def dumps(value: Mapping[str, Any]) -> str:
    """Return a result in JSON."""
    return json.dumps(value, indent=2)


class Bar:
    """The line of progress on standard error; nothing where that is no terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, runner: Runner, passed_s: float, duration_s: float | None, title: str) -> None:
        """Draw the line anew."""
        if not self._shown:
            return
        record = runner.record
        share = min(1.0, passed_s / duration_s) if duration_s else 0.0
        bar = f"[{'#' * round(share * _BAR):<{_BAR}}] " if duration_s else ""
        line = (
            f"{title}{bar}{passed_s:.0f} s  under way {runner.in_flight}  completed {record.completed}  "
            f"failed {record.errors.total()}  first token p95 {_time(record.ttft_s.quantile(0.95))}"
        )
        sys.stderr.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _time(seconds: float | None) -> str:
    """Return a time with a unit that fits, a blank before it; a dash for none."""
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
