"""The source `static:URL,...`: replicas that are listed by hand, as on machines without Kubernetes.

A URL without a path is a sidecar's address; one with a path is an engine's metrics page itself, so that engines on any
ports need no sidecar for a dry run. What is listed stays listed: a replica that is gone is silent until its URL is too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infscale.core.replicas import Fleet
from infscale.errors import SourceError, UsageError
from infscale.fleet.peer import READING_PATH, SIDECAR_PORT
from infscale.fleet.source import FleetSettings, WorkloadName
from infscale.fleet.survey import Place, Survey, url_of
from infscale.scrape import show_url, split_url

EXAMPLE = f"static:http://10.0.0.1:{SIDECAR_PORT},http://10.0.0.2:{SIDECAR_PORT}"


class Static:
    """Listed replicas.

    Args:
        urls: of the replicas.
        settings: how they are read.

    Raises:
        UsageError: no URL, one that cannot be read, or one twice.
    """

    def __init__(self, urls: Sequence[str], settings: FleetSettings) -> None:
        self._settings = settings
        self._places = tuple(_place(url, settings) for url in urls)
        names = [place.name for place in self._places]
        if not names:
            raise UsageError(f"fleet source static: no URL: expected as in {EXAMPLE}")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"fleet source static: {twice[0]} is listed twice, and would count twice")
        self._survey = Survey(settings)

    @property
    def workload(self) -> WorkloadName:
        """See `Source`."""
        return self._settings.workload

    def observe(self, now_s: float) -> Fleet:
        """See `Source`."""
        spec = self._settings.spec_replicas
        try:
            replicas = self._survey.take(self._places, now_s, self._survey.deadline())
        except SourceError as error:
            return Fleet(now_s, spec, replicas=self._survey.missed(), failure=str(error))
        return Fleet(now_s, spec, replicas=replicas)

    def names(self) -> tuple[str, ...]:
        """See `Source`."""
        return tuple(place.name for place in self._places)

    def close(self) -> None:
        """See `Source`."""
        self._survey.close()


def _place(text: str, settings: FleetSettings) -> Place:
    """What one URL of the list is; its name is `host:port`, with the path where that tells replicas apart."""
    url = split_url(text)
    if url.path in ("/", READING_PATH):
        if settings.engines.port is None:
            return Place(url.place, f"{url.scheme}://{url.place}{READING_PATH}")
        place = Place(url.host, *url_of(url.host, url.port, settings))
        return replace(place, name=split_url(place.url).place)
    if url.path.startswith("/api/"):
        raise UsageError(f"fleet source static: {show_url(text)}: expected a sidecar's address, or an engine's page")
    return Place(f"{url.place}{url.path}", text, engine=True)
