"""The collectors behind /metrics: the replica's values, built anew at each collect, and the process's own.

The sidecar makes one `ReplicaCollector` and one `own_registry`, and gives both to `render.Renderer`. Families are built
at collect and never set in a loop: two scrapes cannot race, and a model that is gone leaves no series behind (the
section "Collectors" of Prometheus' instrumenting/writing_exporters).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from infscale.metrics.catalogue import in_group
from infscale.metrics.contract import OWN, REPLICA
from infscale.metrics.families import Families
from infscale.metrics.replica import ReplicaView, merge
from infscale.reading import FAILURES, STATES
from infscale.watch import View

_HISTOGRAMS = {
    "time_to_first_token": "infscale_time_to_first_token_seconds",
    "inter_token_latency": "infscale_inter_token_latency_seconds",
    "request_queue": "infscale_request_queue_seconds",
}


@dataclass(frozen=True)
class Settings:
    """What the flags say about the page.

    Attributes:
        model_name: `--model-name`; empty: as the engine says.
        capacity: `--capacity`, slots of the replica; None: only what the engine tells.
        histograms: False with `--no-collector.histograms`.
    """

    model_name: str = ""
    capacity: float | None = None
    histograms: bool = True


@dataclass(frozen=True)
class Snapshot:
    """What one page is made of: the views of the engines, and how many reads failed, in the order of FAILURES."""

    views: tuple[View, ...]
    failures: tuple[float, ...]

    def same_as(self, other: Snapshot | None) -> bool:
        """Whether both make the same page: the very same views (a new read makes a new one), the same failures."""
        return (
            other is not None
            and self.failures == other.failures
            and len(self.views) == len(other.views)
            and all(mine is theirs for mine, theirs in zip(self.views, other.views, strict=True))
        )


class ReplicaCollector:
    """The per-replica half of the contract, from the present views of the replica's engines.

    Args:
        views: one View for each engine; may read the engines, and so block up to their deadline.
        failures: failed reads of all engines together, by reason; a reason that is not there counts 0.
        settings: what the flags say.
    """

    def __init__(
        self,
        views: Callable[[], Sequence[View]],
        failures: Callable[[], Mapping[str, float]],
        settings: Settings | None = None,
    ) -> None:
        self._views, self._failures = views, failures
        self._settings = settings or Settings()

    def snapshot(self) -> Snapshot:
        """The views and the failures of this instant; views first, so that their failures are counted in."""
        views = tuple(self._views())
        counted = self._failures()
        return Snapshot(views, tuple(counted.get(reason, 0) for reason in FAILURES))

    def families(self, snapshot: Snapshot) -> list[Family]:
        """The families of a snapshot, in the catalogue's order, without those that have no sample."""
        replica = merge(snapshot.views, model_name=self._settings.model_name, capacity=self._settings.capacity)
        families = Families(in_group(REPLICA))
        _add_values(families, replica)
        if self._settings.histograms:
            _add_histograms(families, replica)
        _add_read(families, replica)
        for reason, count in zip(FAILURES, snapshot.failures, strict=True):
            families.add("infscale_scrape_failures_total", count, reason)
        return families.built()

    def collect(self) -> list[Family]:
        """The families of this instant."""
        return self.families(self.snapshot())

    def describe(self) -> list[Family]:
        """Every family without samples, so that to register the collector reads no engine."""
        return Families(in_group(REPLICA)).empty()


def _add_values(families: Families, replica: ReplicaView) -> None:
    """What the engines' requests, cache and tokens are; nothing where the state publishes none."""
    for model in replica.models:
        families.add("infscale_inflight_requests", model.inflight, model.model)
        families.add("infscale_running_requests", model.running, model.model)
        families.add("infscale_waiting_requests", model.waiting, model.model)
        families.add("infscale_kv_cache_usage_ratio", model.kv, model.model)
        families.add("infscale_prompt_tokens_total", model.prompt_tokens, model.model)
        families.add("infscale_generation_tokens_total", model.generation_tokens, model.model)
        for outcome, count in model.finished:
            families.add("infscale_finished_requests_total", count, model.model, outcome)
        for outcome, count in model.rejected:
            families.add("infscale_rejected_requests_total", count, model.model, outcome)
    families.add("infscale_capacity_requests", replica.capacity)


def _add_histograms(families: Families, replica: ReplicaView) -> None:
    """The engines' own histograms with their own buckets."""
    for found in replica.histograms:
        histogram = found.histogram
        families.add_histogram(
            _HISTOGRAMS[histogram.kind], histogram.buckets, histogram.sum_s, found.engine, histogram.model
        )


def _add_read(families: Families, replica: ReplicaView) -> None:
    """How the last read went; there in every state."""
    families.add("infscale_up", float(replica.up))
    for state in STATES:
        families.add("infscale_engine_state", float(state == replica.state), state)
    for known in replica.identities:
        families.add("infscale_engine_info", 1.0, known.engine, known.version, known.model, known.role)
    families.add("infscale_reading_timestamp_seconds", replica.read_at_s)
    families.add("infscale_scrape_duration_seconds", replica.scrape_duration_s)
    families.add("infscale_process_cpu_ratio", replica.cpu_ratio)


class BuildInfo:
    """The version of infscale, as `infscale_build_info`."""

    def __init__(self, version: str) -> None:
        self._families = Families(in_group(OWN))
        self._families.add("infscale_build_info", 1.0, version)

    def collect(self) -> list[Family]:
        """The one family."""
        return self._families.built()

    def describe(self) -> list[Family]:
        """The family without its sample."""
        return self._families.empty()


class _Careful:
    """A collector of the client library that is silent where it cannot work, instead of failing the whole page.

    Without /proc (macOS) the process collector is silent by itself; where /proc is there but not as on Linux (a sandbox
    that says `unlimited` open files, or lists no limits at all) it raises.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def collect(self) -> Iterable[Family]:
        """What the collector gives, or nothing."""
        try:
            return list(self._collector.collect())
        except Exception:
            return []


def own_registry(version: str, *, proc: str = "/proc") -> CollectorRegistry:
    """A new registry with the process's own metrics; more of them may be registered on it.

    Also turns off the `_created` series of the client library, for the whole process.

    Args:
        version: of infscale.
        proc: the process file system; where there is none, `process_*` metrics are absent.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    registry.register(BuildInfo(version))
    registry.register(_Careful(ProcessCollector(proc=proc, registry=None)))
    registry.register(_Careful(PlatformCollector(registry=None)))
    GCCollector(registry=registry)
    return registry
