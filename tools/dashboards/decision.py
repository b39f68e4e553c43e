"""`infscale / Scaling decision`: how the count of one workload came to be, step by step."""

from __future__ import annotations

from tools.dashboards.builder import Json, colour, dashboard, query, row, thresholds
from tools.dashboards.panels import stat, timeseries
from tools.dashboards.panels import state_timeline as timeline
from tools.dashboards.series import (
    BY_WORKLOAD,
    PHASE_SHADES,
    RATE,
    REASON_SHADES,
    WORKLOAD,
    code_words,
    coded,
    decisions,
    workload_variables,
)

_DASHED = {"fill": "dash", "dash": [6, 6]}


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "infscale-decision",
        "infscale / Scaling decision",
        "One workload: from what its replicas measured to the count that is asked for, a step at a time.",
        workload_variables(one=True),
        [_chain(), _result(), _measured(), _ratio(), _proposal(), _limits()],
        annotations=[decisions()],
    )


def _of(name: str, more: str = "") -> str:
    """A recorded series of the workload."""
    return f"{name}{{{WORKLOAD}{more}}}"


def _published(name: str, more: str = "") -> str:
    """A series of whoever evaluates the workload; two of them count once."""
    return f"max {BY_WORKLOAD} ({_of(name, more)})"


def _step(title: str, about: str, expr: str, **options: object) -> Json:
    """One number of the chain."""
    settings: dict[str, object] = {"width": 3, "empty": "none", **options}
    return stat(title, about, [query(expr)], **settings)  # type: ignore[arg-type]


def _chain() -> list[Json]:
    return row("How this number came to be", *_to_the_ratio(), *_to_the_limits(), *_outcome())


def _to_the_ratio() -> list[Json]:
    return [
        _step(
            "1. Known",
            "Requests in flight of the replicas that gave a value and do not drain.",
            _of("workload:infscale_known_requests:sum"),
        ),
        _step(
            "2. Missing",
            "Replicas that served before and give no value. Each counts as at its target, up to all of them at theirs: "
            "a hole never lowers the count, and alone never raises it.",
            _of("workload:infscale_missing_replicas:count"),
            limits=thresholds((1, "red")),
        ),
        _step(
            "3. Held",
            "Requests that an activator holds before the workload; none without an activator.",
            _of("workload:infscale_pending_requests:sum"),
            empty="no activator",
        ),
        _step(
            "4. Demand",
            "Known, with the missing replicas filled in and the held requests added: what is scaled on.",
            f"max {BY_WORKLOAD} ({_of('infscale_workload_demand_requests')})",
        ),
        _step(
            "5. Target",
            "Requests per replica that are aimed at.",
            _of("workload:infscale_target_inflight_requests:max"),
            empty="not set",
        ),
        _step(
            "6. Replicas now",
            "What the target is multiplied by: replicas that are not leaving, starting ones included.",
            _of("workload:infscale_status_replicas:max"),
        ),
        _step(
            "7. Ratio",
            "Demand over target and replicas. Within 0.9 and 1.1, the HPA's tolerance, the count is kept.",
            f"{_of('workload:infscale_demand_per_target:ratio')} >= 0",
            decimals=3,
            empty="no replicas",
            limits=thresholds((0.9, "green"), (1.1, "orange"), below="blue"),
        ),
    ]


def _to_the_limits() -> list[Json]:
    return [
        _step(
            "8. Proposal",
            "The demand over the target, rounded up; within the tolerance the replicas there are.",
            _of("workload:infscale_proposed_replicas:hpa"),
        ),
        _step(
            "9. Down window",
            "The largest proposal of the last 300 s: the count does not fall below it.",
            _of("workload:infscale_proposed_replicas:max5m"),
        ),
        _step(
            "10. Before limits",
            "The present count, up to the proposal at once and down as far as the window lets it; before minimum, "
            "maximum and the policies that limit how fast.",
            _of("workload:infscale_stabilised_replicas:hpa"),
        ),
        _step(
            "11. Minimum",
            "Of the workload's HPA. Needs kube-state-metrics.",
            _of("workload:kube_horizontalpodautoscaler_spec_min_replicas:max"),
            empty="no HPA",
        ),
        _step(
            "12. Maximum",
            "Of the workload's HPA. Needs kube-state-metrics.",
            _of("workload:kube_horizontalpodautoscaler_spec_max_replicas:max"),
            empty="no HPA",
        ),
    ]


