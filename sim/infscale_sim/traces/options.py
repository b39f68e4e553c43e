"""The flags that name a trace, for every command that replays one: `trace_options`, and `trace_of` for their values."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from infscale.cli.options import URL, F, option
from infscale.errors import UsageError
from infscale_sim.traces.prometheus import History, duration_s
from infscale_sim.traces.trace import Trace, open_trace


def trace_options(function: F, *, several: bool = False) -> F:
    """Give a command `--trace`, `--prometheus` and what belongs to them; with `several`, `--trace` repeats."""
    requests = "Requests to replay: CSV, JSON lines or a description in YAML" + ("; repeat it." if several else ".")
    decorators = [
        option("--trace", multiple=several, metavar="FILE", help=requests),
        option("--prometheus", type=URL, metavar="URL", help="Rebuild the requests from what this Prometheus has."),
        option("--range", metavar="DURATION", default="7d", help="How far back, as 7d or 1d12h."),
        option(
            "--step", metavar="DURATION", help="How long a rebuilt rate holds. [default: 1m, or 5m for slow scrapes]"
        ),
        option("--workload", metavar="NAMESPACE/NAME", default="", help="Labels namespace and workload of the series."),
        option("--selector", metavar="MATCHERS", default="", help="Further labels, as 'pod=~\"vllm-.*\"'."),
        option("--prometheus.token-file", metavar="FILE", help="Bearer token for the Prometheus."),
        option("--prometheus.ca-file", metavar="FILE", help="Certificates to trust for it, in PEM."),
        option("--scale", type=float, metavar="FACTOR", default=1.0, help="So many times the requests of the trace."),
        option("--limit", type=click.IntRange(1), metavar="N", help="At most so many requests of the trace."),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def trace_of(flags: Mapping[str, Any], seed: int | None = None) -> Trace | None:
    """The trace that the flags name; None: they name none.

    Args:
        flags: the command's values.
        seed: of everything random; None: the trace's own, or 0.

    Raises:
        UsageError: both kinds are named, or one cannot be used.
        SourceError: the Prometheus cannot be read.
    """
    path, url = flags["trace"], flags["prometheus"]
    if path is not None and url is not None:
        raise UsageError("--trace and --prometheus: expected one of them")
    if path is None and url is None:
        if flags["scale"] != 1 or flags["limit"] is not None:
            raise UsageError("--scale and --limit are of a trace: name one with --trace or --prometheus")
        return None
    return open_trace(
        Path(path) if url is None else _history(flags), scale=flags["scale"], limit=flags["limit"], seed=seed
    )


def _history(flags: Mapping[str, Any]) -> History:
    return History(
        flags["prometheus"],
        duration_s(flags["range"]),
        time.time(),
        step_s=None if flags["step"] is None else duration_s(flags["step"]),
        workload=flags["workload"],
        selector=flags["selector"],
        token_file=flags["prometheus_token_file"],
        ca_file=flags["prometheus_ca_file"],
    )
