"""The flags of what a long-running role serves: the same for the sidecar, the recommender and the activator."""

from __future__ import annotations

import click

from infscale.cli.options import LISTEN_ADDRESS, Amount, F, log_options, option


def web_options(function: F) -> F:
    """Give a command its two listeners, `--config.check` and the log flags; `serving.serve` takes their values."""
    decorators = [
        option("--web.listen-address", type=LISTEN_ADDRESS, default=":10047", metavar="ADDRESS", help="Metrics, JSON."),
        option("--web.max-requests", type=click.IntRange(1, 1000), default=40, metavar="N", help="At once; else 503."),
        option("--web.config.file", metavar="FILE", help="TLS, client certificates, basic auth for that listener."),
        option(
            "--web.shutdown-delay",
            type=Amount(0, 3600),
            default=5.0,
            metavar="SECONDS",
            help="Serve on for this long when told to stop.",
        ),
        option("--kubelet.listen-address", type=LISTEN_ADDRESS, default=":10048", metavar="ADDRESS", help="Probes."),
        log_options,
        click.option("--config.check", "config_check", is_flag=True, help="Check the flags and the file, and end."),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def check_web_config(path: str | None) -> None:
    """Read a web configuration file, so that a wrong one is told by `--config.check` too.

    Raises:
        ConfigError: it cannot be used.
    """
    if path is not None:
        from infscale.web.webconfig import WebConfig

        WebConfig(path)
