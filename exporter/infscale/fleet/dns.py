"""The source `dns:NAME:PORT`: every address of a name is a replica.

Meant for a headless Service with `publishNotReadyAddresses: true`: without it a full llama.cpp, which fails its own
health check, would leave the Service just when it counts. The name is asked anew for each look, so a short TTL needs
no care. How many replicas there should be a name does not tell: that is `--spec-replicas`.
"""

from __future__ import annotations

from infscale.core.replicas import Fleet
from infscale.errors import SourceError
from infscale.fleet.peer import SIDECAR_PORT
from infscale.fleet.resolver import Resolver
from infscale.fleet.source import FleetSettings, WorkloadName
from infscale.fleet.survey import Place, Survey, url_of

EXAMPLE = f"dns:vllm-peers.inference.svc:{SIDECAR_PORT}"


class Dns:
    """The replicas behind a name.

    Args:
        name: as a client would write it; the search domains of /etc/resolv.conf apply.
        port: of the sidecars.
        settings: how they are read.

    Raises:
        UsageError: the name is none, or the name server is.
    """

    def __init__(self, name: str, port: int, settings: FleetSettings) -> None:
        self._port, self._settings = port, settings
        self._resolver = Resolver.from_system(name, server=settings.dns_server, resolv_conf=settings.resolv_conf)
        self._survey = Survey(settings)

    @property
    def workload(self) -> WorkloadName:
        """See `Source`."""
        return self._settings.workload

    def observe(self, now_s: float) -> Fleet:
        """See `Source`. The name gets at most half of the time: the replicas are read even after a slow answer."""
        spec = self._settings.spec_replicas
        deadline = self._survey.deadline()
        try:
            addresses = self._resolver.addresses(self._settings.timeout_s / 2)
            places = [Place(address, *url_of(address, self._port, self._settings)) for address in addresses]
            replicas = self._survey.take(places, now_s, deadline, expected=spec)
        except SourceError as error:
            return Fleet(now_s, spec, replicas=self._survey.missed(), failure=str(error))
        return Fleet(now_s, spec, replicas=replicas)

    def names(self) -> tuple[str, ...]:
        """See `Source`. The addresses of the peers."""
        return self._resolver.addresses(self._settings.timeout_s / 2)

    def close(self) -> None:
        """See `Source`."""
        self._survey.close()
