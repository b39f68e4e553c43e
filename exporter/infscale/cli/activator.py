"""`infscale activator`: hold requests while no replica of a workload is ready, and wake one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from infscale.cli.fleet_options import cluster_of, workload_name
from infscale.cli.options import LISTEN_ADDRESS, SECONDS, URL, F, option
from infscale.cli.web_options import check_web_config, web_options
from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.activator.serve import Activator
    from infscale.activator.settings import Settings
    from infscale.activator.wake import Waker

_EXAMPLES = """\b
Examples:
  infscale activator --upstream http://vllm.inference.svc:8000 --workload inference/vllm \\
      --scale kubernetes:deployment/inference/vllm
  infscale activator --upstream http://vllm.inference.svc:8000 --workload inference/vllm --keep-alive 15
"""


def _hold_options(function: F) -> F:
    """What is held, and for how long."""
    count = click.IntRange(1)
    decorators = [
        option("--listen-address", type=LISTEN_ADDRESS, default=":10049", metavar="ADDRESS", help="Clients' requests."),
        option("--hold-timeout", type=SECONDS, default=300.0, metavar="SECONDS", help="Held at most; then 503."),
        option("--max-held", type=count, default=1000, metavar="N", help="Requests held at once; else 503."),
        option("--max-held-bytes", type=count, default=64 * 2**20, metavar="N", help="Of their bodies together."),
        option("--max-body-bytes", type=count, default=16 * 2**20, metavar="N", help="Of one request; else 413."),
        option("--max-connections", type=count, default=10_000, metavar="N", help="Clients connected at once."),
        option("--keep-alive", type=SECONDS, metavar="SECONDS", help="Comments on held streams; the 200 is sent then."),
        option("--drain-timeout", type=SECONDS, default=100.0, metavar="SECONDS", help="At the end, for what is held."),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def _upstream_options(function: F) -> F:
    """Where requests go."""
    decorators = [
        option("--upstream.health-path", default="/health", metavar="PATH", help="A replica is ready when it is 2xx."),
        option("--upstream.probe-interval", type=SECONDS, default=1.0, metavar="SECONDS", help="Between two probes."),
        option("--upstream.connect-timeout", type=SECONDS, default=2.0, metavar="SECONDS", help="Also for a probe."),
        option("--upstream.read-timeout", type=SECONDS, default=600.0, metavar="SECONDS", help="Without a byte of it."),
        option("--upstream.ca-file", metavar="FILE", help="Certificates to trust for https, in PEM."),
        option("--upstream.dns-server", default="", metavar="HOST", help="Name server, instead of /etc/resolv.conf."),
        option("--kube.context", default="", metavar="NAME", help="Of the kubeconfig; outside a cluster."),
        option("--kube.config", default="", metavar="FILE", help="The kubeconfig; outside a cluster."),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


@click.command("activator", epilog=_EXAMPLES)
@option("--upstream", type=URL, required=True, metavar="URL", help="The workload; a name's addresses are its replicas.")
@option("--workload", required=True, metavar="NAMESPACE/NAME", help="Whose requests they are: labels of the series.")
@option("--scale", default="none", metavar="HOW", help="kubernetes:KIND/NAMESPACE/NAME: wakes it; none: only counts.")
@_hold_options
@_upstream_options
@web_options
def command(config_check: bool, **flags: Any) -> int:
    """Hold requests while no replica is ready, count them, and wake the workload: 0 replicas become 1.

    Meant to be in the path at zero, as a fallback behind a gateway. It never scales down, nor from 1 up.
    """
    workload, scaled = workload_name(flags["workload"]), _scaled(flags["scale"])
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        raise UsageError("the activator needs aiohttp: pip install 'infscale[activator]'") from None
    from infscale.activator.page import activator_routes
    from infscale.activator.serve import Activator
    from infscale.serving import serve

    settings = _settings(flags)
    settings.check()
    check_web_config(flags["web_config_file"])
    if config_check:
        click.echo(f"configuration is fine: {settings.upstream}, scale {flags['scale']}")
        return 0
    activator = Activator(settings)
    waker = None
    try:
        if scaled is not None:
            waker = _waker(flags, scaled, activator)
        routes = activator_routes(activator, workload, lambda: "" if waker is None else waker.last)
        # What it still holds at its end is demand: a recommender that cannot read the page until then knows nothing.
        return serve(routes, flags, first=activator, once_listening=activator.start)
    finally:
        activator.abandon()
        if waker is not None:
            waker.stop()


def _waker(flags: dict[str, Any], scaled: tuple[str, str, str], activator: Activator) -> Waker:
    """Wakes the workload whenever the activator holds a request; refuses to be the second to do so."""
    from infscale.activator.wake import Waker

    waker = Waker(cluster_of(flags), *scaled, activator.waiting)
    waker.check()
    activator.on_held = waker.ask
    waker.start()
    return waker


def _settings(flags: dict[str, Any]) -> Settings:
    from infscale.activator.settings import Settings

    return Settings(
        upstream=flags["upstream"],
        listen_address=str(flags["listen_address"]),
        hold_s=flags["hold_timeout"],
        max_held=flags["max_held"],
        max_held_bytes=flags["max_held_bytes"],
        max_body_bytes=flags["max_body_bytes"],
        max_connections=flags["max_connections"],
        keep_alive_s=flags["keep_alive"],
        drain_s=flags["drain_timeout"],
        health_path=flags["upstream_health_path"],
        probe_interval_s=flags["upstream_probe_interval"],
        connect_timeout_s=flags["upstream_connect_timeout"],
        read_timeout_s=flags["upstream_read_timeout"],
        ca_file=flags["upstream_ca_file"],
        dns_server=flags["upstream_dns_server"],
    )


def _scaled(how: str) -> tuple[str, str, str] | None:
    """Kind, namespace and name of what is woken; None where that is another's."""
    from infscale.fleet.source import kind_namespace_name
    from infscale.kube.kinds import workload_target

    if how == "none":
        return None
    scheme, _, rest = how.partition(":")
    workload = kind_namespace_name(rest)
    if scheme != "kubernetes" or workload is None:
        raise UsageError(f"--scale: expected none or kubernetes:KIND/NAMESPACE/NAME, got {how[:120]!r}")
    workload_target(*workload)
    return workload
