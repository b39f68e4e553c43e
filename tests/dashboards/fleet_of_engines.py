"""Replicas for the scenario: stand-in engines on a driven clock, seen through the sidecar's own code.

The engine is the batch and the page of `infscale sim-engine`; its page is read by `outcome`, remembered by `Watch` and
published by the sidecar's collectors. Only sockets are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from infscale import __version__
from infscale.core.replicas import Phase
from infscale.engines import PROFILES
from infscale.fleet.from_readings import replica_of_view
from infscale.fleet.sighting import Sighting
from infscale.metrics.collectors import BuildInfo, ReplicaCollector, Settings
from infscale.metrics.drains import DrainCollector, DrainCounters
from infscale.outcome import outcome
from infscale.reading import FAILURES, ReadFailure
from infscale.scrape import Page, ScrapeFailure
from infscale.watch import View, Watch
from infscale_sim.engine_batch import Sequence
from infscale_sim.engine_dialect import Dialect, State
from infscale_sim.engine_fixed import FixedBatch
from infscale_sim.engine_stats import Stats

SLOTS = 12
KV_TOKENS = 12_000
FIRST_TOKEN_S, INTER_TOKEN_S = 0.4, 0.05
GRACE_S = 120.0
DEADLINE_S = GRACE_S - 5
SETTLED_S = 6.0
"""A drain of an idle engine."""

_SOURCE = "http://127.0.0.1:8000/metrics"


def nothing() -> None:
    """What a sequence wakes: nobody waits for its tokens."""


class Replica:
    """One engine and its sidecar.

    Args:
        name: of the Pod.
        model: that the engine serves.
        dialect: whose page it has.
        created_s: Unix seconds.
        serves_s: when its cold start ends.
        generation: of the Pod template.

    Attributes:
        draining_since_s: when its Pod began to terminate; None before.
        ended: its engine has ended after its drain.
        times_out_until_s, hangs_until_s, down_until_s: faults: its page is not answered; nothing moves; no process.
        view: what the sidecar shows, as of the last read.
    """

    def __init__(
        self, name: str, model: str, dialect: Dialect, created_s: float, serves_s: float, generation: int
    ) -> None:
        self.name, self.model, self.dialect = name, model, dialect
        self.created_s, self.serves_s, self.generation = created_s, serves_s, generation
        self.draining_since_s: float | None = None
        self.ended = False
        self.times_out_until_s = self.hangs_until_s = self.down_until_s = 0.0
        self._started_s = serves_s
        self._batch, self._cpu_s = self._new_batch(), 0.0
        self._watch = Watch(cpu_request=8.0)
        self._failures = dict.fromkeys(FAILURES, 0.0)
        self._drains = DrainCounters()
        self.view = View("loading", None, None)
        self._collectors = (
            ReplicaCollector(lambda: [self.view], lambda: self._failures, Settings(capacity=SLOTS)),
            DrainCollector(lambda: self.draining, self._drains),
            BuildInfo(__version__),
        )

    @property
    def draining(self) -> bool:
        """Whether it leaves."""
        return self.draining_since_s is not None

    @property
    def inflight(self) -> int:
        """Requests in the engine."""
        return len(self._batch.waiting) + len(self._batch.running)

    def serving(self, now_s: float) -> bool:
        """Whether a router sends it requests: it is ready, stays, and answers."""
        return self.serves_s <= now_s and not self.draining and now_s >= max(self.down_until_s, self.hangs_until_s)

    def submit(self, prompt_tokens: int, output_tokens: int, now_s: float) -> None:
        """A request arrives."""
        sequence = Sequence(prompt_tokens, output_tokens, nothing, streaming=True, reason="stop")
        self._batch.submit(sequence, now_s - self._started_s)

    def advance(self, now_s: float) -> None:
        """Let the engine work until now, unless it hangs or is not there."""
        if self.serves_s <= now_s and now_s >= max(self.down_until_s, self.hangs_until_s):
            self._batch.advance(now_s - self._started_s)

    def crash(self, now_s: float, until_s: float) -> None:
        """The engine's process ends with all that it had, and another one comes later."""
        self.down_until_s = self._started_s = until_s
        self._batch = self._new_batch()

    def read(self, now_s: float) -> None:
        """The sidecar reads its engine."""
        found = outcome(self._answer(now_s), profile=PROFILES[self.dialect.name], source=_SOURCE, histograms=True)
        if isinstance(found, ReadFailure):
            self._failures[found.reason] += 1
        duration_s = 2.0 if now_s < self.times_out_until_s else 0.004 + self.inflight / 2000
        self.view = self._watch.step(found, now_s, duration_s=duration_s)

    def drain(self, now_s: float) -> None:
        """One look of a drain that goes on: it ends when the engine is idle, or at its deadline."""
        if self.draining_since_s is None or self.ended:
            return
        seconds = now_s - self.draining_since_s
        if not self.inflight:
            self._drains.ended("fresh" if now_s < self.serves_s else "idle", max(SETTLED_S, seconds))
            self.ended = True
        elif seconds >= DEADLINE_S:
            self._drains.ended("deadline", DEADLINE_S)
            self._drains.cut("deadline", self.inflight)
            self.ended = True

    def sighting(self) -> Sighting:
        """The replica as a fleet source sees it."""
        seen = replace(replica_of_view(self.name, self.view), created_s=self.created_s)
        if self.draining:
            seen = replace(seen, phase=Phase.DRAINING)
        return Sighting(seen)

    def samples(self) -> Iterator[Any]:
        """Every sample of the sidecar's page."""
        for collector in self._collectors:
            for family in collector.collect():
                yield from family.samples

    def _new_batch(self) -> FixedBatch:
        return FixedBatch(SLOTS, KV_TOKENS, FIRST_TOKEN_S, INTER_TOKEN_S, Stats(self.dialect.bounds, 1.0))

    def _answer(self, now_s: float) -> Page | ScrapeFailure:
        if now_s < max(self.serves_s, self.down_until_s):
            return ScrapeFailure("refused", f"{_SOURCE}: nothing listens", False, 0.001)
        if now_s < self.times_out_until_s:
            return ScrapeFailure("timeout", f"{_SOURCE}: no answer in 2 s", True, 2.0)
        page = self.dialect.new_page()
        if now_s >= self.hangs_until_s:
            self._cpu_s = 3 * self._batch.busy(now_s - self._started_s)[0]
        self.dialect.write(page, State(self.model, self._batch, self._cpu_s, self._started_s))
        return Page(200, self.dialect.content_type, page.text().encode(), 0.004)
