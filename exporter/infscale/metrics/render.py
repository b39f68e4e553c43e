"""The bytes of /metrics: each collector's text is rendered once per snapshot and shared by its scrapes.

The web server asks for a `Page` at each scrape. Writing the text is what a scrape costs (a few milliseconds with
histograms, against microseconds to hand out bytes), and many scrapers may share one reading.
"""

from __future__ import annotations

import gzip
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family

from infscale.metrics.negotiate import Format, choose_format

OWN_MAX_AGE_S = 1.0
"""The text of the process's own metrics is shared for so long."""

_GZIP_LEVEL = 1
"""A page of 22 kB: 0.06 ms of CPU and 3.1 kB; level 6 takes 0.2 ms for 2.8 kB."""


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
        own: the process's own families, last on the page; shared for OWN_MAX_AGE_S.
        also: further collectors, in the order of the page; no metric is in two of them.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        collector: Collector,
        own: CollectorRegistry,
        *,
        also: Sequence[Collector] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts, self._own, self._clock = [_Part(each) for each in (collector, *also)], own, clock
        self._lock = threading.Lock()
        self._own_texts: dict[Format, tuple[float, bytes]] = {}
        self._pages: dict[tuple[Format, bool], Page] = {}

    def page(self, accept: str = "", compress: bool = False) -> Page:
        """The page for the header `Accept` of a scrape (empty where there is none), with gzip where it takes that.

        May read the engines; scrapes that come meanwhile wait for that read, not for this one's rendering.
        """
        form = choose_format(accept)
        snapshots = [part.collector.snapshot() for part in self._parts]
        with self._lock:
            for part, snapshot in zip(self._parts, snapshots, strict=True):
                if part.take(snapshot):
                    self._pages.clear()
            own = self._own_text(form)
            page = self._pages.get((form, compress))
            if page is None:
                page = self._pages[form, compress] = self._make(form, own, compress)
            return page

    def _own_text(self, form: Format) -> bytes:
        """The process's own part, which closes the page; a new one makes new pages."""
        now_s = self._clock()
        made_at_s, text = self._own_texts.get(form, (-math.inf, b""))
        if now_s - made_at_s >= OWN_MAX_AGE_S:
            text = form.write(self._own)
            self._own_texts[form] = now_s, text
            self._pages.clear()
        return text

    def _make(self, form: Format, own: bytes, compress: bool) -> Page:
        body = b"".join(part.text(form) for part in self._parts) + own
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
