"""The bytes of /metrics: each collector's text is rendered once per snapshot and shared by its scrapes.

The web server asks for a `Page` at each scrape. Writing the text is what a scrape costs (a few milliseconds with
histograms, against microseconds to hand out bytes), and many scrapers may share one reading.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family

from infscale.metrics.negotiate import Format, choose_format, gzip_wanted

_GZIP_LEVEL = 6


@dataclass(frozen=True)
class Page:
    """One answer to a scrape; `content_encoding` is `gzip` or empty."""

    body: bytes
    content_type: str
    content_encoding: str


class Collector(Protocol):
    """Families in two steps: a snapshot, cheap to compare, and the families that it makes.

    A snapshot has `same_as(other)`, which says whether both make the same families; `other` is None at first.
    """

    def snapshot(self) -> Any:
        """What there is now; may block."""
        ...

    def families(self, snapshot: Any, /) -> list[Family]:
        """The families of one of its snapshots."""
        ...


class Renderer:
    """Pages of a replica, a workload, or both, and of the process itself, kept until they are out of date.

    Safe to use from many threads.

    Args:
        collector: first on the page; its families are written anew when its snapshot is another.
        own: the process's own families, last on the page.
        also: further collectors, in the order of the page; no metric is in two of them.
        own_max_age_s: for how long the text of `own` is shared, in seconds; 0: written at each scrape.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        collector: Collector,
        own: CollectorRegistry,
        *,
        also: Sequence[Collector] = (),
        own_max_age_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts, self._own = [_Part(each) for each in (collector, *also)], own
        self._own_max_age_s, self._clock = own_max_age_s, clock
        self._lock = threading.Lock()
        self._pages: dict[tuple[Format, bool], tuple[float, Page]] = {}

    def page(self, accept: str = "", accept_encoding: str = "") -> Page:
        """The page for the headers `Accept` and `Accept-Encoding` of a scrape (empty where there is none).

        May read the engines; scrapes that come meanwhile wait for that read, not for this one's rendering.
        """
        wanted = choose_format(accept), gzip_wanted(accept_encoding)
        snapshots = [part.collector.snapshot() for part in self._parts]
        with self._lock:
            for part, snapshot in zip(self._parts, snapshots, strict=True):
                if part.take(snapshot):
                    self._pages.clear()
            now = self._clock()
            made_at, page = self._pages.get(wanted) or (now, None)
            if page is None or now - made_at >= self._own_max_age_s:
                page = self._make(*wanted)
                self._pages[wanted] = now, page
            return page

    def _make(self, form: Format, compress: bool) -> Page:
        body = b"".join(part.text(form) for part in self._parts) + form.write(self._own)
        if compress:
            return Page(gzip.compress(body, _GZIP_LEVEL, mtime=0), form.content_type, "gzip")
        return Page(body, form.content_type, "")


class _Part:
    """One collector's part of the page: its last snapshot, and the text of it in the formats asked for."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._snapshot: Any = None
        self._texts: dict[Format, bytes] = {}

    def take(self, snapshot: Any) -> bool:
        """Take the present snapshot; whether it makes another text than the last."""
        if snapshot.same_as(self._snapshot):
            return False
        self._snapshot = snapshot
        self._texts.clear()
        return True

    def text(self, form: Format) -> bytes:
        """The families of the last snapshot, without the line that closes a page."""
        text = self._texts.get(form)
        if text is None:
            text = form.write(_Written(self.collector.families(self._snapshot))).removesuffix(form.end)
            self._texts[form] = text
        return text


class _Written:
    """Families that are there already, as a collector."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        """The families as they were given."""
        return self._families
