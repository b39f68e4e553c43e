"""`infscale sidecar`: read the engine beside it and publish the normalised metric."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option
from infscale.cli.engine_options import chosen, engine_options, target
from infscale.cli.options import LISTEN_ADDRESS, SECONDS, URL, log_options, option

if TYPE_CHECKING:
    from infscale.config import Config
    from infscale.sidecar import Sidecar
    from infscale.web.webconfig import WebConfig

log = logging.getLogger(__name__)

_EXAMPLES = """\b
Examples:
  infscale sidecar --engine-url http://127.0.0.1:8000/metrics
  infscale sidecar --engine-url http://127.0.0.1:8080/metrics --engine llama.cpp --engine.token-file /run/secrets/key
  infscale sidecar --config.file sidecar.yaml --config.check
"""
DRAIN_S = 5.0
"""For scrapes under way at the end: longer than any read of an engine takes by default."""


@click.command("sidecar", epilog=_EXAMPLES)
@option("--engine-url", type=URL, multiple=True, required=True, metavar="URL", help="The engine's metrics page.")
@engine_options
@option("--engine.min-interval", type=SECONDS, metavar="SECONDS", help="Share a read for this long (1; llama.cpp 2).")
@option("--stale-after", type=SECONDS, default=120.0, metavar="SECONDS", help="No counter moved: the state is stale.")
@option("--model-name", default="", metavar="NAME", help="The model_name label, instead of the engine's own word.")
@option("--capacity", type=click.FloatRange(0, min_open=True), metavar="N", help="Slots, if the engine does not tell.")
@option("--cpu-request", type=click.FloatRange(0, min_open=True), metavar="CORES", help="The Pod's CPU request.")
@option("--collector.histograms/--no-collector.histograms", default=True, help="Pass the engine's histograms through.")
@option("--web.listen-address", type=LISTEN_ADDRESS, default=":10047", metavar="ADDRESS", help="Metrics, JSON, page.")
@option("--web.max-requests", type=click.IntRange(1, 1000), default=40, metavar="N", help="At once; one more gets 503.")
@option("--web.config.file", metavar="FILE", help="TLS, client certificates, basic auth for the main listener.")
@option("--web.shutdown-delay", type=float, default=5.0, metavar="SECONDS", help="Serve on for this long when stopped.")
@option("--kubelet.listen-address", type=LISTEN_ADDRESS, default=":10048", metavar="ADDRESS", help="Probes.")
@log_options
@config_file_option()
@click.option("--config.check", "config_check", is_flag=True, help="Check the flags and the file, and end.")
def command(config_file: Config, config_check: bool, **flags: Any) -> int:
    """Read the engine beside it and publish the normalised metric, requests in flight, for Prometheus."""
    from infscale.metrics.collectors import Settings
    from infscale.sidecar import Engine, EngineSettings, Sidecar

    engines = chosen(config_file, flags["engine"], flags["engine_select"])
    settings = EngineSettings(
        profile=engines.told,
        profiles=engines.profiles,
        min_interval_s=flags["engine_min_interval"],
        stale_after_s=flags["stale_after"],
        cpu_request=flags["cpu_request"],
        histograms=flags["collector_histograms"],
    )
    targets = [target(url, **flags) for url in flags["engine_url"]]
    page = Settings(flags["model_name"], flags["capacity"], flags["collector_histograms"])
    web_config = _web_config(flags["web_config_file"])
    if config_check:
        click.echo(f"configuration is fine: {len(targets)} engine(s), {', '.join(t.url for t in targets)}")
        return 0
    sidecar = Sidecar([Engine(one, settings) for one in targets], page)
    return _serve(sidecar, web_config, flags)


def _web_config(path: str | None) -> WebConfig | None:
    if path is None:
        return None
    from infscale.web.webconfig import WebConfig

    return WebConfig(path)


def _serve(sidecar: Sidecar, web_config: WebConfig | None, flags: dict[str, Any]) -> int:
    """Both listeners, until the process is told to stop."""
    from infscale.sidecar import kubelet_routes
    from infscale.web.lifecycle import Lifecycle
    from infscale.web.server import Limits, Listener

    lifecycle = Lifecycle()
    lifecycle.install()
    listeners = [
        Listener(
            str(flags["web_listen_address"]),
            sidecar.routes(),
            web_config=web_config,
            limits=Limits(max_requests=flags["web_max_requests"]),
        ),
        Listener(
            str(flags["kubelet_listen_address"]),
            kubelet_routes(lambda: not lifecycle.stopping),
            flag="--kubelet.listen-address",
        ),
    ]
    for listener in listeners:
        listener.start()
        log.info("listening", extra={"address": listener.address, "port": listener.port})
    return lifecycle.run(listeners, delay_s=flags["web_shutdown_delay"], drain_s=DRAIN_S)
