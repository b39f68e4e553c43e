"""The bytes of /metrics: the engine families' text is rendered once per reading and shared by its scrapes.

The web server asks for a `Page` at each scrape. Writing the text is what a scrape costs (a few milliseconds with
histograms, against microseconds to hand out bytes), and many scrapers may share one reading.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family

from infscale.metrics.collectors import ReplicaCollector, Snapshot
from infscale.metrics.negotiate import Format, choose_format, gzip_wanted

_GZIP_LEVEL = 6


@dataclass(frozen=True)
class Page:
    """One answer to a scrape; `content_encoding` is `gzip` or empty."""

    body: bytes
    content_type: str
    content_encoding: str


class Renderer:
    """Pages of a replica and of the process itself, kept until they are out of date. Safe to use from many threads.

    Args:
        replica: its families are written anew when one of its views is another, or a failure was counted.
        own: the process's own families, after the replica's.
        own_max_age_s: for how long the text of `own` is shared, in seconds; 0: written at each scrape.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        replica: ReplicaCollector,
        own: CollectorRegistry,
        *,
        own_max_age_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._replica, self._own = replica, own
        self._own_max_age_s, self._clock = own_max_age_s, clock
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._replica_texts: dict[Format, bytes] = {}
        self._pages: dict[tuple[Format, bool], tuple[float, Page]] = {}

    def page(self, accept: str = "", accept_encoding: str = "") -> Page:
        """The page for the headers `Accept` and `Accept-Encoding` of a scrape (empty where there is none).

        May read the engines; scrapes that come meanwhile wait for that read, not for this one's rendering.
        """
        wanted = choose_format(accept), gzip_wanted(accept_encoding)
        snapshot = self._replica.snapshot()
        with self._lock:
            if not snapshot.same_as(self._snapshot):
                self._snapshot = snapshot
                self._replica_texts.clear()
                self._pages.clear()
            now = self._clock()
            made_at, page = self._pages.get(wanted) or (now, None)
            if page is None or now - made_at >= self._own_max_age_s:
                page = self._make(snapshot, *wanted)
                self._pages[wanted] = now, page
            return page

    def _make(self, snapshot: Snapshot, form: Format, compress: bool) -> Page:
        text = self._replica_texts.get(form)
        if text is None:
            text = form.write(_Written(self._replica.families(snapshot))).removesuffix(form.end)
            self._replica_texts[form] = text
        body = text + form.write(self._own)
        if compress:
            return Page(gzip.compress(body, _GZIP_LEVEL, mtime=0), form.content_type, "gzip")
        return Page(body, form.content_type, "")


class _Written:
    """Families that are there already, as a collector."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        return self._families
