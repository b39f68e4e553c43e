"""How the label sets of one metric combine: which series are engines of their own, copies, or do not count.

`infscale.normalise` calls it for every metric of a profile. The rules per engine stand in `infscale.engines`.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from infscale.engines.profile import Metric, Profile
from infscale.exposition import Sample
from infscale.reading import COUNT_LIMIT

Samples = Mapping[str, List[Sample]]
Counter = Dict[Tuple[str, str], float]
"""A counter by (model, outcome or `le`); the second is empty where nothing was asked for."""


def series_of(samples: Samples, metric: Optional[Metric], profile: Profile) -> List[Sample]:
    """The series of `metric` that count: its first spelling on the page, less those that the profile leaves out."""
    if metric is None:
        return []
    for name in metric.names:
        found = samples.get(name)
        if found:
            wanted = metric.where + profile.select
            return [s for s in found if _counts(s.labels, wanted, profile.only)] if wanted or profile.only else found
    return []


def _counts(
    labels: Mapping[str, str], wanted: Sequence[Tuple[str, str]], only: Sequence[Tuple[str, Tuple[str, ...]]]
) -> bool:
    if any(labels.get(label) != value for label, value in wanted):
        return False
    return all(labels.get(label, values[0]) in values for label, values in only)


def model_of(labels: Mapping[str, str], profile: Profile) -> str:
    """The model that a series belongs to; empty where the engine does not say."""
    for label in profile.model_labels:
        if label in labels:
            return labels[label]
    return ""


def gauge_by_model(series: Iterable[Sample], profile: Profile) -> Dict[str, float]:
    """Sum over engines (`sum_over`), the largest of copies, for each model.

    Two data-parallel ranks of 6 and 2 requests are 8, whether one tensor rank or four publish them.
    """
    engines: Dict[Tuple[str, ...], float] = {}
    sum_over = profile.sum_over
    for _, labels, value in series:
        key = (model_of(labels, profile), *[labels.get(label, "") for label in sum_over])
        if key not in engines or value > engines[key]:
            engines[key] = value
    models: Dict[str, float] = {}
    for key, value in engines.items():
        models[key[0]] = models.get(key[0], 0.0) + value
    return models


def counter_by(series: Iterable[Sample], profile: Profile, outcome_labels: Tuple[str, ...] = ()) -> Counter:
    """A counter by model and by the first of `outcome_labels` there: the largest of copies, the sum of the rest.

    Series that are no counts (NaN, negative, too large) are left out: a counter is passed through, and is never a
    reason to fail.
    """
    copies = profile.copies
    sums: Counter = {}
    ranks: Dict[Tuple[object, ...], Tuple[Tuple[str, str], float]] = {}
    for _, labels, value in series:
        if not 0 <= value < COUNT_LIMIT:
            continue
        outcome = ""
        for label in outcome_labels:
            if label in labels:
                outcome = labels[label]
                break
        key = (model_of(labels, profile), outcome)
        if copies.isdisjoint(labels):
            sums[key] = sums.get(key, 0.0) + value
        else:
            rank = tuple(sorted(item for item in labels.items() if item[0] not in copies))
            ranks[rank] = (key, max(ranks.get(rank, (key, 0.0))[1], value))
    for key, value in ranks.values():
        sums[key] = sums.get(key, 0.0) + value
    return sums


def largest(series: Iterable[Sample], profile: Profile) -> Dict[str, float]:
    """The largest series of each model: KV use is never summed (two engines at 0.6 are not 1.2)."""
    models: Dict[str, float] = {}
    for sample in series:
        if not 0 <= sample.value < COUNT_LIMIT:
            continue
        model = model_of(sample.labels, profile)
        models[model] = max(models.get(model, 0.0), sample.value)
    return models
