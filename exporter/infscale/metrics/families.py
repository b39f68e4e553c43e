"""Metric families built from the catalogue: the only place where a sample meets its name, help text and labels.

`collectors` fills a `Families` at each collect, so that a value that is gone leaves no series behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

from prometheus_client import Metric as Family
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from infscale.metrics.contract import COUNTER, GAUGE, HISTOGRAM, Metric

_TYPES: dict[str, Callable[..., Family]] = {
    GAUGE: GaugeMetricFamily,
    COUNTER: CounterMetricFamily,
    HISTOGRAM: HistogramMetricFamily,
}
_le: Callable[[float], str] = lru_cache(maxsize=512)(floatToGoString)
"""A bucket's bound as a label value: `0.5`, `1.0`, `+Inf`, as OpenMetrics wants it. An engine has some 50 of them."""


class Families:
    """The families of some metrics of the catalogue, filled sample by sample.

    Names are the catalogue's (KeyError for any other), label values come in its order.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._families = {metric.name: _empty(metric) for metric in self._metrics.values()}

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Add a sample to a gauge or counter. A value that is no count (None, NaN, infinite, negative) is left out."""
        if value is not None and _usable(value):
            family = self._families[name]
            suffix = "_total" if family.type == COUNTER else ""
            family.add_sample(family.name + suffix, self._labels(name, labels), value)

    def add_histogram(self, name: str, buckets: tuple[tuple[float, float], ...], sum_s: float, *labels: str) -> None:
        """Add a whole histogram: buckets as (`le`, cumulative count), the last one at +Inf.

        One that is none (no +Inf, a count that falls, a number that is not usable) is left out as a whole.
        """
        counts = [count for _, count in buckets]
        if not buckets or buckets[-1][0] != math.inf or counts != sorted(counts):
            return
        if all(map(_usable, counts)) and _usable(sum_s):
            family = self._families[name]
            named = self._labels(name, labels)
            for le, count in buckets:
                family.add_sample(family.name + "_bucket", {**named, "le": _le(le)}, count)
            family.add_sample(family.name + "_count", named, counts[-1])
            family.add_sample(family.name + "_sum", named, sum_s)

    def empty(self) -> list[Family]:
        """Every family without its samples, for `describe()`."""
        return [_empty(metric) for metric in self._metrics.values()]

    def built(self) -> list[Family]:
        """The families that have samples, in the catalogue's order."""
        return [family for family in self._families.values() if family.samples]

    def _labels(self, name: str, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self._metrics[name].label_names, map(_encodable, values), strict=True))


def _empty(metric: Metric) -> Family:
    return _TYPES[metric.type](metric.name, metric.help, labels=metric.label_names)


def _usable(value: float) -> bool:
    """Whether a value may be published: all of ours are counts, times or shares. NaN is a value, not "missing"."""
    return math.isfinite(value) and value >= 0


def _encodable(text: str) -> str:
    """The text without lone surrogates (a `--model-name` that is not UTF-8), which no page could carry."""
    return text.encode("utf-8", "replace").decode("utf-8")
