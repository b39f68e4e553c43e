"""`infscale tune`: the cheapest policy within a budget of misses, as text, ScaledObject and HPA."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from infscale.checks import Place
from infscale.cli.options import SECONDS, Amount, option
from infscale.errors import UsageError
from infscale_sim.cli.simulate import headline
from infscale_sim.defaults import MOST_REPLICAS
from infscale_sim.distribution import Delay
from infscale_sim.hardware import load_profile, profile_of
from infscale_sim.knee import full_batch, knee_tokens_per_s
from infscale_sim.replay import cluster_of
from infscale_sim.scenario import Scenario
from infscale_sim.traces.options import trace_of, trace_options
from infscale_sim.traces.trace import Trace
from infscale_sim.tune.cases import Case, cases_of
from infscale_sim.tune.manifests import ADDRESS, Workload
from infscale_sim.tune.report import as_mapping, as_text, findings_of, most_checks
from infscale_sim.tune.search import Search, budget_of, search
from infscale_sim.tune.space import Space, space_of
from infscale_sim.tune.workers import Workers

_PROMPT_WEIGHT = 0.1  # the grammar's default
_INTERRUPTED = 130


@click.command("tune")
@option("--scenario", metavar="NAME|FILE", help="The cluster, and the traffic without a trace.  [default: default]")
@partial(trace_options, several=True)
@option("--profile", metavar="NAME|FILE", help="The replica, in place of the scenario's: see `infscale gpu`.")
@option(
    "--knee", type=click.IntRange(1), metavar="N", help="Requests that fill a replica, from `infscale load --sweep`."
)
@option("--cold-start", type=SECONDS, help="Seconds until a new replica serves, in place of the profile's.")
@option("--slo-ttft", type=SECONDS, help="Seconds to the first token, in place of the scenario's.")
@option("--miss-budget", type=Amount(0, 100), default=1.0, metavar="PERCENT", help="Requests that may miss.")
@option("--max", type=click.IntRange(1, MOST_REPLICAS), metavar="N", help="Most replicas, in place of the scenario's.")
@option("--min", type=click.IntRange(0, 1), metavar="0|1", help="0 tries scale to zero too.  [default: 0]")
@option(
    "--seeds", type=click.IntRange(1, 100), default=3, metavar="N", help="Seeds searched on, and others to check on."
)
@option("--runs", type=click.IntRange(1), default=600, metavar="N", help="Policies to try, at most.")
@option("--workers", type=click.IntRange(1, 64), metavar="N", help="Processes.  [default: the CPUs, at most 4]")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of text.")
def command(
    scenario: str | None,
    profile: str | None,
    knee: int | None,
    cold_start: float | None,
    slo_ttft: float | None,
    miss_budget: float,
    max: int | None,
    min: int | None,
    seeds: int,
    runs: int,
    workers: int | None,
    as_json: bool,
    **trace_flags: Any,
) -> int:
    """Search the policy with the fewest replica-minutes that keeps the misses within a budget.

    Target, windows, rates, lookahead, guard and scale to zero are varied: a coarse grid, then smaller steps around the
    best. The result is checked on traffic that the search did not see. Ctrl-C ends the search with the best so far.
    """
    traces = _traces(trace_flags)
    chosen = cluster_of(scenario, bool(traces), hardware=load_profile(profile) if profile is not None else None)
    chosen = _changed(chosen, knee, cold_start, slo_ttft, max)
    cases = cases_of(chosen, traces, seeds)
    requests = sum(len(case.requests) for case in cases.searched)
    if requests == 0:
        raise UsageError("there is no request to search on; expected traffic")
    space = _space(chosen, cases.searched, min)
    count = workers or _cpus()
    with Workers(cases.searched, count) as trials, _progress(runs) as progress:
        found = search(space, budget_of(requests, miss_budget), trials, runs=runs, progress=progress)
    workload = _workload(trace_flags)
    try:
        with _checks(most_checks(cases)) as checked:
            findings = findings_of(found, cases, miss_budget, workload, checked)
    except KeyboardInterrupt:  # the search is done, so what it found is told all the same, unchecked
        found.is_interrupted = True
        findings = findings_of(found, cases, miss_budget, workload)
    if as_json:
        click.echo(json.dumps(as_mapping(findings), indent=2))
    else:
        for line in (*_headlines(cases.searched), *(trace.note for trace in traces if trace.note), *as_text(findings)):
            click.echo(line)
    return _INTERRUPTED if found.is_interrupted else 0


def _traces(flags: dict[str, Any]) -> list[Trace]:
    """All that are named, with seeds from 0 on where one is random."""
    if flags["trace"] and flags["prometheus"] is not None:
        raise UsageError("--trace and --prometheus: expected one of them")
    found = [trace_of({**flags, "trace": path}) for path in flags["trace"] or (None,)]
    return [trace for trace in found if trace is not None]


def _changed(
    scenario: Scenario, knee: int | None, cold_start_s: float | None, slo_ttft_s: float | None, most: int | None
) -> Scenario:
    """The scenario with what the flags replace."""
    if knee is not None:
        hardware = profile_of({"slots": knee}, Place("--knee"), scenario.hardware.name, scenario.hardware)
        scenario = replace(scenario, hardware=hardware)
    if cold_start_s is not None:
        scenario = replace(scenario, cold_start=Delay("constant", cold_start_s))
    if slo_ttft_s is not None:
        scenario = replace(scenario, slo=replace(scenario.slo, ttft_s=slo_ttft_s))
    if most is not None:
        bounds = replace(scenario.defaults, max_replicas=most, min_replicas=min(scenario.defaults.min_replicas, most))
        scenario = replace(scenario, defaults=bounds, start=min(scenario.start, most))
    return scenario


def _space(scenario: Scenario, cases: Sequence[Case], least: int | None) -> Space:
    """What is searched; a scenario that wants more than one replica at least keeps them."""
    own = scenario.defaults.min_replicas
    if least is None:
        least = own if own > 1 else 0
    requests = max((case.requests for case in cases), key=len)
    rate = knee_tokens_per_s(scenario.hardware, requests, _PROMPT_WEIGHT) if scenario.knee_known else None
    knee, most = full_batch(scenario.hardware, requests), scenario.defaults.max_replicas
    return space_of(scenario, least=least, most=most, knee=knee, knee_rate=rate)


def _workload(flags: dict[str, Any]) -> Workload:
    namespace, _, name = flags["workload"].partition("/")
    prometheus = flags["prometheus"] or ADDRESS
    return Workload(namespace, name, prometheus) if namespace and name else Workload(prometheus=prometheus)


def _headlines(cases: Sequence[Case]) -> list[str]:
    return [headline(case.scenario, case.requests) for case in cases]


def _cpus() -> int:
    return min(4, os.cpu_count() or 1)


@contextlib.contextmanager
def _progress(runs: int) -> Iterator[Callable[[Search], None] | None]:
    """A bar on standard error with the best so far, where that is a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return

    def shown(found: Search | None) -> str:
        """The best policy so far, beside the bar."""
        best = found.best() if found is not None else None
        return "" if found is None or best is None else found.space.text(best.candidate).partition(",")[0]

    with click.progressbar(length=runs, label="policies", item_show_func=shown, file=sys.stderr) as bar:
        yield lambda found: bar.update(1, found)


@contextlib.contextmanager
def _checks(most: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error for the runs after the search, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=most, label="checks", file=sys.stderr) as bar:
        yield lambda: bar.update(1)
