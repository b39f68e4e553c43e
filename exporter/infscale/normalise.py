"""A page becomes a Reading: find the engine, take its gauges, combine their label sets, judge what is missing.

Called by `infscale.outcome` (HTTP answers), the parse command and the drain. Pure: text in, a value out.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Iterable, List, Optional, Tuple, Union

from infscale.absence import judge_absence
from infscale.combine import Counter, Samples, counter_by, gauge_by_model, largest, series_of
from infscale.engines import PROFILES
from infscale.engines.profile import HISTOGRAM_KINDS, Metric, Profile
from infscale.exposition import Sample, Selection, Selector
from infscale.reading import (
    ASLEEP,
    COUNT_LIMIT,
    MISCONFIGURED,
    NOT_AN_ENGINE,
    OK,
    UNREACHABLE,
    Histogram,
    ModelReading,
    ReadFailure,
    Reading,
)


def read_page(
    text: str,
    *,
    profile: Optional[Profile] = None,
    profiles: Iterable[Profile] = tuple(PROFILES.values()),
    source: str = "<page>",
    histograms: bool = False,
) -> Union[Reading, ReadFailure]:
    """What the page `text` says, read with `profile`, or with the first of `profiles` whose gauges it has.

    Args:
        text: a metrics page in the Prometheus text format or OpenMetrics.
        profile: the engine, where it is told; else it is found from the page alone.
        profiles: the engines to look for.
        source: names the page in messages.
        histograms: whether the engine's histograms are read too.
    """
    for candidate in (profile,) if profile else profiles:
        if candidate.prefix not in text:
            continue
        selection = selector(candidate, histograms).select(text, source)
        if any(name in selection.samples or name in selection.broken for name in gauge_names(candidate)):
            return _reading(selection, candidate)
    return judge_absence(text, profile, tuple(profiles), source)


def gauge_names(profile: Profile) -> Tuple[str, ...]:
    """Every spelling of the gauges that tell an engine: running, waiting, total."""
    return tuple(name for m in (profile.running, profile.waiting, profile.total) if m for name in m.names)


def counted(profile: Profile) -> Tuple[Metric, ...]:
    """The metrics that add up to the requests in flight: the one gauge list of an engine."""
    metrics = (profile.running, profile.waiting, profile.total, *profile.queues, profile.front)
    return tuple(metric for metric in metrics if metric)


@lru_cache(maxsize=64)
def selector(profile: Profile, histograms: bool) -> Selector:
    """What to look for on a page of this engine."""
    wanted: List[Optional[Metric]] = [*counted(profile), *profile.progress, profile.kv, *(profile.kv_parts or ())]
    wanted += [profile.prompt_tokens, profile.generation_tokens, profile.finished, profile.rejected, profile.capacity]
    wanted += [profile.sleep[0]] if profile.sleep else []
    names = [name for metric in wanted if metric for name in metric.names]
    if histograms:
        names += [name + part for m in profile.histograms for name in m.names for part in ("_bucket", "_sum")]
    return Selector(names, prefix=profile.prefix, plain=(profile.cpu, profile.start_time))


def _reading(selection: Selection, profile: Profile) -> Union[Reading, ReadFailure]:
    samples = selection.samples
    failure = _broken(selection, profile) or _router(samples, profile) or _missing(samples, profile)
    if failure:
        return failure
    main = series_of(samples, profile.running or profile.total, profile)
    counters = _Counters(samples, profile)
    return Reading(
        engine=profile.name,
        state=ASLEEP if _asleep(samples, profile) else OK,
        models=_models(samples, profile, counters),
        role=_role(main, profile),
        capacity=_sum(gauge_by_model(_all_counts(samples, profile.capacity, profile), profile)),
        counters=counters.evidence(),
        live=bool(counters.progress),
        start_time_s=_plain(samples, profile.start_time),
        cpu_s=_plain(samples, profile.cpu),
        histograms=tuple(_histograms(samples, profile)),
        warnings=_warnings(selection, profile),
    )


class _Counters:
    """The counters of one page, each combined once."""

    def __init__(self, samples: Samples, profile: Profile) -> None:
        self._profile = profile
        self.prompt = counter_by(series_of(samples, profile.prompt_tokens, profile), profile)
        self.generated = counter_by(series_of(samples, profile.generation_tokens, profile), profile)
        self.finished = counter_by(series_of(samples, profile.finished, profile), profile, profile.outcome_labels)
        self.rejected = counter_by(series_of(samples, profile.rejected, profile), profile, profile.outcome_labels)
        self.progress = {
            metric.names[0]: sum(counter_by(series, profile).values())
            for metric, series in ((metric, series_of(samples, metric, profile)) for metric in profile.progress)
            if series
        }

    def evidence(self) -> Tuple[Tuple[str, float], ...]:
        """Every counter that moves when a request comes or goes, by its name."""
        profile, found = self._profile, dict(self.progress)
        for metric, counter in (
            (profile.finished, self.finished),
            (profile.prompt_tokens, self.prompt),
            (profile.generation_tokens, self.generated),
        ):
            if metric and counter:
                found[metric.names[0]] = sum(counter.values())
        return tuple(found.items())


def _broken(selection: Selection, profile: Profile) -> Optional[ReadFailure]:
    """A counted line that breaks the format is not a measurement."""
    for metric in counted(profile):
        for name in metric.names:
            if name in selection.broken:
                return ReadFailure(UNREACHABLE, "unusable", str(selection.broken[name]), profile.name)
            for sample in selection.samples.get(name, ()):
                if not 0 <= sample.value < COUNT_LIMIT:
                    message = (
                        f"{sample.name} is {sample.value}: expected a number of requests, 0 or more and below 2^53"
                    )
                    return ReadFailure(UNREACHABLE, "unusable", message, profile.name)
    return None


def _router(samples: Samples, profile: Profile) -> Optional[ReadFailure]:
    """A router's page has the engine's names with a label per engine behind it (production-stack#318)."""
    for name in gauge_names(profile):
        for sample in samples.get(name, ()):
            for label in profile.not_engine:
                if label in sample.labels:
                    message = (
                        f"a router's page ({sample.name} has a label {label}): read each engine's own page instead"
                    )
                    return ReadFailure(NOT_AN_ENGINE, "not_metrics", message)
    return None


def _missing(samples: Samples, profile: Profile) -> Optional[ReadFailure]:
    """One of the two gauges without the other: names changed, or the selector matches nothing."""
    gauges = {role: getattr(profile, role) for role in ("running", "waiting", "total")}
    lacking = {role: metric for role, metric in gauges.items() if metric and not series_of(samples, metric, profile)}
    none_there = len(lacking) == sum(metric is not None for metric in gauges.values())
    for role, metric in lacking.items():
        if role in profile.optional and not none_there:
            continue
        sought = " or ".join(map(profile.full, metric.names))
        what = f"no {sought} on the page, though others of {profile.name}'s gauges are there"
        if profile.select and any(name in samples for name in metric.names):
            what = f"no {sought} with " + ", ".join(f'{label}="{value}"' for label, value in profile.select)
        return ReadFailure(MISCONFIGURED, "missing", what, profile.name)
    return None


def _models(samples: Samples, profile: Profile, counters: _Counters) -> Tuple[ModelReading, ...]:
    running = gauge_by_model(series_of(samples, profile.running, profile), profile)
    waiting = gauge_by_model(series_of(samples, profile.waiting, profile), profile)
    total = gauge_by_model(series_of(samples, profile.total, profile), profile)
    for queue in profile.queues:
        for model, value in gauge_by_model(series_of(samples, queue, profile), profile).items():
            waiting[model] = waiting.get(model, 0.0) + value
    names = list(dict.fromkeys([*running, *waiting, *total]))
    front = max((s.value for s in series_of(samples, profile.front, profile)), default=0.0)
    waiting[names[0]] = waiting.get(names[0], 0.0) + front
    only = len(names) == 1
    kv = _kv(samples, profile)
    return tuple(
        ModelReading(
            model=name,
            running=None if profile.total else running.get(name, 0.0),
            waiting=None if profile.total else waiting.get(name, 0.0),
            inflight=total[name] if profile.total else running.get(name, 0.0) + waiting.get(name, 0.0),
            kv=max(kv.values(), default=None) if only else kv.get(name),
            prompt_tokens=_share(counters.prompt, name, only),
            generation_tokens=_share(counters.generated, name, only),
            finished=_outcomes(counters.finished, name, only),
            rejected=_outcomes(counters.rejected, name, only),
        )
        for name in names
    )


def _kv(samples: Samples, profile: Profile) -> Dict[str, float]:
    if not profile.kv_parts:
        return largest(series_of(samples, profile.kv, profile), profile)
    used, blocks = (gauge_by_model(_all_counts(samples, part, profile), profile) for part in profile.kv_parts)
    return {model: used[model] / blocks[model] for model in used if blocks.get(model, 0.0) >= 1}


def _all_counts(samples: Samples, metric: Optional[Metric], profile: Profile) -> List[Sample]:
    """The series of a gauge that may be absent; none where one is no count: the sum of the others would be too low."""
    series = series_of(samples, metric, profile)
    return series if all(0 <= sample.value < COUNT_LIMIT for sample in series) else []


def _share(counter: Counter, model: str, only: bool) -> Optional[float]:
    """A model's part of a counter; all of it where the page has one model (its counters may lack the label)."""
    parts = [value for key, value in counter.items() if only or key[0] == model]
    return sum(parts) if parts else None


def _outcomes(counter: Counter, model: str, only: bool) -> Tuple[Tuple[str, float], ...]:
    outcomes: Dict[str, float] = {}
    for (owner, outcome), value in counter.items():
        if only or owner == model:
            outcomes[outcome] = outcomes.get(outcome, 0.0) + value
    return tuple(outcomes.items())


def _asleep(samples: Samples, profile: Profile) -> bool:
    """Every engine of the page says that it sleeps; one that is awake makes the page `ok`."""
    if not profile.sleep:
        return False
    metric, label, awake = profile.sleep
    on = {sample.labels.get(label) for sample in series_of(samples, metric, profile) if sample.value == 1}
    return bool(on) and awake not in on


def _role(series: List[Sample], profile: Profile) -> str:
    roles = {sample.labels.get(profile.role_label, "") for sample in series} if profile.role_label else set()
    return roles.pop() if len(roles) == 1 and roles <= {"prefill", "decode"} else ""


def _plain(samples: Samples, name: str) -> Optional[float]:
    values = [sample.value for sample in samples.get(name, ()) if 0 <= sample.value < COUNT_LIMIT]
    return max(values, default=None)


def _sum(models: Dict[str, float]) -> Optional[float]:
    return sum(models.values()) if models else None


def _histograms(samples: Samples, profile: Profile) -> Iterable[Histogram]:
    for kind, metric in zip(HISTOGRAM_KINDS, profile.histograms):
        name = next((name for name in metric.names if samples.get(name + "_bucket")), "")
        if not name:
            continue
        counts: Dict[str, List[Tuple[float, float]]] = {}
        for (model, le), count in counter_by(samples[name + "_bucket"], profile, ("le",)).items():
            counts.setdefault(model, []).append((_bound(le), count))
        sums = counter_by(samples.get(name + "_sum", ()), profile)
        for model, buckets in counts.items():
            buckets.sort()
            bounds = [bound for bound, _ in buckets]
            # A bound that is no number, or stands there in two spellings: absent, as what an engine has not.
            if all(low < high for low, high in zip([float("-inf"), *bounds], bounds)):
                yield Histogram(kind, model, tuple(buckets), sums.get((model, ""), 0.0))


def _bound(le: str) -> float:
    """The upper bound of a bucket; NaN where the label is no number."""
    try:
        return float(le)
    except ValueError:
        return float("nan")


def _warnings(selection: Selection, profile: Profile) -> Tuple[str, ...]:
    warnings = [str(error) for error in selection.broken.values()]
    label = profile.replica_label
    if label and label not in dict(profile.select):
        series = series_of(selection.samples, profile.running, profile)
        replicas = sorted({sample.labels[label] for sample in series if label in sample.labels})
        if len(replicas) > 1:
            warnings.append(
                f"the page of a node with {len(replicas)} replicas ({label}: {', '.join(replicas[:5])}): the values "
                f"are their sum; read one with --engine.select {label}=NAME"
            )
    return tuple(warnings)
