"""Selectors, variables and queries that several dashboards share.

Two kinds of series carry a workload's name. A sidecar's have the labels of its target: `namespace`, `workload`, `pod`.
Recorded series and those of the recommender and the activator say themselves which workload they are about, in
`workload_namespace` and `workload`; their own target labels are those of another Pod. The same variables select both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tools.dashboards.builder import DATASOURCE, Json, query_var, words_for

REPLICA = 'namespace=~"$namespace", workload=~"$workload"'
"""Selects sidecars' series."""
POD = f'{REPLICA}, pod=~"$pod"'
MODEL = f'{POD}, model_name=~"$model_name"'
"""Selects sidecars' series that have a model."""
WORKLOAD = 'workload_namespace=~"$namespace", workload=~"$workload"'
"""Selects recorded series, and those of the recommender and the activator."""
BY_WORKLOAD = "by (workload_namespace, workload)"

RATE = "[$__rate_interval]"

_KNOWN = "workload_phase:infscale_replicas:count", "infscale_evaluation_timestamp_seconds", "infscale_pending_requests"
"""Any of them makes a workload known: its sidecars (by rule), its recommender, its activator."""


def workload_variables(*, one: bool = False) -> list[Json]:
    """Namespace, model and workload of recorded series; a workload may have no replica, and then has no model.

    Choosing a model leaves out the workloads that serve only others.

    Args:
        one: a single workload is chosen.
    """
    known = " or ".join(f'present_over_time({name}{{workload_namespace=~"$namespace"}}[$__range])' for name in _KNOWN)
    others = _models('model_name!~"$model_name"')
    chosen = _models('model_name=~"$model_name"')
    both = "on (workload_namespace, workload)"
    found = f"group by (workload) (({known}) unless {both} ({others} unless {both} {chosen}))"
    return [
        query_var(
            "namespace",
            "Namespace",
            f'label_values({{__name__=~"{"|".join(_KNOWN)}"}}, workload_namespace)',
            multi=not one,
        ),
        query_var("model_name", "Model", 'label_values(infscale_engine_info{namespace=~"$namespace"}, model_name)'),
        query_var(
            "workload", "Workload", f"query_result({found})", regex='/workload="([^"]+)"/', multi=not one, every=None
        ),
    ]


def _models(matcher: str) -> str:
    """The workloads with a model that matches, by the labels of recorded series."""
    info = f'present_over_time(infscale_engine_info{{namespace=~"$namespace", workload!="", {matcher}}}[$__range])'
    return f'label_replace({info}, "workload_namespace", "$1", "namespace", "(.+)")'


def replica_variables() -> list[Json]:
    """Namespace, model, workload and Pod of sidecars' series, which are there without any rule."""
    info = 'infscale_engine_info{namespace=~"$namespace"}'
    return [
        query_var("namespace", "Namespace", "label_values(infscale_up, namespace)"),
        query_var("model_name", "Model", f"label_values({info}, model_name)", every=".*"),
        query_var("workload", "Workload", 'label_values(infscale_up{namespace=~"$namespace"}, workload)'),
        query_var("pod", "Pod", f"label_values(infscale_up{{{REPLICA}}}, pod)"),
    ]


def coded(metric: str, label: str, values: Iterable[str], selector: str, by: str) -> str:
    """One number for what each thing is in: 1 for the first of the values, and so on; see `code_words`.

    Args:
        metric: 1 for the value that holds.
        label: that tells the values apart.
        values: in the order of their numbers.
        selector: matchers of the metric.
        by: the labels of a thing.
    """
    return "\nor\n".join(
        f'{number} * (max by ({by}) ({metric}{{{selector}, {label}="{value}"}}) == 1)'
        for number, value in enumerate(values, start=1)
    )


def code_words(shades: Mapping[str, str]) -> list[Json]:
    """The words and colours of what `coded` gives, for the same values in the same order."""
    return words_for({number: (value, shade) for number, (value, shade) in enumerate(shades.items(), start=1)})


def decisions() -> Json:
    """The annotation of each evaluation that asked for another count, with its reason."""
    counted = f'infscale_decisions_total{{{WORKLOAD}, direction=~"up|down"}}'
    grown = f"increase({counted}{RATE})"
    return {
        "name": "Decisions",
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "blue",
        "expr": f"sum by (workload_namespace, workload, direction, reason) ({grown}) > 0",
        "step": "15s",
        "titleFormat": "{{workload}}: {{direction}}",
        "textFormat": "{{reason}}",
        "tagKeys": "workload,direction",
        "useValueForTime": False,
    }


REASON_SHADES = {
    "metric": "green",
    "tolerance": "light-green",
    "stabilised": "blue",
    "rate_limited": "light-blue",
    "min": "super-light-blue",
    "max": "red",
    "no_samples": "dark-orange",
    "partial_samples": "orange",
    "activate_from_zero": "purple",
    "idle_to_zero": "light-purple",
    "cooldown": "super-light-purple",
    "lookahead": "yellow",
    "guard": "dark-yellow",
    "disabled": "semi-dark-blue",
    "error": "dark-red",
}
"""Every reason of a decision: green is the load alone, red and orange want a look."""

STATE_SHADES = {
    "ok": "green",
    "fresh": "light-green",
    "asleep": "light-blue",
    "loading": "blue",
    "saturated": "orange",
    "stale": "dark-orange",
    "stats_disabled": "yellow",
    "misconfigured": "light-red",
    "not_an_engine": "purple",
    "unreachable": "red",
}
"""Every state of an engine."""

PHASE_SHADES = {"serving": "green", "starting": "blue", "silent": "red", "draining": "purple"}
"""Every phase of a replica."""
