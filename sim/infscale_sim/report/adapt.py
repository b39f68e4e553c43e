"""From results to what a report draws: `report_of`."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from infscale.core.scaling import MetricName, ScalePolicy
from infscale.errors import PolicyError
from infscale_sim.knee import knee_tokens_per_s
from infscale_sim.metrics import missed, percentile
from infscale_sim.outcome import Run
from infscale_sim.policies import Core, Keda, Kpa, scaler_of
from infscale_sim.report.drawn import Drawn, Line, Report, Totals, Traffic
from infscale_sim.scenario import Scenario
from infscale_sim.simulate import Result
from infscale_sim.traffic import Requests

_MOST_WINDOWS = 500
_WINDOWS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


@dataclass(frozen=True, slots=True)
class _Window:
    """Times from `start_s` on and the requests that arrive in them: those from `first` up to `end`."""

    start_s: float
    length_s: float
    first: int
    end: int


def report_of(headline: str, scenario: Scenario, requests: Requests, results: Iterable[Result]) -> Report:
    """What a report draws of some results.

    Args:
        headline: what was run, in a line.
        scenario: that of the results.
        requests: those of the results.
        results: one a policy; each is let go of once it is looked at.
    """
    horizon_s = max(scenario.horizon_s, 1.0)
    windows = _windows(requests, horizon_s, scenario.period_s)
    traffic = Traffic(
        horizon_s=horizon_s,
        window_s=windows[0].length_s,
        slo_ttft_s=scenario.slo.ttft_s,
        rate=Line.of((window.start_s, (window.end - window.first) / window.length_s) for window in windows),
        required=Line.of((window.start_s, _required(scenario, requests, window)) for window in windows),
    )
    return Report(headline, traffic, tuple(_drawn(result, scenario, requests, windows) for result in results))


def _windows(requests: Requests, horizon_s: float, period_s: float) -> list[_Window]:
    """Equal windows, none shorter than the scaler's period, and at most `_MOST_WINDOWS`; the last ends at the horizon.

    15 s give 100 of the default scenario, an hour gives 336 of 14 days.
    """
    least_s = max(period_s, horizon_s / _MOST_WINDOWS)
    day_s = _WINDOWS_S[-1]
    length_s = next((float(nice) for nice in _WINDOWS_S if nice >= least_s), math.ceil(least_s / day_s) * day_s)
    count = math.ceil(horizon_s / length_s)
    starts = [index * length_s for index in range(count)]
    edges = [bisect_left(requests.arrival_s, start_s) for start_s in (*starts, horizon_s)]
    return [
        _Window(start_s, min(length_s, horizon_s - start_s), first, end)
        for start_s, first, end in zip(starts, edges, edges[1:], strict=False)
    ]


def _required(scenario: Scenario, requests: Requests, window: _Window) -> float:
    """Replicas that the requests of a window fill for as long as it lasts, with full batches of such requests."""
    output = requests.output_tokens[window.first : window.end]
    if not output:
        return 0.0
    arrivals = requests.arrival_s[window.first : window.end]
    part = Requests(arrivals, requests.prompt_tokens[window.first : window.end], output)
    knee = knee_tokens_per_s(scenario.hardware, part, 0.0)
    return float(math.ceil(sum(output) / window.length_s / knee - 1e-9))


def _drawn(result: Result, scenario: Scenario, requests: Requests, windows: Sequence[_Window]) -> Drawn:
    run = result.run
    ready = _ready(run)
    target = target_of(result.policy, scenario)
    misses = missed(requests, run, scenario.slo)
    wanted = None
    if target is not None:
        pairs = zip(ready.time_s, ready.value, strict=True)
        wanted = Line.of((time_s, target * (count or 0)) for time_s, count in pairs)
    first = run.moments[0].replicas if run.moments else ready.at(0.0)
    return Drawn(
        policy=result.policy,
        target=target,
        ready=ready,
        recommended=Line.of([(0.0, first), *((moment.time_s, moment.desired) for moment in run.moments)]),
        inflight=Line.of([(0.0, 0), *((moment.time_s, moment.inflight + moment.held) for moment in run.moments)]),
        wanted=wanted,
        ttft=_ttft(run, requests, windows),
        misses=Line.of((one.start_s, sum(misses[one.first : one.end]) / one.length_s) for one in windows),
        totals=Totals(**{name: getattr(result, name) for name in Totals.__dataclass_fields__}),
    )


def _ready(run: Run) -> Line:
    """How many replicas are ready, at every instant."""
    changes: dict[float, int] = {0.0: 0}
    for span in run.spans:
        until_s = min(span.left_s, span.ended_s)
        if span.ready_s < until_s:
            changes[span.ready_s] = changes.get(span.ready_s, 0) + 1
            changes[until_s] = changes.get(until_s, 0) - 1
    changes = {time_s: change for time_s, change in changes.items() if time_s == 0 or time_s < run.horizon_s}
    return Line.of(_sums(changes))


def _sums(changes: dict[float, int]) -> Iterator[tuple[float, int]]:
    count = 0
    for time_s in sorted(changes):
        count += changes[time_s]
        yield time_s, count


def _ttft(run: Run, requests: Requests, windows: Sequence[_Window]) -> tuple[tuple[str, Line], ...]:
    """The percentiles by the window of arrival; a request without a first token waits for ever."""
    points: dict[str, list[tuple[float, float | None]]] = {name: [] for name, _ in _PERCENTILES}
    for window in windows:
        ordered = sorted(
            run.first_s[request] - requests.arrival_s[request] if run.first_s[request] <= run.horizon_s else math.inf
            for request in range(window.first, window.end)
        )
        for name, share in _PERCENTILES:
            points[name].append((window.start_s, percentile(ordered, share)))
    return tuple((name, Line.of(points[name])) for name, _ in _PERCENTILES)


def target_of(text: str, scenario: Scenario) -> float | None:
    """The requests in flight per replica that a policy aims at; None where it aims at something else or at nothing."""
    try:
        scaler = scaler_of(text, scenario.defaults)
    except PolicyError:  # what is no policy of the grammar, as a schedule made with foresight
        return None
    if isinstance(scaler, Kpa):
        return scaler.autoscaler.target
    core = scaler.hpa if isinstance(scaler, Keda) else scaler
    return _queue_target(core.policy) if isinstance(core, Core) else None


def _queue_target(policy: ScalePolicy) -> float | None:
    return next((goal.target for goal in policy.goals if goal.metric is MetricName.QUEUE), None)
