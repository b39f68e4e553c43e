"""Writes a metrics page in the Prometheus text format, with the faults that a page can have.

The dialects (`engine_vllm`, `engine_sglang`, `engine_llamacpp`) say what stands on it; `engine_server` serves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from prometheus_client.utils import floatToGoString

from infscale_sim.engine_stats import Histogram

Labels = Mapping[str, str]


def go_number(value: float) -> str:
    """Return a number as Prometheus' Python client writes it, after Go: `5.0`, `1e+06`, `+Inf`, `NaN`."""
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]  # the library has no types there


NAN, DROP = "nan", "drop-gauges"


class Page:
    """A page under construction.

    Attributes:
        gauges: the value of each gauge that was written, by name and labels: what `freeze-gauges` holds on to.
    """

    def __init__(
        self,
        *,
        faults: frozenset[str] = frozenset(),
        frozen: Mapping[str, float] | None = None,
        number: Callable[[float], str] = go_number,
    ) -> None:
        """Begin a page.

        Args:
            faults: `nan` and `drop-gauges` act on gauges; others are none of the page's business.
            frozen: gauges that keep an older value.
            number: how the engine writes numbers.
        """
        self.gauges: dict[str, float] = {}
        self._faults, self._frozen, self._number = faults, frozen or {}, number
        self._lines: list[str] = []

    def gauge(self, name: str, text: str, value: float, labels: Labels | None = None) -> None:
        """Write a gauge with one series."""
        self.gauge_family(name, text, [(labels or {}, value)])

    def gauge_family(self, name: str, text: str, series: Iterable[tuple[Labels, float]]) -> None:
        """Write a gauge with several series, or none at all while its fault is on."""
        if DROP in self._faults:
            return
        self._head(name, text, "gauge")
        for labels, value in series:
            key = name + _braces(labels)
            self.gauges[key] = self._frozen.get(key, value)
            self._lines.append(f"{key} {self._number(math.nan if NAN in self._faults else self.gauges[key])}")

    def counter(self, name: str, text: str, value: float, labels: Labels | None = None) -> None:
        """Write a counter with one series. The name is complete."""
        self.counter_family(name, text, [(labels or {}, value)])

    def counter_family(self, name: str, text: str, series: Iterable[tuple[Labels, float]]) -> None:
        """Write a counter with several series."""
        self._head(name, text, "counter")
        self._lines += [f"{name}{_braces(labels)} {self._number(value)}" for labels, value in series]

    def histogram(self, name: str, text: str, series: Iterable[tuple[Labels, Histogram]]) -> None:
        """Write a histogram: cumulated buckets, count and sum."""
        self._head(name, text, "histogram")
        for labels, histogram in series:
            for bound, count in zip((*histogram.bounds, math.inf), accumulate(histogram.counts), strict=True):
                le = _braces({**labels, "le": go_number(bound)})
                self._lines.append(f"{name}_bucket{le} {self._number(count)}")
            self._lines.append(f"{name}_count{_braces(labels)} {self._number(histogram.count)}")
            self._lines.append(f"{name}_sum{_braces(labels)} {self._number(histogram.sum)}")

    def text(self) -> str:
        """Return the page."""
        return "\n".join(self._lines) + "\n"

    def _head(self, name: str, text: str, kind: str) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _braces(labels: Labels) -> str:
    """Return the label part of a sample, labels by name as the Python client writes them; empty without labels."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(labels[name])}"' for name in sorted(labels)) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
