"""The text of a fleet source becomes a Source. The command line calls it with what `--fleet.source` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infscale.errors import UsageError
from infscale.fleet import dns, kubernetes, prometheus, static
from infscale.fleet.dns import Dns
from infscale.fleet.kubernetes import Kubernetes, PodReader
from infscale.fleet.prometheus import Prometheus
from infscale.fleet.single import Single
from infscale.fleet.source import FleetSettings, Source, kind_namespace_name
from infscale.fleet.static import Static
from infscale.scrape import Target, check_target, split_url

KINDS = "single, static:URL,..., dns:NAME:PORT, prometheus:URL, kubernetes:KIND/NAMESPACE/NAME"


def parse_source(
    text: str,
    settings: FleetSettings,
    *,
    cluster: Callable[[], PodReader] | None = None,
    reading: Callable[[], Mapping[str, Any]] | None = None,
) -> Source:
    """The source that a text names.

    Args:
        text: one of KINDS.
        settings: how its workload is looked at.
        cluster: gives the API for `kubernetes:`; called for that kind alone.
        reading: the sidecar's own reading, for `single`.

    Raises:
        UsageError: no such kind, or what follows it cannot be used.
    """
    _check(settings)
    kind, _, rest = text.partition(":")
    rest = rest.strip()
    if kind == "single" and ":" not in text:
        if reading is None:
            raise UsageError("fleet source single: only a sidecar has a replica of its own; expected " + KINDS)
        return Single(settings, reading)
    if kind == "static" and rest:
        return Static([url.strip() for url in rest.split(",") if url.strip()], settings)
    if kind == "dns" and rest:
        return Dns(*_name_and_port(rest, settings), settings)
    if kind == "prometheus" and rest:
        return Prometheus(rest, settings)
    if kind == "kubernetes" and rest:
        return _kubernetes(rest, settings, cluster)
    examples = {m.__name__.rpartition(".")[2]: m.EXAMPLE for m in (static, dns, prometheus, kubernetes)}
    if kind in examples:
        raise UsageError(f"fleet source {text[:120]!r}: nothing follows its kind: expected as in {examples[kind]}")
    raise UsageError(f"fleet source {text[:120]!r}: expected one of {KINDS}")


def _name_and_port(rest: str, settings: FleetSettings) -> tuple[str, int]:
    name, colon, port = rest.partition(":")
    if not colon:
        return name, settings.sidecar_port
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise UsageError(f"fleet source dns: port {port[:20]!r}: expected 1 to 65535, as in {dns.EXAMPLE}")
    return name, int(port)


def _kubernetes(rest: str, settings: FleetSettings, cluster: Callable[[], PodReader] | None) -> Kubernetes:
    workload = kind_namespace_name(rest)
    if workload is None:
        raise UsageError(f"fleet source kubernetes:{rest[:120]}: expected KIND/NAMESPACE/NAME, as {kubernetes.EXAMPLE}")
    if cluster is None:
        raise UsageError("fleet source kubernetes: this command has no access to a cluster; expected " + KINDS)
    return Kubernetes(*workload, settings, cluster())


def _check(settings: FleetSettings) -> None:
    if not 0 < settings.timeout_s < float("inf"):
        raise UsageError(f"--fleet.timeout is {settings.timeout_s:g} s: expected more than 0")
    if settings.spec_replicas is not None and settings.spec_replicas < 0:
        raise UsageError(f"--spec-replicas is {settings.spec_replicas}: expected 0 or more")
    for flag, port in (("engine-port", settings.engines.port), ("sidecar-port", settings.sidecar_port)):
        if port is not None and not 1 <= port <= 65535:
            raise UsageError(f"--fleet.{flag} is {port}: expected 1 to 65535")
    if not settings.engines.path.startswith("/"):
        raise UsageError(f"--fleet.engine-path is {settings.engines.path[:120]!r}: expected a path, as /metrics")
    split_url(f"http://localhost{settings.engines.path}")
    check_target(Target("http://localhost", token_file=settings.engines.token_file))
    for ca_file in (settings.ca_file, settings.engines.ca_file):
        if ca_file is not None:
            check_target(Target("https://localhost", ca_file=ca_file))
