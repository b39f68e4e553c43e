"""`infscale recommender`: evaluate a workload with no engine beside it, publish the decision, scale if told to."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option
from infscale.cli.engine_options import chosen, engine_options
from infscale.cli.fleet_options import cluster_of, evaluator_of, fleet_options, scaled, source_of
from infscale.cli.options import SECONDS, option
from infscale.cli.policy_options import policy_options, policy_said
from infscale.cli.web_options import check_web_config, web_options
from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.applier import KubeApplier
    from infscale.config import Config

_EXAMPLES = """\b
Examples:
  infscale recommender --fleet.source kubernetes:deployment/inference/vllm --policy queue:24,max=8
  infscale recommender --fleet.source kubernetes:deployment/inference/vllm --fleet.engine-port 8000 --policy queue:24
  infscale recommender --fleet.source prometheus:http://prometheus:9090 --workload inference/vllm --policy queue:24
  infscale recommender --fleet.source kubernetes:deployment/inference/vllm --policy queue:24,max=8 --apply
"""


@click.command("recommender", epilog=_EXAMPLES)
@fleet_options
@policy_options
@option(
    "--apply",
    is_flag=False,
    flag_value="both",
    type=click.Choice(["both", "down"]),
    help="Scale the workload, --apply=down only ever down; without it nothing is changed.",
)
@engine_options
@option("--stale-after", type=SECONDS, default=120.0, metavar="SECONDS", help="No counter moved: the state is stale.")
@option("--cpu-request", type=click.FloatRange(0, min_open=True), metavar="CORES", help="The Pods' CPU request.")
@web_options
@config_file_option()
def command(config_file: Config, config_check: bool, **flags: Any) -> int:
    """Evaluate a workload again and again, publish the recommended replicas and why, and scale it with --apply.

    Without --apply it changes nothing; with --fleet.engine-port it needs no sidecar and no restart of any engine.
    """
    if flags["fleet_source"] is None:
        raise UsageError(
            "missing --fleet.source: where the workload's replicas are (see 'infscale recommender --help')"
        )
    policy = policy_said(flags)
    check_web_config(flags["web_config_file"])
    engines = chosen(config_file, flags["engine"], flags["engine_select"])
    source = source_of(flags, policy, engines)
    applier = _applier(flags) if flags["apply"] else None
    if config_check:
        how = f"applied ({flags['apply']})" if applier else "dry run"
        click.echo(f"configuration is fine: {flags['fleet_source']}, {how}")
        return 0
    from infscale.recommender import recommender_routes
    from infscale.serving import serve

    if applier is not None:
        applier.check()
    evaluator = evaluator_of(flags, policy, source, applier=applier)
    return serve(recommender_routes(evaluator), flags, also=[evaluator], once_listening=evaluator.start)


def _applier(flags: dict[str, Any]) -> KubeApplier:
    from infscale.applier import KubeApplier, lease_s

    workload = scaled(flags)
    if workload is None:
        raise UsageError("--apply needs --fleet.source kubernetes:KIND/NAMESPACE/NAME: what it scales it must see")
    return KubeApplier(
        cluster_of(flags),
        *workload,
        # The host name is a Pod's name, and says who it is; Pods on the host's network share it.
        f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}",
        down_only=flags["apply"] == "down",
        lease_s=lease_s(flags["interval"]),
    )
