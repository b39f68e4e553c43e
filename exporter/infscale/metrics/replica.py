"""Several engines in one Pod as one replica: what the sidecar publishes, shows and answers. Pure.

`collectors` makes the page from it, the JSON routes and the landing page show it. With one engine it is that engine's
View; with several (multi-port data parallel, `--engine-url` repeated) their values add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from infscale import reading as states
from infscale.reading import Histogram, ModelReading, Reading
from infscale.watch import View

WORST_FIRST = (
    states.UNREACHABLE, states.LOADING, states.MISCONFIGURED, states.NOT_AN_ENGINE, states.STATS_DISABLED,
    states.SATURATED, states.STALE,
)  # fmt: skip
"""Of several engines the first of these that one is in is the replica's state: first what leaves it without values."""

_LIVE = (states.OK, states.FRESH, states.ASLEEP, states.STALE)


@dataclass(frozen=True)
class Identity:
    """One engine as `infscale_engine_info` names it; empty strings where it is not told."""

    engine: str
    version: str
    model: str
    role: str


@dataclass(frozen=True)
class EngineHistogram:
    """A histogram and the name of the engine whose bucket layout it has."""

    engine: str
    histogram: Histogram


@dataclass(frozen=True)
class ReplicaView:
    """What one replica shows at an instant.

    Attributes:
        state: one of `infscale.reading.STATES`.
        message: why, in one line; empty in `ok`.
        models: the values of each model; empty where the state publishes none.
        capacity: slots of all engines; None when one of them is unknown, and without values.
        histograms: at most one of a kind for each engine name and model.
        read_at_s: the oldest read among the values shown, Unix seconds; None without values.
        identities: the engines as last known, each once; empty before the first good read.
        scrape_duration_s: the longest last read, in seconds; None before the first.
        cpu_ratio: CPU of all engines over the Pod's request; None when one of them is unknown.
        warnings: sentences for a person.
    """

    state: str
    message: str = ""
    models: tuple[ModelReading, ...] = ()
    capacity: float | None = None
    histograms: tuple[EngineHistogram, ...] = ()
    read_at_s: float | None = None
    identities: tuple[Identity, ...] = ()
    scrape_duration_s: float | None = None
    cpu_ratio: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def up(self) -> bool:
        """Whether the last read gave the metrics of every engine."""
        return self.state in _LIVE

    @property
    def inflight(self) -> float | None:
        """Requests in flight over all models; None without values, which is not 0."""
        return sum(model.inflight for model in self.models) if self.models else None


def merge(views: Sequence[View], *, model_name: str = "", capacity: float | None = None) -> ReplicaView:
    """One replica out of the views of its engines.

    If one engine has no values the replica publishes none: a partial sum would be a wrong low number.

    Args:
        views: one for each engine, at least one.
        model_name: takes the place of every model's name, and so adds the models up; empty: as the engines say.
        capacity: slots of the whole replica, for when its engines do not tell.
    """
    state, message = _state(views)
    readings = [view.reading for view in views if view.reading is not None]
    known = [last for view in views if (last := view.known or view.reading) is not None]
    durations = [view.scrape_duration_s for view in views if view.scrape_duration_s is not None]
    replica = ReplicaView(
        state=state,
        message=message,
        identities=_identities(known, model_name),
        scrape_duration_s=max(durations, default=None),
        cpu_ratio=_sum(view.cpu_ratio for view in views),
    )
    if len(readings) < len(views):
        return replica
    histograms, warnings = _histograms(readings, model_name)
    told = _sum(reading.capacity for reading in readings)
    return replace(
        replica,
        models=_models(readings, model_name),
        capacity=capacity if told is None else told,
        histograms=histograms,
        read_at_s=min((view.read_at_s for view in views if view.read_at_s is not None), default=None),
        warnings=tuple(dict.fromkeys([text for reading in readings for text in reading.warnings] + warnings)),
    )


def _state(views: Sequence[View]) -> tuple[str, str]:
    """The worst state and its message; of engines without a fault `fresh` or `asleep` only if all of them are."""

    def rank(index: int) -> tuple[int, bool]:
        """The worst state first; of equals the one without a reading."""
        view = views[index]
        place = WORST_FIRST.index(view.state) if view.state in WORST_FIRST else len(WORST_FIRST)
        return place, view.reading is not None

    worst = min(range(len(views)), key=rank)
    state, message = views[worst].state, views[worst].message
    if state not in WORST_FIRST and len({view.state for view in views}) > 1:
        return states.OK, ""
    return state, f"engine {worst + 1} of {len(views)}: {message}" if message and len(views) > 1 else message


def _identities(known: Iterable[Reading], model_name: str) -> tuple[Identity, ...]:
    """Each engine and model as last known, once. No engine's page tells its version."""
    return tuple(
        dict.fromkeys(
            Identity(reading.engine, "", model_name or model.model, reading.role)
            for reading in known
            for model in reading.models
        )
    )


def _models(readings: Iterable[Reading], model_name: str) -> tuple[ModelReading, ...]:
    """The models of all engines; those of one name as one."""
    by_name: dict[str, list[ModelReading]] = {}
    for reading in readings:
        for model in reading.models:
            by_name.setdefault(model_name or model.model, []).append(model)
    return tuple(
        ModelReading(
            model=name,
            running=_sum(part.running for part in parts),
            waiting=_sum(part.waiting for part in parts),
            inflight=sum(part.inflight for part in parts),
            kv=max((part.kv for part in parts if part.kv is not None), default=None),
            prompt_tokens=_sum(part.prompt_tokens for part in parts),
            generation_tokens=_sum(part.generation_tokens for part in parts),
            finished=_sum_by_outcome(part.finished for part in parts),
            rejected=_sum_by_outcome(part.rejected for part in parts),
        )
        for name, parts in by_name.items()
    )


def _histograms(readings: Iterable[Reading], model_name: str) -> tuple[tuple[EngineHistogram, ...], list[str]]:
    """Histograms of one kind, engine name, model and bucket layout added up; other layouts are never merged.

    Two layouts under one set of labels (engines of two versions in one Pod) would be one broken histogram to
    Prometheus: the first is kept, and a warning says so.
    """
    merged: dict[tuple[str, str, str], Histogram] = {}
    warnings = []
    for reading in readings:
        for found in reading.histograms:
            model = model_name or found.model
            key = (reading.engine, model, found.kind)
            first = merged.get(key)
            if first is None:
                merged[key] = replace(found, model=model)
            elif [le for le, _ in first.buckets] == [le for le, _ in found.buckets]:
                counts = zip(first.buckets, found.buckets, strict=True)
                buckets = tuple((le, one + other) for (le, one), (_, other) in counts)
                merged[key] = replace(first, buckets=buckets, sum_s=first.sum_s + found.sum_s)
            else:
                warnings.append(
                    f"{found.kind} of {reading.engine}, model {model!r}, comes with two bucket layouts:"
                    " only the first is published; run one engine version in a Pod"
                )
    return tuple(EngineHistogram(engine, histogram) for (engine, _, _), histogram in merged.items()), warnings


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum, or None if a part of it is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _sum_by_outcome(parts: Iterable[tuple[tuple[str, float], ...]]) -> tuple[tuple[str, float], ...]:
    """Counts added up by outcome; one that an engine does not list has not happened there."""
    totals: dict[str, float] = {}
    for part in parts:
        for outcome, count in part:
            totals[outcome] = totals.get(outcome, 0.0) + count
    return tuple(totals.items())