def _outcome() -> list[Json]:
    return [
        _step(
            "A plain HPA",
            "What an HPA with the same target and limits would ask for, as whoever evaluates the policy computed it.",
            _published("infscale_hpa_recommended_replicas"),
            empty="no recommender",
        ),
        _step(
            "Recommended",
            "What the policy asks for: the end of the steps.",
            _published("infscale_recommended_replicas"),
            empty="no recommender",
        ),
        _step(
            "Asked for",
            "The count that the workload has been given.",
            _of("workload:infscale_spec_replicas:max"),
        ),
        _step(
            "Last evaluation",
            "Time since the policy was last evaluated; 15 s is usual.",
            f"time() - {_published('infscale_evaluation_timestamp_seconds')}",
            unit="s",
            limits=thresholds((60, "orange"), (120, "red")),
            empty="no recommender",
        ),
    ]


def _result() -> list[Json]:
    return row(
        "What was decided, and why",
        timeseries(
            "Recommended, asked for, ready",
            "A recommendation that nobody follows is a dry run, or an HPA whose tolerance swallows it. Asked for and "
            "not ready: a cold start, or no GPU to be had.",
            [
                query(_published("infscale_recommended_replicas"), "recommended"),
                query(_published("infscale_hpa_recommended_replicas"), "a plain HPA"),
                query(_of("workload:infscale_spec_replicas:max"), "asked for"),
                query(_published("infscale_replicas", ', state="ready"'), "ready"),
            ],
            width=24,
            stepped=True,
            overrides=[
                colour("recommended", "blue"),
                colour("a plain HPA", "purple", lineWidth=1, lineStyle=_DASHED),
                colour("asked for", "text", lineWidth=1),
                colour("ready", "green", fillOpacity=15),
            ],
        ),
        timeline(
            "Reason",
            "The last step that changed the count; if none did, what holds it.",
            [
                query(
                    coded(
                        "infscale_decision_reason", "reason", REASON_SHADES, WORKLOAD, "workload_namespace, workload"
                    ),
                    "{{workload}}",
                )
            ],
            code_words(REASON_SHADES),
            height=4,
            empty="no recommender",
        ),
    )


def _measured() -> list[Json]:
    return row(
        "Steps 1 to 4: what was measured becomes the demand",
        timeseries(
            "Known, held, demand",
            "The demand stands above what is known and held where silent replicas were filled in.",
            [
                query(_of("workload:infscale_known_requests:sum"), "known"),
                query(_of("workload:infscale_pending_requests:sum"), "held"),
                query(f"max {BY_WORKLOAD} ({_of('infscale_workload_demand_requests')})", "demand"),
                query(_published("infscale_lookahead_demand_requests"), "demand, projected"),
            ],
            overrides=[
                colour("known", "blue", fillOpacity=15),
                colour("held", "purple", lineWidth=1),
                colour("demand", "orange"),
                colour("demand, projected", "yellow", lineWidth=1, lineStyle=_DASHED),
            ],
        ),
        timeseries(
            "Who gave a value",
            "Serving replicas gave one; silent ones are the missing. Starting and draining ones are neither load nor "
            "hole.",
            [query(_of("workload_phase:infscale_replicas:count"), "{{phase}}")],
            width=6,
            stepped=True,
            stacked=True,
            overrides=[colour(phase, shade) for phase, shade in PHASE_SHADES.items()],
        ),
        timeseries(
            "Coverage",
            "Replicas that gave a value, of those that should. Below 50 % the count is not lowered.",
            [query(_of("workload:infscale_coverage:ratio"), "coverage")],
            unit="percentunit",
            width=6,
            stepped=True,
            top=1,
            limits=thresholds((0.5, "green"), below="red"),
            overrides=[colour("coverage", "blue")],
        ),
    )


