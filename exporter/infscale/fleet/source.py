"""What every fleet source is, and the settings that they share. `parse.parse_source` makes one out of a text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from infscale.core.replicas import Fleet
from infscale.fleet.engines import EngineSettings
from infscale.fleet.peer import SIDECAR_PORT


@dataclass(frozen=True, slots=True)
class WorkloadName:
    """Which workload is looked at: the labels `workload_namespace` and `workload`. Empty where nobody told."""

    namespace: str = ""
    name: str = ""


def kind_namespace_name(text: str) -> tuple[str, str, str] | None:
    """The parts of `KIND/NAMESPACE/NAME`, where KIND may be `GROUP/VERSION/PLURAL`; None where one is missing."""
    parts = text.strip().rsplit("/", 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


@dataclass(frozen=True)
class FleetSettings:
    """How a workload is looked at.

    Attributes:
        timeout_s: for one look, in seconds: from its start to the last byte of the last replica. More than the 2 s that
            a sidecar waits for its own engine: a full engine's sidecar answers after that, with the values it holds.
        workload: whose replicas they are; `kubernetes:` tells it itself, `prometheus:` cannot do without.
        spec_replicas: `--spec-replicas`, for sources that read no count.
        sidecar_port: where sidecars listen, for sources whose text does not tell.
        engines: how engines without a sidecar are read.
        dns_server: `HOST` or `HOST:PORT` to ask instead of those of /etc/resolv.conf.
        resolv_conf: where name servers, search domains and ndots stand.
        ttft: whether the policy needs the TTFT histograms: Prometheus and the engines are asked for them only then.
        token_file, ca_file: for `prometheus:` and for peers over https.
    """

    timeout_s: float = 4.0
    workload: WorkloadName = field(default_factory=WorkloadName)
    spec_replicas: int | None = None
    sidecar_port: int = SIDECAR_PORT
    engines: EngineSettings = field(default_factory=EngineSettings)
    dns_server: str = ""
    resolv_conf: str = "/etc/resolv.conf"
    ttft: bool = False
    token_file: str | None = None
    ca_file: str | None = None


class Source(Protocol):
    """One workload, looked at. Not thread-safe: one look at a time."""

    @property
    def workload(self) -> WorkloadName:
        """Whose replicas they are."""
        ...

    def observe(self, now_s: float) -> Fleet:
        """One look; never raises for what can go wrong outside: then `Fleet.failure` says what.

        Args:
            now_s: Unix seconds.
        """
        ...

    def names(self) -> tuple[str, ...]:
        """Who else may evaluate this workload (for `turn`); empty where one evaluator stands beside it.

        Raises:
            SourceError: they cannot be listed now.
        """
        ...

    def close(self) -> None:
        """Gives threads back."""
        ...
