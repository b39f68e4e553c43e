"""The Pods of a workload, each read through the API server's proxy: what `infscale kube` looks at.

A person's machine reaches the API server and no Pod, so every page goes through `pods/proxy`. Where a Pod is read:
`--port` and `--path` (an engine's page); else the `prometheus.io/` annotations, else the port that is named `infscale`
(the sidecar, which is asked for its reading). What the API server itself refuses is an error and ends the look; a Pod
that does not answer is silent, as for every other source.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from infscale.core.memory import Read
from infscale.core.replicas import Fleet, Phase, Replica
from infscale.engines.profile import Profile
from infscale.errors import SourceError
from infscale.fleet.from_readings import replica_of_view
from infscale.fleet.kubernetes import ready_once
from infscale.fleet.members import Members
from infscale.fleet.peer import MAX_BYTES, READING_PATH, sighting_of
from infscale.fleet.sighting import Sighting, silent
from infscale.kube.cluster import Cluster
from infscale.kube.errors import BrokenAnswer, NotFound, PodUnreachable, TimedOut
from infscale.kube.objects import Pod, Workload
from infscale.kube.podcalls import PATH
from infscale.outcome import outcome
from infscale.reading import LOADING, UNREACHABLE, Reading
from infscale.reads import Rates, rates, read_of
from infscale.scrape import Page, ScrapeFailure
from infscale.watch import Watch

SIDECAR = "infscale"
"""The name of the sidecar's port."""

_PAGE_BYTES = 8 * 2**20
_THREADS = 16
"""Reads at the same time: each is a connection, or a share of one kubectl, and of a page of up to 8 MiB."""

_LOOK_S = 30.0
"""For all reads of one look together; a Pod whose turn does not come in it is silent."""


@dataclass(frozen=True)
class PageSettings:
    """How Pods are read.

    Attributes:
        port: number or name; None: where each Pod says.
        path, scheme: of the page, or None likewise.
        timeout_s: for one page.
        profile: the engine, where it is told.
        profiles: those to look for otherwise.
        histograms: whether the engines' histograms are read too.
        cpu_request: CPU cores that a Pod requests; None when not told.
    """

    port: str | None = None
    path: str | None = None
    scheme: str | None = None
    timeout_s: float = 5.0
    profile: Profile | None = None
    profiles: tuple[Profile, ...] = ()
    histograms: bool = False
    cpu_request: float | None = None


@dataclass(frozen=True)
class PodSeen:
    """One Pod of a look.

    Attributes:
        pod: as the API has it.
        replica: what it is to a decision.
        engine: its engine's name; empty where it is not known.
        rates: what moved since the read before.
        read: its counters now; None where they were not read.
        error: why it gives no value, in one line; empty where it does, or is still starting without an address.
    """

    pod: Pod
    replica: Replica
    engine: str
    rates: Rates
    read: Read | None
    error: str


@dataclass(frozen=True)
class Look:
    """The workload and its Pods at an instant."""

    workload: Workload
    pods: tuple[PodSeen, ...]
    fleet: Fleet

    @property
    def ready_with_metrics(self) -> int:
        """Pods that are ready and gave a value."""
        return sum(seen.pod.ready == "True" and seen.replica.phase is Phase.SERVING for seen in self.pods)