def _ratio() -> list[Json]:
    room = f"{_of('workload:infscale_target_inflight_requests:max')} * {_of('workload:infscale_status_replicas:max')}"
    return row(
        "Steps 5 to 7: demand over target",
        timeseries(
            "Demand against the target of all replicas",
            "The target of one replica times the replicas there are, and the demand that is divided by it.",
            [
                query(f"max {BY_WORKLOAD} ({_of('infscale_workload_demand_requests')})", "demand"),
                query(room, "target of all replicas"),
            ],
            overrides=[
                colour("demand", "orange"),
                colour("target of all replicas", "green", lineInterpolation="stepAfter"),
            ],
        ),
        timeseries(
            "Ratio and tolerance",
            "Above the band replicas are added, below it they may go, between the lines the count is kept.",
            [query(f"{_of('workload:infscale_demand_per_target:ratio')} >= 0", "ratio")],
            unit="none",
            limits=thresholds((0.9, "green"), (1.1, "orange"), below="blue"),
            overrides=[colour("ratio", "text")],
        ),
    )


def _proposal() -> list[Json]:
    return row(
        "Steps 8 to 10: proposal and down window",
        timeseries(
            "Proposal, down window, before limits",
            "The proposal follows the load. The window keeps its largest value of the last 300 s, so that a short dip "
            "takes nothing away.",
            [
                query(_of("workload:infscale_proposed_replicas:hpa"), "proposal"),
                query(_of("workload:infscale_proposed_replicas:max5m"), "down window"),
                query(_of("workload:infscale_stabilised_replicas:hpa"), "before limits"),
            ],
            stepped=True,
            overrides=[
                colour("proposal", "orange", lineWidth=1),
                colour("down window", "blue", lineWidth=1, lineStyle=_DASHED),
                colour("before limits", "green"),
            ],
        ),
        timeseries(
            "Proposal less the count",
            "How far the proposal is above the count asked for, or below it: there the down window or the minimum "
            "holds the count.",
            [
                query(
                    f"{_of('workload:infscale_proposed_replicas:hpa')} - {_of('workload:infscale_spec_replicas:max')}",
                    "above or below",
                ),
            ],
            stepped=True,
            low=None,
            overrides=[colour("above or below", "orange", fillOpacity=30)],
        ),
    )


def _limits() -> list[Json]:
    counted = f"max by (direction, reason) (increase({_of('infscale_decisions_total')}{RATE}))"
    return row(
        "Limits, and what became of it",
        timeseries(
            "Within the limits",
            "Before and after minimum, maximum and the policies. Minimum and maximum are those of the workload's HPA.",
            [
                query(_of("workload:infscale_stabilised_replicas:hpa"), "before limits"),
                query(_published("infscale_recommended_replicas"), "recommended"),
                query(_of("workload:kube_horizontalpodautoscaler_status_desired_replicas:max"), "the HPA asks for"),
                query(_of("workload:kube_horizontalpodautoscaler_spec_min_replicas:max"), "minimum"),
                query(_of("workload:kube_horizontalpodautoscaler_spec_max_replicas:max"), "maximum"),
            ],
            stepped=True,
            overrides=[
                colour("before limits", "green", lineWidth=1),
                colour("recommended", "blue"),
                colour("the HPA asks for", "purple", lineWidth=1, lineStyle=_DASHED),
                colour("minimum", "text", lineWidth=1),
                colour("maximum", "red", lineWidth=1),
            ],
        ),
        timeseries(
            "Evaluations by reason",
            "Evaluations of the minute or so before each instant (the rate interval), by their reason.",
            [query(f"sum by (reason) ({counted}) > 0", "{{reason}}")],
            bars=True,
            stacked=True,
            empty="no recommender",
            overrides=[colour(reason, shade) for reason, shade in REASON_SHADES.items()],
        ),
    )
