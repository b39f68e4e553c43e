"""`infscale drain`: the preStop hook's drain, for a person at a shell who wants to see it.

Exit status: 0 whatever came of it, 2 bad usage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option, every_setting
from infscale.cli.drain_options import options_of
from infscale.cli.engine_options import chosen
from infscale.cli.options import SECONDS, URL, option
from infscale.errors import UsageError, printable

if TYPE_CHECKING:
    from infscale.config_values import Config
    from infscale.drain.options import DrainOptions
    from infscale.drain.report import DrainReport
    from infscale.drain.run import ReadNote

DRY_RUN_S = 1.5
"""Time for two reads, a second apart."""

_EXAMPLES = """\b
Examples:
  infscale drain --engine-url http://127.0.0.1:8000/metrics --grace 120
  infscale drain --engine-url http://127.0.0.1:8000/metrics --grace 120 --dry-run
"""


@click.command("drain", epilog=_EXAMPLES)
@option("--engine-url", "--url", type=URL, metavar="URL", help="The engine's metrics page.")
@option("--engine", metavar="NAME", help="Read the page as this engine's; else found from it.")
@option("--engine.select", "--select", multiple=True, metavar="LABEL=VALUE", help="Count only these series.")
@option("--engine.token-file", metavar="FILE", help="Bearer token or API key of the engine.")
@option("--grace", type=SECONDS, default=30.0, metavar="SECONDS", help="The Pod's terminationGracePeriodSeconds.")
@option("--exit-reserve", type=SECONDS, default=5.0, metavar="SECONDS", help="What the engine needs after SIGTERM.")
@option("--max-grace", type=SECONDS, metavar="SECONDS", help="The node's own limit of a grace period.")
@option("--connections/--no-connections", default=None, help="Count client connections; else where they can be seen.")
@option("--drain-stale-after", type=SECONDS, metavar="SECONDS", help="End the wait for requests that nobody awaits.")
@option(
    "--on-http-error", type=click.Choice(["connections", "return"]), default="connections", help="If no page comes."
)
@option("--leader-url", type=URL, metavar="URL", help="Wait for this leader's page: a worker has none of its own.")
@option("--sidecar-url", type=URL, metavar="URL", help="Report to this sidecar's kubelet listener, as the hook does.")
@option("--dry-run", is_flag=True, help="Do not settle, read twice at once, and say what a drain would do.")
@option("--format", type=click.Choice(["text", "json"]), default="text", help="json: the report; reads go to stderr.")
@config_file_option(every_setting)
def command(config_file: Config, dry_run: bool, format: str, sidecar_url: str | None, **flags: Any) -> int:
    """Wait until an engine has nothing in flight, as the preStop hook does, and say what came of it.

    Each read gives a line. Nothing is ended and nothing is marked: this only reads, and waits at most until the exit
    reserve of the grace period begins. The status is 0 however the drain ends.
    """
    from infscale.drain.run import drain

    options = _options(flags)
    engines = chosen(config_file, flags["engine"], flags["engine_select"])
    plan = _dry(options) if dry_run else options
    say = _line_to(stderr=format == "json")
    if plan.schedule.settled_s:
        say(f"{0.0:7.1f} s  settling for {plan.schedule.settled_s:g} s; a drain of at most "
            f"{plan.schedule.last_read_s:g} s ({plan.effective_grace_s:g} s of grace)")  # fmt: skip
    report = drain(
        plan,
        profile=engines.told,
        profiles=engines.profiles,
        on_read=lambda note: say(_read_line(note)),
    )
    if dry_run:
        schedule = options.schedule
        report = replace(report, grace_s=options.effective_grace_s, deadline_s=schedule.last_read_s)
    elif sidecar_url:
        from infscale.drain.tell import post

        post(f"{sidecar_url.rstrip('/')}/drain/report", report.to_json())
    click.echo(report.to_json() if format == "json" else (_would(report) if dry_run else _came(report)))
    return 0


def _options(flags: dict[str, Any]) -> DrainOptions:
    from infscale.scrape import Target, check_target

    if flags["engine_url"] is None and flags["leader_url"] is None:
        raise UsageError("no engine is named: expected --engine-url URL, as http://127.0.0.1:8000/metrics")
    options = options_of(flags["engine_url"] or flags["leader_url"], flags)
    check_target(Target(options.page_url, token_file=options.token_file, insecure_skip_verify=True))
    return options


def _dry(options: DrainOptions) -> DrainOptions:
    """Time for two reads, from now on."""
    return replace(options, settle_s=0.0, max_grace_s=options.exit_reserve_s + DRY_RUN_S)


def _line_to(*, stderr: bool) -> Callable[[str], None]:
    return lambda text: click.echo(text, err=stderr)


def _read_line(note: ReadNote) -> str:
    """One read: when, its verdict, the numbers, and why."""
    verdict = note.verdict
    inflight = "-" if verdict.reading is None else f"{verdict.reading.inflight:g}"
    connections = "-" if verdict.clients is None else f"{verdict.clients.established}"
    line = f"{note.at_s:7.1f} s  {verdict.kind:7}  in flight {inflight:>4}  connections {connections:>4}"
    return f"{line}  {printable(verdict.why)}".rstrip()


def _came(report: DrainReport) -> str:
    """What came of the drain, in a line."""
    words = f"{report.outcome} after {report.seconds:.1f} s and {report.reads} read(s)"
    return _with_note(f"{words}, {_time(report)}{_restarted(report)}", report)


def _would(report: DrainReport) -> str:
    """What a drain would do if it began now, in a line."""
    from infscale.drain.options import SETTLE_S

    if report.outcome == "deadline":
        return _with_note(f"busy now: a drain would go on, {_time(report)}{_restarted(report)}", report)
    return _with_note(
        f"{report.outcome} now: a drain would settle and return after about {SETTLE_S + report.seconds:.0f} s", report
    )


def _time(report: DrainReport) -> str:
    return f"of at most {report.deadline_s:g} s in a grace period of {report.grace_s:g} s"


def _restarted(report: DrainReport) -> str:
    return "; the engine restarted meanwhile" if report.restarted else ""


def _with_note(text: str, report: DrainReport) -> str:
    return f"{text}: {printable(report.note)}" if report.note else text
