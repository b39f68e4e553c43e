"""`infscale decide`: one decision for the replicas whose pages are named, and why.

Exit status: 0 decided, and every source was read; 1 a source was not (it counts as silent), or there was nothing to
decide by; 2 usage, policy or state.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option, every_setting
from infscale.cli.engine_options import chosen, engine_options
from infscale.cli.options import Amount, option
from infscale.cli.policy_options import policy_of, policy_options
from infscale.cli.sources import Outcome, Reader, named, tell_errors
from infscale.errors import UsageError
from infscale.reading import ReadFailure

if TYPE_CHECKING:
    from infscale.cli.decide_output import Seen
    from infscale.config import Config
    from infscale.core.replicas import Fleet
    from infscale.core.scale_decision import ScaleDecision
    from infscale.core.scaling import ScalePolicy
    from infscale.state_file import Loaded

_MOST_REPLICAS = 2**31 - 1
_EXAMPLES = """\b
Examples:
  infscale decide --target 4 --max 3 http://10.0.0.7:8000/metrics
  infscale decide --policy queue:24,max=8 --current 3 --explain page-*.prom
  infscale decide --policy queue:24,min=0 --current 0 --held 5
  infscale decide --policy ttft:2,max=8 --state /var/lib/infscale/chat.json --format json http://10.0.0.7:8000/metrics
