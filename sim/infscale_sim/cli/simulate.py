"""`infscale simulate`: policies on one scenario, side by side."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from infscale.cli.options import SECONDS, option
from infscale.cli.table import aligned
from infscale.errors import UsageError
from infscale_sim.hardware import load_profile
from infscale_sim.oracle import Answer, solve_all
from infscale_sim.outcome import Moment
from infscale_sim.replay import cluster_of, replay
from infscale_sim.scenario import Scenario, Slo
from infscale_sim.simulate import BUDGET_PERCENT, Result, check, compare
from infscale_sim.traces.options import trace_of, trace_options
from infscale_sim.traffic import Requests

_HEADINGS = ("policy", "SLO miss", "miss %", "TTFT p50", "p95", "replica-min", "x oracle", "peak", "scale events")
_MOMENT = ("time", "replicas", "ready", "starting", "draining", "in flight", "held", "reason", "why")


@click.command("simulate")
@option("--scenario", metavar="NAME|FILE", help="`default`, `prompts`, or a YAML file.  [default: default]")
@trace_options
@option("--policy", multiple=True, metavar="POLICY", help="A policy to run in place of the scenario's; repeat it.")
@option("--profile", metavar="NAME|FILE", help="The replica, in place of the scenario's: see `infscale gpu`.")
@option("--slo-ttft", type=SECONDS, help="Seconds to the first token, in place of the scenario's.")
@option("--slo-itl", type=SECONDS, help="Mean seconds between tokens, in place of the scenario's.")
@option("--seed", type=click.IntRange(0), help="Of all that is random, in place of the scenario's.")
@click.option("--timeline", is_flag=True, help="Print each decision, with its reason, below the table.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@option("--html", metavar="FILE", help="Write a page with the curves of every policy; it needs no network.")
@option("--svg", metavar="FILE", help="Write the same as one picture.")
def command(
    scenario: str | None,
    policy: tuple[str, ...],
    profile: str | None,
    slo_ttft: float | None,
    slo_itl: float | None,
    seed: int | None,
    timeline: bool,
    as_json: bool,
    html: str | None,
    svg: str | None,
    **trace_flags: Any,
) -> None:
    """Run scaling policies on simulated replicas under the same traffic and compare them.

    The replicas follow from hardware facts (`infscale gpu`), and the decision core that scales them is the one that
    runs in the recommender. A request misses when its first token comes later than the SLO, or never.
    """
    if timeline and as_json:
        raise UsageError("--timeline and --json exclude each other: the timeline is text for people")
    hardware = load_profile(profile) if profile is not None else None
    trace = trace_of(trace_flags, seed)
    chosen = cluster_of(scenario, trace is not None, hardware=hardware, seed=seed)
    slo = Slo(slo_ttft or chosen.slo.ttft_s, slo_itl or chosen.slo.itl_s)
    chosen = replace(chosen, slo=slo, policies=policy or chosen.policies)
    check(chosen, chosen.policies)
    chosen, requests = (chosen, chosen.requests()) if trace is None else replay(chosen, trace)
    if trace is not None and trace.note:
        click.echo(trace.note, err=as_json)
    with _progress("the oracle") as progress:
        answers = solve_all(chosen, requests, (0.0, BUDGET_PERCENT), progress)
    with _progress(f"{len(chosen.policies)} policies") as progress:
        results = list(compare(chosen, chosen.policies, requests, progress, answers[-1]))
    _draw(html, svg, chosen, requests, results)
    if as_json:
        click.echo(json.dumps([_rounded(result.row()) for result in results], indent=2))
        return
    click.echo(headline(chosen, requests))
    click.echo("\n".join(table(results)))
    click.echo(foresight(*answers))
    if timeline:
        for result in results:
            click.echo("\n".join(("", *moments(result))))


def _draw(html: str | None, svg: str | None, scenario: Scenario, requests: Requests, results: list[Result]) -> None:
    """Write the page and the picture that were asked for."""
    if html is None and svg is None:
        return
    from infscale_sim.report import html_page, report_of, svg_picture

    report = report_of(headline(scenario, requests), scenario, requests, results)
    for flag, path, draw in (("--html", html, html_page), ("--svg", svg, svg_picture)):
        if path is not None:
            try:
                Path(path).write_text(draw(report), encoding="utf-8")
            except OSError as error:
                raise UsageError(f"{flag} {path}: cannot be written: {error.strerror}") from error


def headline(scenario: Scenario, requests: Requests) -> str:
    """What is run, in a line."""
    slo, hardware = scenario.slo, scenario.hardware
    itl = f" and {slo.itl_s:g} s between tokens" if slo.itl_s is not None else ""
    seed = f", seed {scenario.seed}" if scenario.is_random else ""
    cold = scenario.cold_start
    return (
        f"scenario {scenario.name}: {len(requests):,} requests in {scenario.horizon_s:,.0f} s on {hardware.name} "
        f"(cold start {f'{cold.mean:.0f} s' if not cold.is_random else cold.kind}), "
        f"SLO {slo.ttft_s:g} s to the first token{itl}{seed}"
    )


def foresight(never: Answer, seldom: Answer) -> str:
    """The oracle and the bound for both budgets, in a line."""
    without = _schedule(never, "without a miss")
    return f"oracle: {without}, {_schedule(seldom, f'within {BUDGET_PERCENT:g} % of misses')}"


def _schedule(answer: Answer, within: str) -> str:
    """`29.1 replica-min without a miss (bound 28.2)`."""
    found = "no schedule" if answer.replica_minutes is None else f"{answer.replica_minutes:,.1f} replica-min"
    return f"{found} {within} (bound {answer.bound_replica_minutes:,.1f})"


def table(results: list[Result]) -> list[str]:
    """The results, a line each."""
    rows = [
        (
            result.policy,
            f"{result.slo_misses:,}",
            f"{result.slo_miss_percent:.1f}",
            _seconds(result.ttft_p50_s),
            _seconds(result.ttft_p95_s),
            f"{result.replica_minutes:,.1f}",
            "-" if result.oracle_ratio is None else f"{result.oracle_ratio:.2f}",
            f"{result.peak_replicas}",
            f"{result.scale_events}",
        )
        for result in results
    ]
    return aligned([_HEADINGS, *rows], right=range(1, len(_HEADINGS)))


def moments(result: Result) -> Iterator[str]:
    """Each decision; those in a row that keep the count for the same reason are one line."""
    yield f"{result.policy}:"
    rows = [_MOMENT, *(_row(list(alike)) for _, alike in itertools.groupby(result.run.moments, _alike))]
    for line in aligned(rows, right=(0, 2, 3, 4, 5, 6)):
        yield f"  {line}"


def _alike(moment: Moment) -> tuple[object, ...]:
    """Equal for decisions that are one line: a change is one of its own."""
    changes = moment.desired != moment.replicas
    return moment.replicas, moment.desired, moment.reason, moment.time_s if changes else None


def _row(alike: list[Moment]) -> tuple[str, ...]:
    """A line; its counts are those of the last decision in it."""
    first, last = alike[0], alike[-1]
    counts = (last.ready, last.starting, last.draining, last.inflight, last.held)
    if last.desired != last.replicas:
        change = f"{last.replicas} -> {last.desired}"
        return (f"{last.time_s:,.0f} s", change, *map(str, counts), last.reason, last.words)
    span = f"{last.time_s:,.0f} s" if len(alike) == 1 else f"{first.time_s:,.0f} to {last.time_s:,.0f} s"
    times = "" if len(alike) == 1 else f"{len(alike)} times"
    return (span, f"{last.replicas}", *map(str, counts), last.reason, times)


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Microseconds are enough, and float64's last digits tell nothing."""
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()}


@contextlib.contextmanager
def _progress(label: str) -> Iterator[Callable[[float], None] | None]:
    """A bar on standard error where that is a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1000, label=label, file=sys.stderr) as bar:
        yield lambda share: bar.update(int(1000 * share) - bar.pos)
