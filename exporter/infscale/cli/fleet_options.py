"""The flags that say which workload is looked at, and how often: the recommender's and the sidecar's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.options import PORT, SECONDS, URL, F, option
from infscale.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infscale.cli.engine_options import Chosen
    from infscale.core.scaling import ScalePolicy
    from infscale.evaluator import Applier, Evaluator
    from infscale.fleet.engines import EngineSettings
    from infscale.fleet.source import Source, WorkloadName
    from infscale.kube.cluster import Cluster

_SOURCE = "single, static:URL,..., dns:NAME:PORT, prometheus:URL or kubernetes:KIND/NAMESPACE/NAME."


def fleet_options(function: F) -> F:
    """Give a command `--fleet.source` and what belongs to it; `source_of` and `evaluator_of` take their values."""
    decorators = [
        option("--fleet.source", metavar="SOURCE", help=f"Where the workload's replicas are: {_SOURCE}"),
        option("--fleet.timeout", type=SECONDS, default=4.0, metavar="SECONDS", help="For one look at all replicas."),
        option(
            "--fleet.sidecar-port", type=PORT, default=10047, metavar="PORT", help="Of the sidecars, where not told."
        ),
        option(
            "--fleet.engine-port", type=PORT, metavar="PORT", help="Read the engines themselves: no sidecar needed."
        ),
        option("--fleet.engine-path", default="/metrics", metavar="PATH", help="Their metrics page."),
        option("--fleet.dns-server", default="", metavar="HOST", help="Name server, instead of /etc/resolv.conf."),
        option("--fleet.token-file", metavar="FILE", help="Bearer token for Prometheus and for https peers."),
        option("--fleet.ca-file", metavar="FILE", help="Certificates to trust for them, in PEM."),
        option("--workload", metavar="NAMESPACE/NAME", help="Whose replicas they are: the labels of the series."),
        option("--spec-replicas", type=click.IntRange(0), metavar="N", help="What it asks for, if no source tells."),
        option("--activator-url", type=URL, metavar="URL", help="The activator's metrics page: requests held."),
        option("--interval", type=SECONDS, default=15.0, metavar="SECONDS", help="From evaluation to evaluation."),
        option("--state", metavar="FILE", help="Keeps what was decided across restarts."),
        option("--kube.context", default="", metavar="NAME", help="Of the kubeconfig; outside a cluster."),
        option("--kube.config", default="", metavar="FILE", help="The kubeconfig; outside a cluster."),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def cluster_of(flags: Mapping[str, Any]) -> Cluster:
    """The cluster that the flags and the environment name."""
    from infscale.kube.access import connect

    return connect(context=flags["kube_context"], kubeconfig=flags["kube_config"])


def engine_pages_of(flags: Mapping[str, Any], engines: Chosen) -> EngineSettings:
    """How engines without a sidecar are read."""
    from infscale.fleet.engines import EngineSettings

    return EngineSettings(
        port=flags["fleet_engine_port"],
        path=flags["fleet_engine_path"],
        profile=engines.told,
        profiles=engines.profiles,
        token_file=flags["engine_token_file"],
        ca_file=flags["engine_ca_file"],
        insecure_skip_verify=flags["engine_insecure_skip_verify"],
        cpu_request=flags["cpu_request"],
        stale_after_s=flags["stale_after"],
    )


def source_of(
    flags: Mapping[str, Any],
    policy: ScalePolicy,
    engines: EngineSettings,
    *,
    reading: Callable[[], Mapping[str, Any]] | None = None,
) -> Source:
    """The source that the flags name.

    Args:
        flags: the command's values.
        policy: what is asked for: it says which histograms are needed.
        engines: how engines without a sidecar are read.
        reading: the sidecar's own reading.
    """
    from infscale.core.scaling import MetricName
    from infscale.fleet.parse import parse_source
    from infscale.fleet.source import FleetSettings

    settings = FleetSettings(
        timeout_s=flags["fleet_timeout"],
        workload=workload_name(flags["workload"]),
        spec_replicas=flags["spec_replicas"],
        sidecar_port=flags["fleet_sidecar_port"],
        engines=engines,
        dns_server=flags["fleet_dns_server"],
        ttft=any(goal.metric is MetricName.TTFT for goal in policy.goals),
        token_file=flags["fleet_token_file"],
        ca_file=flags["fleet_ca_file"],
    )
    return parse_source(flags["fleet_source"], settings, cluster=lambda: _cluster_of_source(flags), reading=reading)


def scaled(flags: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Kind, namespace and name of the workload of a source `kubernetes:`; None for another source."""
    from infscale.fleet.source import kind_namespace_name

    kind, _, rest = flags["fleet_source"].partition(":")
    return kind_namespace_name(rest) if kind == "kubernetes" else None


def _cluster_of_source(flags: Mapping[str, Any]) -> Cluster:
    from infscale.kube.kinds import workload_target

    if workload := scaled(flags):
        workload_target(*workload)  # a kind that cannot be named is told now, and not at each look
    return cluster_of(flags)


def workload_name(text: str | None) -> WorkloadName:
    """What `--workload` names; nothing where it was not given."""
    from infscale.fleet.source import WorkloadName

    if text is None:
        return WorkloadName()
    namespace, slash, name = text.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise UsageError(f"--workload: expected NAMESPACE/NAME, as inference/vllm, got {text[:120]!r}")
    return WorkloadName(namespace, name)


def evaluator_of(
    flags: Mapping[str, Any],
    policy: ScalePolicy,
    source: Source,
    *,
    applier: Applier | None = None,
    why_not: Callable[[], str] = lambda: "",
) -> Evaluator:
    """The evaluator that the flags ask for; it takes up its state file, or makes one."""
    from infscale.evaluator import Evaluator
    from infscale.held import HeldReader
    from infscale.scrape import Target

    held = None
    if flags["activator_url"] is not None:
        workload = source.workload
        activator = Target(flags["activator_url"])
        held = HeldReader(activator, workload.namespace, workload.name, dns_server=flags["fleet_dns_server"]).read
    return Evaluator(
        source,
        policy,
        held=held,
        state_path=Path(flags["state"]) if flags["state"] is not None else None,
        applier=applier,
        interval_s=flags["interval"],
        why_not=why_not,
    )
