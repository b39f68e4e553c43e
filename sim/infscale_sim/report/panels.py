"""Which charts a report has, and what stands in them and in the table: the same for the page and the picture.

One kind of thing looks the same everywhere: what is there (`seen`, solid), what the policy wants (`want`, dashed), what
the traffic asks for (`need`, dotted), and what is missed (`miss`, an area).
"""

from __future__ import annotations

from dataclasses import dataclass

from infscale_sim.report.axes import NO_BREAK, Axis, count_axis, duration, linear_axis, seconds, seconds_axis, time_axis
from infscale_sim.report.chart import Chart, Series
from infscale_sim.report.drawn import Drawn, Line, Report, Totals
from infscale_sim.simulate import BUDGET_PERCENT

HEADINGS = ("policy", "SLO miss", "miss %", "TTFT p50", "TTFT p95", "replica-min", "x oracle", "peak", "scale events")
_PERCENTILE_STYLES = {"p50": "seen", "p95": "seen dashed", "p99": "seen dotted"}


@dataclass(frozen=True, slots=True)
class Panels:
    """All charts of a report.

    Attributes:
        horizon_s, time: the time axis of all.
        rate: the traffic's.
        policies: by policy in the report's order: replicas, in flight, time to first token, misses. A kind of chart
            has one axis for all policies.
    """

    horizon_s: float
    time: Axis
    rate: Chart
    policies: tuple[tuple[Chart, ...], ...]


def panels(report: Report) -> Panels:
    """Arrange a report."""
    traffic, policies = report.traffic, report.policies
    rate, required = traffic.rate.thinned(), traffic.required.thinned()
    replicas = count_axis(max(line.most for one in policies for line in (one.ready, one.recommended, traffic.required)))
    inflight = count_axis(max(line.most for one in policies for line in (one.inflight, one.wanted or one.inflight)))
    latency = _latency_axis([line for one in policies for _, line in one.ttft], traffic.slo_ttft_s)
    arriving = linear_axis(traffic.rate.most)
    limit = (traffic.slo_ttft_s, f"SLO {seconds(traffic.slo_ttft_s)}")
    return Panels(
        horizon_s=traffic.horizon_s,
        time=time_axis(traffic.horizon_s),
        rate=Chart("Traffic, requests/s", (Series("arriving", "need", rate, "rate", filled=True),), arriving),
        policies=tuple(
            (
                _replicas(one, required, replicas),
                _inflight(one, inflight),
                Chart("Time to first token (log scale)", _ttft(one), latency, limit),
                _misses(one, rate, arriving),
            )
            for one in policies
        ),
    )


def _latency_axis(lines: list[Line], slo_s: float) -> Axis:
    known = [value for line in lines for value in line.known if value > 0]
    never = any(line.has_never for line in lines)
    return seconds_axis(min([slo_s, *known]), max([slo_s, *known]), never=never)


def _replicas(one: Drawn, required: Line, axis: Axis) -> Chart:
    series = (
        Series("ready", "seen", one.ready.thinned(), filled=True),
        Series("required", "need", required),
        Series("recommended", "want", one.recommended.thinned()),
    )
    return Chart("Replicas", series, axis)


def _inflight(one: Drawn, axis: Axis) -> Chart:
    title = f"Requests in flight{' (log scale)' if axis.is_log else ''}"
    seen = Series("in flight", "seen", one.inflight.thinned())
    if one.wanted is None:
        return Chart(title, (seen,), axis, note="the policy has no target for it")
    wanted = Series(f"target {one.target:g} × ready", "want", one.wanted.thinned())
    return Chart(title, (seen, wanted), axis)


def _ttft(one: Drawn) -> tuple[Series, ...]:
    return tuple(Series(name, _PERCENTILE_STYLES[name], line.thinned(), "seconds") for name, line in one.ttft)


def _misses(one: Drawn, rate: Line, axis: Axis) -> Chart:
    series = (
        Series("missed", "miss", one.misses.thinned(), "rate", filled=True, outlined=False),
        Series("arriving", "need", rate, "rate"),
    )
    return Chart("SLO misses, requests/s", series, axis)


def cells(one: Drawn) -> tuple[str, ...]:
    """A row of the comparison, under `HEADINGS`."""
    totals = one.totals
    return (
        one.policy,
        f"{totals.slo_misses:,}",
        f"{totals.slo_miss_percent:.1f}",
        _seconds(totals.ttft_p50_s),
        _seconds(totals.ttft_p95_s),
        f"{totals.replica_minutes:,.1f}",
        "-" if totals.oracle_ratio is None else f"{totals.oracle_ratio:.2f}",
        f"{totals.peak_replicas}",
        f"{totals.scale_events:,}",
    )


def sentence(totals: Totals) -> str:
    """A policy's totals in a line."""
    return (
        f"{totals.slo_misses:,} of {totals.requests:,} requests missed ({totals.slo_miss_percent:.1f} %) · "
        f"{totals.replica_minutes:,.1f} replica-min · "
        f"TTFT p50 {_seconds(totals.ttft_p50_s)}, p95 {_seconds(totals.ttft_p95_s)} · "
        f"peak replicas {totals.peak_replicas} · scale events {totals.scale_events:,}"
    )


def notes(report: Report) -> tuple[str, ...]:
    """What stands below the table."""
    bound = next((one.totals.bound_replica_minutes for one in report.policies), None)
    least = (
        ()
        if bound is None
        else (f"With {BUDGET_PERCENT:g} % misses no schedule needs less than {bound:,.1f} replica-min.",)
    )
    return (
        *least,
        "Required: the replicas that the arriving work fills with full batches.",
        f"Rates, misses and percentiles are over windows of {duration(report.traffic.window_s)}; "
        "a bar below the axis marks each window with a miss.",
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{1000 * value:.0f}{NO_BREAK}ms" if value < 1 else f"{value:.1f}{NO_BREAK}s"