class PodPages:
    """The Pods of one workload. Not thread-safe: one look at a time.

    Args:
        cluster: the API.
        kind, namespace, name: the workload.
        settings: how its Pods are read.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        namespace: str,
        name: str,
        settings: PageSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._kind, self._namespace, self._name = cluster, kind, namespace, name
        self._settings, self._clock = settings, clock
        self._members = Members(lost_s=0.0)
        self._watches: dict[str, Watch] = {}

    def look(self, now_s: float, reads: Mapping[str, Read]) -> Look:
        """The workload, its Pods and what each has in flight.

        Args:
            now_s: Unix seconds.
            reads: the Pods' counters as read before, by name.

        Raises:
            SourceError: the API refuses or cannot be reached, or no Pod says where it is read.
        """
        workload = self._cluster.workload(self._kind, self._namespace, self._name)
        pods = [p for p in self._cluster.pods(self._namespace, workload.selector) if not p.ended]
        places = {pod.name: place_of(pod, self._settings) for pod in pods}
        if places and all(isinstance(place, str) for place in places.values()):
            raise SourceError(f"{workload}: {next(iter(places.values()))}")
        self._watches = {pod.uid: self._watches.get(pod.uid, Watch()) for pod in pods}
        deadline = self._clock() + _LOOK_S
        with ThreadPoolExecutor(_THREADS, "pod") as pool:
            found = list(pool.map(lambda pod: self._see(pod, places[pod.name], now_s, reads, deadline), pods))
        replicas = self._members.take([sighting for _, sighting in found], now_s)
        by_name = {replica.name: replica for replica in replicas}
        fleet = Fleet(
            now_s,
            workload.spec_replicas,
            status_replicas=workload.status_replicas,
            ready_replicas=workload.ready_replicas,
            replicas=replicas,
        )
        seen = tuple(replace(one, replica=by_name[one.pod.name]) for one, _ in found)
        return Look(workload, seen, fleet)

    def _see(
        self, pod: Pod, place: Place | str, now_s: float, reads: Mapping[str, Read], deadline: float
    ) -> tuple[PodSeen, Sighting]:
        engine, read = "", None
        if not pod.ip:
            sighting = Sighting(Replica(pod.name, Phase.STARTING, state="loading"))
        elif isinstance(place, str):
            sighting = silent(pod.name, place)
        else:
            answer = self._fetch(pod, place, min(self._settings.timeout_s, deadline - self._clock()))
            sighting, engine, read = self._understand(pod, place, answer, now_s)
        moved = Rates() if read is None else rates(reads.get(pod.name), read, self._settings.cpu_request)
        replica = replace(
            sighting.replica,
            phase=Phase.DRAINING if pod.deleting else sighting.replica.phase,
            created_s=pod.creation_s or None,
            cpu_ratio=sighting.replica.cpu_ratio if moved.cpu_ratio is None else moved.cpu_ratio,
        )
        sighting = Sighting(replica, sighting.message, sighting.served_before or ready_once(pod))
        error = sighting.message if replica.inflight is None else ""
        return PodSeen(pod, replica, engine, replace(moved, cpu_ratio=replica.cpu_ratio), read, error), sighting

    def _fetch(self, pod: Pod, place: Place, timeout_s: float) -> Page | ScrapeFailure:
        """The answer of a Pod, or why there is none; only what the API server itself refuses is an error."""
        began_s = self._clock()

        def failed(kind: str, error: Exception) -> ScrapeFailure:
            """The failure, with how long it took."""
            return ScrapeFailure(kind, str(error), False, self._clock() - began_s)

        if timeout_s <= 0:
            return failed("timeout", SourceError(f"its turn did not come within {_LOOK_S:g} s: too many others hang"))
        try:
            answer = self._cluster.pod_proxy(
                pod.namespace,
                pod.name,
                place.port,
                place.path,
                scheme=place.scheme,
                timeout_s=timeout_s,
                max_bytes=MAX_BYTES if place.sidecar else _PAGE_BYTES,
            )
        except PodUnreachable as error:
            return failed("refused" if "refused" in str(error) else "reset", error)
        except TimedOut as error:
            return failed("timeout", error)
        except BrokenAnswer as error:
            return failed("too_large", error)
        except NotFound as error:  # gone since it was listed
            return failed("reset", error)
        return Page(answer.status, "", answer.body, self._clock() - began_s)

    def _understand(
        self, pod: Pod, place: Place, answer: Page | ScrapeFailure, now_s: float
    ) -> tuple[Sighting, str, Read | None]:
        """A Pod's sighting, its engine's name and its counters."""
        if place.sidecar:
            sighting = sighting_of(pod.name, answer)
            replica = sighting.replica
            sighting = replace(sighting, message=sighting.message.replace("--fleet.engine-port", "--port"))
            counters = Read(now_s, None, replica.prompt_tokens, replica.generation_tokens)
            return sighting, _engine_of(answer), None if replica.inflight is None else counters
        result = outcome(
            answer,
            profile=self._settings.profile,
            profiles=self._settings.profiles,
            source=f"pod {pod.namespace}/{pod.name}",
            histograms=self._settings.histograms,
        )
        view = self._watches[pod.uid].step(result, now_s, duration_s=answer.duration_s)
        replica = replica_of_view(pod.name, view)
        if isinstance(answer, ScrapeFailure) and replica.state == LOADING and ready_once(pod):
            replica = replace(replica, state=UNREACHABLE)  # it refuses, but is not one that has yet to begin
        read = read_of(result, now_s) if isinstance(result, Reading) else None
        return Sighting(replica, view.message, view.known is not None), result.engine, read


@dataclass(frozen=True)
class Place:
    """Where a Pod is read: `sidecar` for the JSON reading of infscale's sidecar, else an engine's metrics page."""

    port: int
    path: str
    scheme: str
    sidecar: bool


def place_of(pod: Pod, settings: PageSettings) -> Place | str:
    """Where a Pod is read, or why that is not known, in one line.

    The path of the annotations is that of a page for Prometheus; the sidecar is asked for its reading instead.
    """
    notes = pod.annotations
    told = settings.port or notes.get("prometheus.io/port") or SIDECAR
    port = int(told) if told.isascii() and told.isdigit() and len(told) < 6 else pod.port(told)
    if port is None or not 0 < port < 65536:
        return _no_port(pod, told)
    path = settings.path or notes.get("prometheus.io/path") or "/metrics"
    scheme = settings.scheme or notes.get("prometheus.io/scheme") or "http"
    if scheme not in ("http", "https"):
        return _illegal(pod, "scheme", scheme, "http or https")
    if not PATH.fullmatch(path):
        return _illegal(pod, "path", path, "a path without blanks")
    sidecar = settings.port is None and port == pod.port(SIDECAR)
    return Place(port, READING_PATH if sidecar else path, scheme, sidecar or path == READING_PATH)


def _illegal(pod: Pod, name: str, value: str, expected: str) -> str:
    return f"annotation prometheus.io/{name} of pod {pod.namespace}/{pod.name}: {value!r:.40}: expected {expected}"


def _no_port(pod: Pod, told: str) -> str:
    named = [found.name for container in pod.containers for found in container.ports if found.name]
    where = f"pod {pod.namespace}/{pod.name}: no port is named {told[:40]!r} (named are: {', '.join(named) or 'none'})"
    if told == SIDECAR:
        return (
            f"no sidecar in the Pods ({where}): add infscale's sidecar, or read the engines themselves with"
            " --port 8000 --path /metrics"
        )
    return f"{where}: give a number from 1 to 65535, or a name that the Pods have"


def _engine_of(answer: Page | ScrapeFailure) -> str:
    """The engine that a sidecar reads, as its reading names it."""
    try:
        told = json.loads(answer.body) if isinstance(answer, Page) else {}
        engine = told["engines"][0]["engine"]
    except (ValueError, RecursionError, KeyError, IndexError, TypeError):
        return ""
    return engine[:40] if isinstance(engine, str) else ""
