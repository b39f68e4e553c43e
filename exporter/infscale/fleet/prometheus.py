"""The source `prometheus:URL`: what Prometheus scraped from the sidecars, and the counts from kube-state-metrics.

One query for all replicas (`promql`). A replica is there while Prometheus has a target for it; its values count while
they are fresh, so that series that outlive a deleted Pod are no load and no capacity (llm-d-autoscaling#368).
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from infscale.core.replicas import Fleet, Phase, Replica
from infscale.errors import SourceError, UsageError
from infscale.fleet.from_readings import add_buckets, buckets_from
from infscale.fleet.members import MAX_MEMBERS, Members
from infscale.fleet.promql import AGE, COUNTS, COUNTS_AGE, SERVED, TOLD, Row, query, rows
from infscale.fleet.sighting import Sighting, silent
from infscale.fleet.source import FleetSettings, WorkloadName
from infscale.reading import LOADING, UNREACHABLE
from infscale.scrape import Page, Target, check_target, fetch, split_url

EXAMPLE = "prometheus:http://prometheus.monitoring.svc:9090"

FRESH_S = 60.0
"""Four scrapes at the usual 15 s. Prometheus itself goes on with a series for 5 minutes where nothing marks its end."""

MAX_BYTES = 64 * 2**20
"""Of the answer; 1,000 replicas with TTFT histograms have 6 MB."""


@dataclass(slots=True)
class _Target:
    """What the rows say of one replica; values by metric and model, so that two jobs count once."""

    age_s: float = math.inf
    served: bool = False
    state: str = ""
    values: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    ttft: dict[tuple[str, str], dict[float, float]] = field(default_factory=lambda: defaultdict(dict))


class Prometheus:
    """A workload as Prometheus knows it.

    Args:
        url: of the server, or of what speaks its HTTP API below that path.
        settings: workload, time, token and CA file, and whether TTFT is wanted.

    Raises:
        UsageError: the URL, one of the files or the workload cannot be used.
    """

    def __init__(self, url: str, settings: FleetSettings) -> None:
        split = split_url(url)
        if "?" in split.path:
            raise UsageError(f"fleet source prometheus: the URL of {split.place} has a query: expected as in {EXAMPLE}")
        self._place, self._settings = split.place, settings
        self._target = Target(
            f"{url.rstrip('/')}/api/v1/query?query={quote(query(settings.workload, ttft=settings.ttft), safe='')}",
            timeout_s=settings.timeout_s,
            max_bytes=MAX_BYTES,
            token_file=settings.token_file,
            ca_file=settings.ca_file,
            accept="application/json",
        )
        check_target(self._target)
        self._members = Members()

    @property
    def workload(self) -> WorkloadName:
        """See `Source`."""
        return self._settings.workload

    def observe(self, now_s: float) -> Fleet:
        """See `Source`."""
        try:
            found = self._read()
            counts = _counts(found)
            targets = _targets(found)
            if not targets and not counts:
                raise SourceError(f"no series with {self._labels()}: does it scrape the sidecars, with these labels?")
            sightings = [_sighting(name, target) for name, target in targets.items() if _listed(target)]
            # The smaller of both: a rollout has more than are asked for, a scale-down not yet fewer.
            expected = min((counts[kind] for kind in ("spec", "status") if kind in counts), default=None)
            replicas = self._members.take(sightings, now_s, expected=expected)
        except SourceError as error:
            failure = f"Prometheus at {self._place}: {error}"
            return Fleet(now_s, self._settings.spec_replicas, replicas=self._members.missed(), failure=failure)
        return Fleet(
            now_s,
            counts.get("spec", self._settings.spec_replicas),
            status_replicas=counts.get("status"),
            ready_replicas=counts.get("ready"),
            replicas=_with_holes(replicas, counts),
        )

    def names(self) -> tuple[str, ...]:
        """See `Source`."""
        return ()

    def close(self) -> None:
        """See `Source`."""

    def _labels(self) -> str:
        workload = self._settings.workload
        return f'namespace="{workload.namespace}", workload="{workload.name}"'

    def _read(self) -> list[Row]:
        answer = fetch(self._target)
        if not isinstance(answer, Page):
            raise SourceError(answer.message)
        if answer.status != 200 and not answer.content_type.startswith("application/json"):
            raise SourceError(f"HTTP {answer.status}: expected 200 and the answer to a query")
        return list(rows(answer.body))


def _counts(found: Iterable[Row]) -> dict[str, int]:
    """`spec`, `status` and `ready` where kube-state-metrics tells them, and told them just now."""
    stale = {kind for row in found if row.labels.get(TOLD) == COUNTS_AGE and row.value > FRESH_S for kind in row.labels}
    return {
        COUNTS[row.name]: int(row.value)
        for row in found
        if row.name in COUNTS and not stale & (row.labels.keys() - {TOLD, "__name__"})
    }


def _targets(found: Iterable[Row]) -> dict[str, _Target]:
    targets: dict[str, _Target] = defaultdict(_Target)
    for row in found:
        if not row.replica or row.name in COUNTS:
            continue
        target, told = targets[row.replica], row.labels.get(TOLD)
        if told == AGE:
            target.age_s = min(target.age_s, row.value)
        elif told == SERVED:
            target.served = target.served or row.value > 0
        elif row.name == "infscale_engine_state":
            target.state = row.labels.get("state", "")
        elif row.name == "infscale_time_to_first_token_seconds_bucket":
            with contextlib.suppress(ValueError):  # a bound that is no number: another's series of that name
                le = float(row.labels.get("le", ""))
                buckets = target.ttft[row.labels.get("model_name", ""), row.labels.get("engine", "")]
                buckets[le] = max(buckets.get(le, 0.0), row.value)
        else:
            values, model = target.values[row.name], row.labels.get("model_name", "")
            values[model] = max(values.get(model, 0.0), row.value)
    return targets


def _listed(target: _Target) -> bool:
    """Whether Prometheus has a target for it now."""
    return target.age_s <= FRESH_S


def _sighting(name: str, target: _Target) -> Sighting:
    def total(metric: str) -> float | None:
        """The sum of a metric over its models; None where there is no series of it."""
        found = target.values.get(f"infscale_{metric}")
        return sum(found.values()) if found else None

    inflight, leaving = total("inflight_requests"), bool(total("draining"))
    if inflight is None:
        if not leaving:
            state = target.state or UNREACHABLE
            why = f"its state is {state}" if target.state else "Prometheus cannot scrape its sidecar"
            return silent(name, why, state=state, served_before=target.served)
        return Sighting(Replica(name, Phase.DRAINING, state=target.state or LOADING), "", target.served)
    ttft: dict[tuple[float, ...], list[float]] = {}
    for histogram in target.ttft.values():
        add_buckets(ttft, sorted(histogram.items()))
    replica = Replica(
        name,
        Phase.DRAINING if leaving else Phase.SERVING,
        running=total("running_requests"),
        waiting=total("waiting_requests"),
        inflight=inflight,
        kv=max(target.values["infscale_kv_cache_usage_ratio"].values(), default=None),
        cpu_ratio=total("process_cpu_ratio"),
        prompt_tokens=total("prompt_tokens_total"),
        generation_tokens=total("generation_tokens_total"),
        ttft=buckets_from(ttft),
        state=target.state,
    )
    return Sighting(replica, "", target.served)


def _with_holes(replicas: tuple[Replica, ...], counts: dict[str, int]) -> tuple[Replica, ...]:
    """The replicas, as many of them silent as kube-state-metrics has ready ones of which Prometheus knows nothing.

    Those are targets whose sidecar it never could scrape, which look like starting ones, and Pods without a target.
    """
    ready = min(counts.get("ready", 0), counts.get("spec", 0))
    phases = Counter(replica.phase for replica in replicas)
    never_scraped = [one.name for one in replicas if one.phase is Phase.STARTING and one.state == UNREACHABLE]
    holes = set(never_scraped[: max(0, ready - phases[Phase.SERVING] - phases[Phase.SILENT])])
    unseen = min(ready - (len(replicas) - phases[Phase.DRAINING]), MAX_MEMBERS)
    return (
        *(replace(one, phase=Phase.SILENT) if one.name in holes else one for one in replicas),
        *(Replica(f"unseen-{number}", Phase.SILENT, state=UNREACHABLE) for number in range(1, unseen + 1)),
    )
