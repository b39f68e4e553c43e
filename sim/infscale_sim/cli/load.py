"""`infscale load`: send load to an OpenAI-compatible server, measure it, and find the target per replica."""

from __future__ import annotations

import asyncio
import itertools
import math
import signal
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from infscale.cli.options import FILE, SECONDS, Amount, option
from infscale.errors import SourceError, UsageError
from infscale_sim.keyfile import read_key
from infscale_sim.load_client import Client
from infscale_sim.load_report import Bar, dumps, result, sweep_text, text
from infscale_sim.load_run import Load, Runner, arrivals_at
from infscale_sim.load_sweep import Level, find_knee
from infscale_sim.traces.trace import open_trace
from infscale_sim.traffic import Request

DEFAULT_S = 20.0
_WARM_UP_SHARE = 0.2
_SHOW_S = 0.25

_EXAMPLES = """\b
Examples:
  infscale load http://127.0.0.1:8000 --concurrency 8 --duration 20
  infscale load http://127.0.0.1:8000/v1/chat/completions --rate 5 --slo-ttft 2 --json
  infscale load http://127.0.0.1:8000 --sweep 1,2,4,8,16,32,64,128 --slo-ttft 2
"""


class LevelsType(click.ParamType[tuple[int, ...]]):
    """Concurrencies in rising order, as `1,2,4,8`."""

    name = "levels"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Read the list."""
        if isinstance(value, tuple):
            return value
        try:
            levels = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            levels = ()
        if not levels or levels[0] < 1 or levels[-1] > 10_000 or any(a >= b for a, b in itertools.pairwise(levels)):
            self.fail(f"{value!r} is not a rising list of requests at once, as 1,2,4,8 (at most 10000)", param, ctx)
        return levels


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        load: the requests.
        concurrency, rate, trace, sweep: exactly one is set.
        poisson: random arrivals at `rate` instead of even ones.
        duration_s: of the run, or of each level of a sweep; None: to the end of the trace.
        slo_ttft_s: None: no SLO.
        as_json: whether the result is printed in JSON.
    """

    load: Load
    concurrency: int | None
    rate: float | None
    trace: Path | None
    sweep: Sequence[int] | None
    poisson: bool
    duration_s: float | None
    slo_ttft_s: float | None
    as_json: bool

    def arrivals(self) -> Iterator[Request]:
        """The requests of an open loop."""
        if self.trace is not None:
            return iter(open_trace(self.trace))
        return arrivals_at(self.rate or 1.0, self.load, poisson=self.poisson)


@click.command("load", epilog=_EXAMPLES)
@click.argument("url")
@option("--concurrency", type=click.IntRange(1, 10_000), metavar="N", help="Closed loop: so many requests at once.")
@option("--rate", type=Amount(0, 10_000, min_open=True), metavar="R", help="Open loop: requests a second.")
@option("--trace", type=FILE, metavar="FILE", help="Open loop: arrivals of a trace (arrival_s,prompt_tokens,...).")
@option("--sweep", type=LevelsType(), metavar="N,N,...", help="Closed loops one after the other: find the knee.")
@option("--arrivals", type=click.Choice(["even", "poisson"]), default="poisson", help="With --rate: when they come.")
@option("--duration", type=SECONDS, metavar="SECONDS", help="Of the run, or of each level. [default: 20; a trace: all]")
@option("--prompt-tokens", type=click.IntRange(1, 1_000_000), default=128, metavar="N", help="Words in each prompt.")
@option("--output-tokens", type=click.IntRange(1, 1_000_000), default=128, metavar="N", help="Tokens to ask for.")
@option("--slo-ttft", type=SECONDS, metavar="SECONDS", help="A later first token is late.")
@option("--model", metavar="NAME", help="The model to ask for. [default: the server's first]")
@option("--api-key-file", type=FILE, metavar="FILE", help="Holds the server's API key.")
@option("--keep-alive", is_flag=True, help="Use connections again; kube-proxy then balances them, not requests.")
@option("--timeout", type=SECONDS, default=600.0, metavar="SECONDS", help="For one whole request.")
@option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Of prompts and random arrivals.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(url: str, as_json: bool, **flags: Any) -> int:
    """Send load to an OpenAI-compatible server and measure first token, gaps and whole answers, streaming.

    URL is a server, its /v1, or its completions or chat/completions call. Ctrl-C ends the run with the results so far.
    """
    chosen = [name for name in ("concurrency", "rate", "trace", "sweep") if flags[name] is not None]
    if len(chosen) != 1:
        raise UsageError("tell the load with exactly one of --concurrency, --rate, --trace and --sweep")
    client = Client(url, key=read_key(flags["api_key_file"], "--api-key-file"), keep_alive=flags["keep_alive"])
    duration_s = flags["duration"] or (None if flags["trace"] is not None else DEFAULT_S)
    load = Load(flags["model"] or "", flags["prompt_tokens"], flags["output_tokens"], flags["timeout"], flags["seed"])
    plan = Plan(
        load=load,
        **{name: flags[name] for name in ("concurrency", "rate", "trace", "sweep")},
        poisson=flags["arrivals"] == "poisson",
        duration_s=duration_s,
        slo_ttft_s=flags["slo_ttft"],
        as_json=as_json,
    )
    return asyncio.run(_main(client, plan))


