"""`infscale kube`: one decision for a Deployment by its Pods' pages, read through the API server; `--apply` scales.

Exit status: 0 decided, and done where asked to; 1 the API or a Pod could not be read, there was nothing to decide by,
or a change was not made; 2 usage, policy or state, or another autoscaler scales the Deployment already.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import re
import signal
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option
from infscale.cli.engine_options import chosen
from infscale.cli.fleet_options import cluster_of
from infscale.cli.options import SECONDS, Amount, option
from infscale.cli.policy_options import policy_options, policy_said
from infscale.cli.retire_options import check_retire, retire_options, retirement_of
from infscale.errors import SourceError, StateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infscale.config import Config
    from infscale.core.memory import ScaleState
    from infscale.core.scaling import ScalePolicy
    from infscale.kube.cluster import Cluster
    from infscale.kube_command import KubeTurns, Scaler, Turn
    from infscale.pod_pages import PageSettings

_EXAMPLES = """\b
Examples:
  infscale kube -n inference --deployment vllm --target 4 --max 3
  infscale kube -n inference --deployment vllm --port 8000 --path /metrics --policy queue:24,max=8 --explain
  infscale kube -n inference --deployment vllm --target 4 --max 3 --state vllm.json --apply
  infscale kube -n inference --deployment vllm --target 4 --max 3 --state vllm.json --apply --watch --retire
"""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PORT = re.compile(r"[0-9]{1,5}|[a-z0-9-]{0,14}[a-z][a-z0-9-]{0,14}")
_PATH = re.compile(r"/[!-~]*")

_RETIRED_WITHIN_S = 330
"""A retirement's 300 s, and the looks around it: the Lease of a run that waits for one is not renewed meanwhile."""


@click.command("kube", epilog=_EXAMPLES)
@option("--namespace", "-n", required=True, metavar="NS", help="Where the Deployment is.")
@option("--deployment", required=True, metavar="NAME", help="What is looked at.")
@policy_options
@option("--state", metavar="FILE", help="Keeps what the next run has to know: windows, limits, counters.")
@option("--apply", is_flag=True, help="Scale the Deployment; without it nothing is changed.")
@retire_options
@option("--watch", is_flag=True, help="Again each --interval, until Ctrl-C.")
@option("--interval", type=SECONDS, default=15.0, metavar="SECONDS", help="From look to look.")
@option("--now", type=Amount(0), metavar="T", help="The instant of the decision, Unix seconds; else now.")
@option("--explain", is_flag=True, help="Print each step with its numbers.")
@option("--port", metavar="PORT", help="Read the Pods there: a number, or a name; else where their annotations say.")
@option("--path", metavar="PATH", help="Of the page; else as their annotations say, or /metrics.")
@option("--scheme", type=click.Choice(["http", "https"]), help="Likewise; else http.")
@option("--engine", metavar="NAME", help="Read the pages as this engine's; else found from them.")
@option("--engine.select", "--select", multiple=True, metavar="LABEL=VALUE", help="Count only these series.")
@option("--engine.timeout", type=SECONDS, default=5.0, metavar="SECONDS", help="For one page.")
@option("--cpu-request", type=Amount(0, min_open=True), metavar="CORES", help="The Pods' CPU request.")
@option("--kube.context", default="", metavar="NAME", help="Of the kubeconfig; outside a cluster.")
@option("--kube.config", default="", metavar="FILE", help="The kubeconfig; outside a cluster.")
@config_file_option()
def command(config_file: Config, **flags: Any) -> int:
    """Decide once how many replicas a Deployment should have by what its Pods show, and say why; scale it with --apply.

    Everything goes through the API server, in a Pod with its service account, else by kubectl; no Pod need be
    reachable. A Pod is read at --port, else where its prometheus.io/ annotations say, else at its sidecar's port.
    """
    from infscale import logs

    logs.setup("warn", "logfmt")
    _check(flags)
    check_retire(flags)
    policy = policy_said(flags)
    _check_source_of_cpu(policy, flags)
    settings = _page_settings(flags, policy, config_file)
    state, path = _state(flags)
    turns = _turns(flags, policy, settings, state, path)
    with _without_log_of_pods():
        try:
            return _watch(turns, policy, flags) if flags["watch"] else _once(turns, policy, flags)
        finally:
            turns.stop()


@contextlib.contextmanager
def _without_log_of_pods() -> Iterator[None]:
    """A Pod that falls silent has a row and a line of its own here."""
    logger = logging.getLogger("infscale.fleet")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _check(flags: dict[str, Any]) -> None:
    """Refuse what could not be meant, before anything is asked."""
    for flag in ("namespace", "deployment"):
        if not _NAME.fullmatch(flags[flag]):
            raise UsageError(f"--{flag}: expected a name, as vllm, got {flags[flag][:80]!r}")
    port, path = flags["port"], flags["path"]
    if port is not None and (not _PORT.fullmatch(port) or (port.isdigit() and not 0 < int(port) < 65536)):
        raise UsageError(f"--port: expected a number from 1 to 65535, or the name of a port, got {port[:40]!r}")
    if path is not None and not _PATH.fullmatch(path):
        raise UsageError(f"--path: expected a path as /metrics, got {path[:80]!r}")
    if flags["watch"] and flags["now"] is not None:
        raise UsageError("--now is for one decision: leave it out with --watch")
    if flags["apply"] and flags["state"] is None:
        raise UsageError(
            "--apply needs --state FILE: without what was decided before no window holds the count, and the first quiet"
            " moment would take every replica away"
        )


