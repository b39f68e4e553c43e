"""`infscale recommender`: evaluate a workload with no engine beside it, publish the decision, scale if told to."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option
from infscale.cli.engine_options import chosen, engine_options
from infscale.cli.fleet_options import cluster_of, engine_pages_of, evaluator_of, fleet_options, scaled, source_of
from infscale.cli.options import SECONDS, Amount, option
from infscale.cli.policy_options import policy_options, policy_said
from infscale.cli.retire_options import check_retire, retire_options, retirement_of
from infscale.cli.web_options import check_web_config, web_options
from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.applier import KubeApplier
    from infscale.cli.engine_options import Chosen
    from infscale.config import Config

_EXAMPLES = """\b
Examples:
  infscale recommender --fleet.source kubernetes:deployment/inference/vllm --policy queue:24,max=8
  infscale recommender --fleet.source kubernetes:deployment/inference/vllm --fleet.engine-port 8000 --policy queue:24
  infscale recommender --fleet.source prometheus:http://prometheus:9090 --workload inference/vllm --policy queue:24
  infscale recommender --fleet.source kubernetes:deployment/inference/vllm --policy queue:24,max=8 --apply
  infscale recommender --fleet.source kubernetes:deployment/inference/vllm --policy queue:24,max=8 --apply --retire
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
@retire_options
@engine_options
@option("--stale-after", type=SECONDS, default=120.0, metavar="SECONDS", help="No counter moved: the state is stale.")
@option("--cpu-request", type=Amount(0, min_open=True), metavar="CORES", help="The Pods' CPU request.")
@web_options
@config_file_option()
@click.pass_context
def command(ctx: click.Context, /, config_file: Config, config_check: bool, **flags: Any) -> int:
    """Evaluate a workload again and again, publish the recommended replicas and why, and scale it with --apply.

    Without --apply it changes nothing; with --fleet.engine-port it needs no sidecar and no restart of any engine.
    """
    if flags["fleet_source"] is None:
        raise UsageError(
            "missing --fleet.source: where the workload's replicas are (see 'infscale recommender --help')"
        )
    policy = policy_said(flags)
    check_retire(flags)
    check_web_config(flags["web_config_file"])
    engines = chosen(config_file, flags["engine"], flags["engine_select"])
    pages = engine_pages_of(flags, engines)
    source = source_of(flags, policy, pages)
    applier = _applier(flags) if flags["apply"] else None
    if config_check:
        how = f"applied ({flags['apply']}{', by retirement' if flags['retire'] else ''})" if applier else "dry run"
        click.echo(f"configuration is fine: {flags['fleet_source']}, {how}")
        return 0
    from infscale.cli.reloading import reload_of
    from infscale.recommender import recommender_routes
    from infscale.reload import Reloader
    from infscale.serving import serve

    if applier is not None:
        applier.check()
    evaluator = evaluator_of(flags, policy, source, applier=applier)

    def use_engines(new: Chosen) -> None:
        """Read engines without a sidecar as these from now on."""
        pages.profile, pages.profiles = new.told, new.profiles

    reloader = Reloader(reload_of(ctx, use_engines, evaluator))
    reloader.install()

    def start() -> None:
        """Begin to evaluate, and to reload when asked."""
        evaluator.start()
        reloader.start()

    routes = recommender_routes(evaluator, also=[reloader])
    return serve(routes, flags, also=[evaluator, reloader], once_listening=start)


def _applier(flags: dict[str, Any]) -> KubeApplier:
    from infscale.applier import KubeApplier, lease_s

    workload = scaled(flags)
    if workload is None:
        raise UsageError("--apply needs --fleet.source kubernetes:KIND/NAMESPACE/NAME: what it scales it must see")
    cluster = cluster_of(flags)
    return KubeApplier(
        cluster,
        *workload,
        # The host name is a Pod's name, and says who it is; Pods on the host's network share it.
        f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}",
        down_only=flags["apply"] == "down",
        retirement=retirement_of(flags, cluster, workload, background=True),
        lease_s=lease_s(flags["interval"]),
    )