async def _main(client: Client, plan: Plan) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    told: list[int] = []

    def on_signal(number: int) -> None:
        """Remember that it came, and end the run."""
        told.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    try:
        if not plan.load.model:
            models = await client.models()
            if not models:
                raise SourceError(f"{client.url.place} lists no model; tell one with --model")
            plan = replace(plan, load=replace(plan.load, model=models[0]))
        status = await (_sweep if plan.sweep else _once)(client, plan, stop)
    finally:
        client.close()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return 128 + told[0] if told else status


async def _once(client: Client, plan: Plan, stop: asyncio.Event) -> int:
    """One run and its result; exit code 1 if nothing was answered."""
    runner = Runner(client, plan.load, stop, slo_ttft_s=plan.slo_ttft_s or math.inf)
    if plan.concurrency is not None:
        running = runner.closed(plan.concurrency, plan.duration_s or DEFAULT_S)
    else:
        running = runner.open(plan.arrivals(), plan.duration_s)
    window_s = await _shown(runner, running, plan.duration_s, "")
    found = {"url": client.shown_url, "model": plan.load.model, "interrupted": stop.is_set()}
    found |= result(runner.record, window_s)
    click.echo(dumps(found) if plan.as_json else text(found, plan.slo_ttft_s))
    return 0 if runner.record.completed or runner.record.pieces else 1


async def _sweep(client: Client, plan: Plan, stop: asyncio.Event) -> int:
    """A run for each level, until one does not hold, and the knee; exit code 1 without one."""
    duration_s = plan.duration_s or DEFAULT_S
    warm_up_s = _WARM_UP_SHARE * duration_s  # all clients begin at once, which no later moment looks like
    slo_ttft_s = plan.slo_ttft_s or math.inf
    levels: list[Level] = []
    details: list[dict[str, Any]] = []
    for concurrency in plan.sweep or ():
        runner = Runner(client, plan.load, stop, slo_ttft_s=slo_ttft_s, warm_up_s=warm_up_s)
        running = runner.closed(concurrency, duration_s)
        found = result(runner.record, await _shown(runner, running, duration_s, f"{concurrency} at once ") - warm_up_s)
        if stop.is_set():
            break  # a level that was cut short says nothing
        levels.append(_level(concurrency, runner, found))
        details.append({"concurrency": concurrency, **found})
        if not levels[-1].holds:
            break
    if not levels:
        click.echo(dumps({"levels": []}) if plan.as_json else "interrupted before the first level was measured")
        return 1
    knee = find_knee(levels, slo_ttft_s)
    if plan.as_json:
        found = {"url": client.shown_url, "model": plan.load.model, "interrupted": stop.is_set(), "levels": details}
        click.echo(dumps({**found, "knee": knee.concurrency, "target": knee.target, "why": knee.why}))
    else:
        click.echo(sweep_text(levels, knee))
    return 0 if knee.target is not None else 1


def _level(concurrency: int, runner: Runner, found: dict[str, Any]) -> Level:
    record = runner.record
    ttft_p95_s = record.ttft_s.quantile(0.95)
    return Level(concurrency, found["output_tokens_per_s"], ttft_p95_s, record.late_share, record.errors.total())


async def _shown(runner: Runner, running: Coroutine[Any, Any, None], duration_s: float | None, title: str) -> float:
    """Run, with the line of progress; return how long it took, seconds."""
    loop, bar = asyncio.get_running_loop(), Bar()
    task = loop.create_task(running)
    try:
        while not task.done():
            bar.show(runner, loop.time() - runner.start_s, duration_s, title)
            await asyncio.wait({task}, timeout=_SHOW_S)
        await task
    finally:
        bar.clear()
    return loop.time() - runner.start_s