def _check_source_of_cpu(policy: ScalePolicy, flags: dict[str, Any]) -> None:
    """CPU is a rate over a request: without a state and the request it has no source here."""
    if "cpu" in _by_two_reads(policy) and (flags["cpu_request"] is None or flags["state"] is None):
        raise UsageError(
            "the metric cpu is measured between two looks, over the Pods' request: it needs --state FILE and"
            " --cpu-request CORES"
        )


def _page_settings(flags: dict[str, Any], policy: ScalePolicy, config: Config) -> PageSettings:
    from infscale.pod_pages import PageSettings

    engines = chosen(config, flags["engine"], flags["engine_select"])
    return PageSettings(
        port=flags["port"],
        path=flags["path"],
        scheme=flags["scheme"],
        timeout_s=flags["engine_timeout"],
        profile=engines.told,
        profiles=engines.profiles,
        histograms="ttft" in _by_two_reads(policy),
        cpu_request=flags["cpu_request"],
    )


def _state(flags: dict[str, Any]) -> tuple[ScaleState, Path | None]:
    """What the last run left, and where to keep it. A single dry run without a state has no history at all."""
    from infscale.cli import say
    from infscale.core.memory import AT_ONCE, ScaleState
    from infscale.state_file import read_state

    if flags["state"] is None:
        return ScaleState() if flags["watch"] else AT_ONCE, None
    path = Path(flags["state"])
    loaded = read_state(path, _clock(flags)())
    if not loaded.dropped:
        return loaded.state, path
    future = f"{path}: {loaded.dropped} entries lie in the future: check this machine's clock"
    if flags["apply"]:
        raise StateError(f"{future}, or move the file aside to start anew")
    say(f"{future}; decided without them, and the file is left as it was")
    return loaded.state, None


def _turns(
    flags: dict[str, Any], policy: ScalePolicy, settings: PageSettings, state: ScaleState, path: Path | None
) -> KubeTurns:
    from infscale.kube_command import KubeTurns
    from infscale.pod_pages import PodPages

    cluster = cluster_of(flags)
    pages = PodPages(cluster, "deployment", flags["namespace"], flags["deployment"], settings)
    scaler = _scaler(flags, cluster) if flags["apply"] else None
    return KubeTurns(pages, policy, state=state, state_path=path, scaler=scaler, wall_clock=_clock(flags))


def _scaler(flags: dict[str, Any], cluster: Cluster) -> Scaler:
    """What scales, once it is clear that nobody else does; a workload that is not there is told first."""
    from infscale.applier import KubeApplier, lease_s
    from infscale.kube_command import PlainScaler, RetiringScaler

    workload = ("deployment", flags["namespace"], flags["deployment"])
    cluster.workload(*workload)
    # A single run ends when its replica has left; with --watch the looks go on meanwhile.
    alone = flags["retire"] and not flags["watch"]
    applier = KubeApplier(
        cluster,
        *workload,
        f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}",
        retirement=retirement_of(flags, cluster, workload, background=not alone),
        lease_s=_RETIRED_WITHIN_S if alone else lease_s(flags["interval"]),
        wall_clock=_clock(flags),
    )
    applier.check()
    return RetiringScaler(applier, cluster) if flags["retire"] else PlainScaler(applier, cluster)


def _clock(flags: dict[str, Any]) -> Callable[[], float]:
    return time.time if flags["now"] is None else lambda: float(flags["now"])


def _once(turns: KubeTurns, policy: ScalePolicy, flags: dict[str, Any]) -> int:
    from infscale.cli import say
    from infscale.core.decision import Reason

    turn = turns.turn()
    unread = _print(turn, policy, flags)
    if unread or (turn.change and turn.scaled is not None and not turn.scaled.applied):
        return 1
    if turn.decision.reason in (Reason.NO_SAMPLES, Reason.ERROR) and not _by_two_reads(policy):
        say(f"nothing to decide by: {turn.decision.steps[-1].words}")
        return 1
    return 0


def _watch(turns: KubeTurns, policy: ScalePolicy, flags: dict[str, Any]) -> int:
    """Turns until a signal; the one under way is ended first. The first turn's faults end it: they are mistakes."""
    from infscale.cli import say

    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    first = True
    try:
        while not stop.is_set():
            began_s = time.monotonic()
            try:
                turn = turns.turn()
                click.echo(datetime.datetime.fromtimestamp(turn.look.fleet.now_s, datetime.UTC).strftime("%FT%TZ"))
                _print(turn, policy, flags)
            except SourceError as error:
                if first:
                    raise
                say(f"nothing is decided or scaled for now: {error}")
            first = False
            stop.wait(max(0.0, flags["interval"] - (time.monotonic() - began_s)))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _print(turn: Turn, policy: ScalePolicy, flags: dict[str, Any]) -> bool:
    """Print a turn; whether a Pod could not be read that should have been."""
    from infscale.cli.kube_output import as_text
    from infscale.cli.sources import tell_errors
    from infscale.core.replicas import Phase

    click.echo("\n".join(as_text(policy, turn, explain=flags["explain"])))
    unread = [seen for seen in turn.look.pods if seen.replica.phase is Phase.SILENT]
    tell_errors((f"pod {seen.pod.namespace}/{seen.pod.name}", seen.error) for seen in unread)
    if turn.scaled is not None and turn.scaled.message:
        tell_errors([("", turn.scaled.message)])
    return bool(unread)


def _by_two_reads(policy: ScalePolicy) -> list[str]:
    """What of a policy nothing is known of by one read."""
    from infscale.core.scaling import MetricName

    two = (MetricName.CPU, MetricName.TTFT, MetricName.WORK)
    return [goal.metric.value for goal in policy.goals if goal.metric in two]
