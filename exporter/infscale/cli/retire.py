"""`infscale retire`: take one replica away, only when it is proven idle, for a person or a job.

Exit status: 0 the replica left, 1 it stays (aborted, refused, or held to the end), 2 bad usage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.fleet_options import cluster_of
from infscale.cli.options import option
from infscale.cli.retire_options import ROTATION_HELP, TOKEN_FILE_HELP, retirer_of
from infscale.errors import UsageError, printable

if TYPE_CHECKING:
    from infscale.retire.passes import Progress, Retirer

PASS_S = 1.0
"""From the start of one pass to that of the next."""

_KINDS = ("deployment", "statefulset", "leaderworkerset")

_EXAMPLES = """\b
Examples:
  infscale retire -n inference --deployment vllm --withdraw.token-file token --dry-run
  infscale retire -n inference --deployment vllm --withdraw.token-file token
  infscale retire -n inference --leaderworkerset vllm --withdraw.token-file token --state retirement.json --retry
"""


@click.command("retire", epilog=_EXAMPLES)
@option("--namespace", "-n", metavar="NS", help="Where the workload is.")
@option("--deployment", metavar="NAME", help="The workload: a Deployment;")
@option("--statefulset", metavar="NAME", help="or a StatefulSet: its highest ordinal leaves;")
@option("--leaderworkerset", metavar="NAME", help="or a LeaderWorkerSet: its highest group leaves.")
@option("--withdraw.token-file", metavar="FILE", help=TOKEN_FILE_HELP)
@option("--rotation", metavar="llm-d:URL", help=ROTATION_HELP)
@option("--state", metavar="FILE", help="Keep the progress here, instead of in an annotation of the workload.")
@option("--retry", is_flag=True, help="Begin anew where the last retirement was aborted.")
@option("--dry-run", is_flag=True, help="Say which replica would leave; change nothing.")
@option("--json", is_flag=True, help="A JSON object for each line.")
@option("--kube.context", default="", metavar="NAME", help="Of the kubeconfig; outside a cluster.")
@option("--kube.config", default="", metavar="FILE", help="The kubeconfig; outside a cluster.")
def command(**flags: Any) -> int:
    """Take one replica of a workload away, and only when it is proven idle.

    The replica is taken out of rotation, waited for until two reads find it idle, and then the scale is set down by
    one so that this very Pod leaves. Whatever cannot be proven holds, and what holds too long is aborted: the replica
    goes back in rotation, and nothing was taken away. One look a second, 300 s at most; what is killed goes on where
    it was when the command is run again.
    """
    from infscale.logs import setup

    setup("warn", "logfmt")
    kind, name = _workload(flags)
    say = _json_line if flags["json"] else _text_line
    retirer = _retirer(flags, kind, name)
    retirer.check()
    if flags["dry_run"]:
        return _dry_run(retirer, say)
    return _run(retirer, say)


def _workload(flags: dict[str, Any]) -> tuple[str, str]:
    named = [(kind, flags[kind]) for kind in _KINDS if flags[kind]]
    if not flags["namespace"] or len(named) != 1:
        ways = ", ".join(f"--{kind} NAME" for kind in _KINDS)
        raise UsageError(f"expected -n NAMESPACE and one of {ways} (see 'infscale retire --help')")
    return named[0]


def _retirer(flags: dict[str, Any], kind: str, name: str) -> Retirer:
    from infscale.retire.persisted import FileStore

    store = FileStore(Path(flags["state"])) if flags["state"] else None
    workload = (kind, flags["namespace"], name)
    return retirer_of(flags, cluster_of(flags), workload, store=store, retry=flags["retry"])


@dataclass(frozen=True)
class _Line:
    """What is said: seconds since the start, the state, the Pod, and why."""

    seconds: float
    state: str
    pod: str
    reason: str


def _run(retirer: Retirer, say: Callable[[_Line], None]) -> int:
    """Passes, a second apart, until it is over."""
    from infscale.retire.protocol import OVERALL_S

    start_s, said = time.monotonic(), None
    while True:
        pass_s = time.monotonic()
        progress = retirer.step(time.time())
        late = progress.exhausted or (progress.state is None and pass_s - start_s >= OVERALL_S)
        now = (progress.state, progress.rule)
        if now != said or progress.final or late:
            say(_line(progress, pass_s - start_s))
            said = now
        if progress.final:
            return 0 if progress.done else 1
        if late:
            say(_Line(pass_s - start_s, "held to the end", progress.target, "run the command again to go on"))
            return 1
        time.sleep(max(0.0, PASS_S - (time.monotonic() - pass_s)))


def _line(progress: Progress, seconds: float) -> _Line:
    state = progress.state.value if progress.state else "not begun"
    return _Line(seconds, state, progress.target, progress.reason)


def _dry_run(retirer: Retirer, say: Callable[[_Line], None]) -> int:
    """Who would leave, or why nobody would."""
    workload, choice = retirer.choice()
    if choice.members:
        say(_Line(0.0, "would retire", choice.members[0].name, f"of {workload}, {workload.spec_replicas} replicas"))
        return 0
    say(_Line(0.0, "refused" if choice.refusal else "held", "", str(choice.refusal or choice.hold)))
    return 1


def _text_line(line: _Line) -> None:
    words = f"{line.seconds:7.1f} s  {line.state:12}  {line.pod or '-'}"
    click.echo(f"{words}  {printable(line.reason)}".rstrip())


def _json_line(line: _Line) -> None:
    click.echo(
        json.dumps({"seconds": round(line.seconds, 1), "state": line.state, "pod": line.pod, "reason": line.reason})
    )