"""

_REPLICAS = click.IntRange(0, _MOST_REPLICAS)


@click.command("decide", epilog=_EXAMPLES)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@policy_options
@option("--current", type=_REPLICAS, metavar="N", help="What the workload asks for now; else the number of sources.")
@option("--status", type=_REPLICAS, metavar="N", help="How many replicas it has, starting ones too; else --current.")
@option("--held", type=Amount(0), metavar="N", help="Requests that an activator holds before it.")
@option("--state", metavar="FILE", help="Keeps what the next run has to know: windows, limits, counters.")
@option("--now", type=Amount(0), metavar="T", help="The instant of the decision, Unix seconds; else the clock's.")
@option("--format", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")
@option("--explain", is_flag=True, help="Print each step with its numbers.")
@engine_options
@option("--cpu-request", type=Amount(0, min_open=True), metavar="CORES", help="The Pods' CPU request.")
@config_file_option(every_setting)
@click.pass_context
def command(ctx: click.Context, /, sources: tuple[str, ...], config_file: Config, **flags: Any) -> None:
    """Decide once how many replicas a workload should have, and say why.

    A SOURCE is one replica's metrics page: a file (- is standard input) or a URL. Nothing is scaled.
    """
    asked = policy_of(flags)
    if not sources and flags["current"] is None:
        raise UsageError(
            "nothing to decide on: expected a SOURCE for each replica (its metrics page, file or URL), or --current N"
        )
    _check_source_of_cpu(asked.policy, flags)
    reader = Reader(chosen(config_file, flags["engine"], flags["engine_select"]), histograms=_has_ttft(asked.policy))
    targets = [named(source, flags) for source in sources]
    now_s = time.time() if flags["now"] is None else flags["now"]
    path = None if flags["state"] is None else Path(flags["state"])
    loaded = _load(path, now_s)

    outcomes = list(zip(_names(sources), reader.read_all(targets), strict=True))
    seen, fleet = _look(outcomes, loaded, now_s, flags)
    decision = _decide(asked.policy, fleet, loaded, outcomes, path)

    warnings = [*asked.warnings, *_warnings(asked.policy, sources, loaded, path)]
    warnings += [f"{one.name}: {text}" for one in seen for text in one.warnings]
    _print(flags, asked.policy, decision, seen, warnings)
    ctx.exit(_status(asked.policy, decision, seen))


def _load(path: Path | None, now_s: float) -> Loaded:
    """The state of the run before. Without `--state` there is no history at all, so that no window holds the count."""
    from infscale.core.memory import AT_ONCE
    from infscale.state_file import Loaded, read_state

    return Loaded(AT_ONCE) if path is None else read_state(path, now_s)


def _look(
    outcomes: list[tuple[str, Outcome]], loaded: Loaded, now_s: float, flags: dict[str, Any]
) -> tuple[list[Seen], Fleet]:
    """Each source as a replica with its rates, and the workload that they are."""
    from infscale.cli.decide_output import Seen
    from infscale.core.replicas import Fleet, Held
    from infscale.fleet.from_readings import replica_of
    from infscale.reads import Rates, rates, read_of

    seen = []
    for name, outcome in outcomes:
        if isinstance(outcome, ReadFailure):
            seen.append(Seen(replica_of(name, outcome), outcome.engine, Rates(), (), outcome.message))
            continue
        moved = rates(loaded.state.reads.get(name), read_of(outcome, now_s), flags["cpu_request"])
        replica = replica_of(name, outcome, cpu_ratio=moved.cpu_ratio)
        seen.append(Seen(replica, outcome.engine, moved, outcome.warnings))
    current = len(seen) if flags["current"] is None else flags["current"]
    held = None if flags["held"] is None else Held(flags["held"])
    replicas = tuple(one.replica for one in seen)
    return seen, Fleet(now_s, current, flags["status"], replicas=replicas, held=held)


def _decide(
    policy: ScalePolicy, fleet: Fleet, loaded: Loaded, outcomes: list[tuple[str, Outcome]], path: Path | None
) -> ScaleDecision:
    """The decision; what the next run has to know is written, but never over entries of a later time."""
    from infscale.core.layer import decide
    from infscale.reads import kept
    from infscale.state_file import write_state

    decision, state = decide(policy, fleet, loaded.state)
    if path is not None and not loaded.dropped:
        write_state(path, replace(state, reads=kept(loaded.state.reads, outcomes, fleet.now_s)))
    return decision


def _print(
    flags: dict[str, Any], policy: ScalePolicy, decision: ScaleDecision, seen: list[Seen], warnings: list[str]
) -> None:
    from infscale.cli import say
    from infscale.cli.decide_output import as_json, as_text

    if flags["format"] == "json":
        click.echo(as_json(policy, decision, seen, warnings))
    else:
        click.echo("\n".join(as_text(policy, decision, seen, explain=flags["explain"])))
        for warning in warnings:
            say(warning)
    tell_errors((one.name, one.error) for one in seen)


def _status(policy: ScalePolicy, decision: ScaleDecision, seen: list[Seen]) -> int:
    """The exit status, with a line on standard error where all was read and there was nothing to decide by.

    A metric of differences has nothing to say in the first of two runs; that is no fault.
    """
    from infscale.cli import say
    from infscale.core.decision import Reason

    if any(one.error for one in seen):
        return 1
    if decision.reason in (Reason.NO_SAMPLES, Reason.ERROR) and not _by_two_reads(policy):
        say(f"nothing to decide by: {decision.steps[-1].words}")
        return 1
    return 0


def _names(sources: tuple[str, ...]) -> list[str]:
    """A name for each source: its own, and where it is given again with a number."""
    times: Counter[str] = Counter()
    names = []
    for source in sources:
        times[source] += 1
        names.append(source if times[source] == 1 else f"{source}#{times[source]}")
    return names


def _warnings(policy: ScalePolicy, sources: tuple[str, ...], loaded: Loaded, path: Path | None) -> list[str]:
    """What a person should know of how it was decided."""
    warnings = [
        f"{source}: given {times} times, counts as {times} replicas"
        for source, times in Counter(sources).items()
        if times > 1
    ]
    if loaded.dropped:
        warnings.append(
            f"{path}: {loaded.dropped} entries lie in the future, check --now and this machine's clock; "
            "decided without them, and the file is left as it was"
        )
    waiting = _by_two_reads(policy)
    if path is None and waiting:
        warnings.append(f"{' and '.join(waiting)}: measured between two runs; give --state FILE to both")
    return warnings


def _check_source_of_cpu(policy: ScalePolicy, flags: dict[str, Any]) -> None:
    """CPU is a rate over a request: without a state and the request it has no source here."""
    missing = [flag for flag in ("state", "cpu_request") if flags[flag] is None]
    if missing and "cpu" in _by_two_reads(policy):
        names = " and ".join({"state": "--state FILE", "cpu_request": "--cpu-request CORES"}[flag] for flag in missing)
        raise UsageError(f"the metric cpu is measured between two runs, over the Pods' request: it needs {names}")


def _by_two_reads(policy: ScalePolicy) -> list[str]:
    """What of a policy nothing is known of by one read."""
    from infscale.core.scaling import MetricName

    two = (MetricName.CPU, MetricName.TTFT, MetricName.WORK)
    return [goal.metric.value for goal in policy.goals if goal.metric in two]


def _has_ttft(policy: ScalePolicy) -> bool:
    return "ttft" in _by_two_reads(policy)
