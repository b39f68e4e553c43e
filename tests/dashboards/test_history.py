"""Every panel and every rule on a real Prometheus that has the scenario's history in it: data, no error, in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import promql_parser
import pytest

from tests.dashboards.events import MOVES, moved
from tests.dashboards.history import Answer, History, Rule, history, recording_rules, rules
from tests.dashboards.panels import dashboards, expanded, panels, queries
from tests.dashboards.scenario import BURST, END_S, NAMESPACE, START_S

LIMIT_S = 1.0
"""For a query over the scenario's eighty minutes, and for a rule at one instant; both take some hundredths."""

DASHBOARDS = dashboards()

NO_DATA = {
    ("infscale-replica", "Ended requests", 1): "the stand-in engine refuses no request",
}
"""Queries that the scenario has no data for, and why; a panel has always another query that has."""

every = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each["uid"])

Loaded = tuple[History, dict[Rule, Answer]]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """A server with the scenario and what the rules record of it."""
    with history(tmp_path_factory.mktemp("history")) as both:
        yield both


def shown(expr: str) -> str:
    """A query with all workloads chosen, over the whole scenario."""
    return expanded(expr, range_s=END_S - START_S)


def in_time(ask: Callable[[], Answer]) -> bool:
    """Whether one of a few answers stays below the limit: on a busy machine another process may have the core."""
    return any(ask().seconds < LIMIT_S for _ in range(6))


@every
def test_every_query_answers_in_time(loaded: Loaded, dashboard: dict):
    """As Grafana asks it: over the time shown, or at its end; without an error, in under a second."""
    server, _ = loaded
    for query in queries(dashboard):
        ask = partial(server.now if query.instant else server.ask_over_time, shown(query.expr))
        assert in_time(ask), query


@every
def test_every_query_has_data(loaded: Loaded, dashboard: dict):
    """Each query gives series; those that cannot are in a table with the reason."""
    server, _ = loaded
    for query in queries(dashboard):
        found = server.over_time(shown(query.expr))
        missing = (query.uid, query.panel, query.number) in NO_DATA
        assert bool(found.series) is not missing, query


@every
def test_every_panel_moves_at_its_event(loaded: Loaded, dashboard: dict):
    """What a person looks for in a panel is there: it rises, falls, appears or vanishes at the event it is for."""
    server, _ = loaded
    told = MOVES[dashboard["uid"]]
    assert list(told) == [panel["title"] for panel in panels(dashboard)]
    for query in queries(dashboard):
        move = told[query.panel]
        if query.number == move.number:
            assert moved(server.over_time(shown(query.expr)), move), f"{query}: {move}"


@every
def test_every_panel_of_one_workload_has_only_that(loaded: Loaded, dashboard: dict):
    """With a namespace, a workload and its model chosen no other workload's series are left."""
    server, _ = loaded
    chosen = {"namespace": NAMESPACE, "workload": "chat", "model_name": "llama-3.1-8b"}
    for query in queries(dashboard):
        found = server.over_time(expanded(query.expr, chosen, range_s=END_S - START_S))
        assert {one["metric"].get("workload", "chat") for one in found.series} <= {"chat"}, query


@every
def test_lines_of_tables_join(loaded: Loaded, dashboard: dict):
    """Each query of a table gives the labels that its lines stand for, and no other: Grafana joins by all of them."""
    server, _ = loaded
    for panel in panels(dashboard):
        if panel["type"] == "table":
            keys = set(panel["transformations"][1]["options"]["renameByName"])
            for target in panel["targets"]:
                for one in server.over_time(shown(target["expr"])).series:
                    assert set(one["metric"]) <= keys, target["legendFormat"]


@every
def test_decisions_are_annotated(loaded: Loaded, dashboard: dict):
    """The scale-up of the burst is an annotation with its workload, direction and reason; a quiet hour has none."""
    server, _ = loaded
    found = server.over_time(shown(dashboard["annotations"]["list"][0]["expr"]))
    since, until = START_S + BURST[0], START_S + BURST[0] + 120
    ups = {
        one["metric"]["workload"]
        for one in found.series
        if one["metric"]["direction"] == "up" and any(since <= at <= until for at, _ in one["values"])
    }
    assert ups == {"chat"}
    assert all(one["metric"]["reason"] for one in found.series)


def test_a_sidecar_that_two_jobs_scrape_counts_once(loaded: Loaded):
    """Every replica's panel says the same when each sidecar's series are there under a second job too."""
    server, _ = loaded
    at_s = START_S + BURST[0] + 120
    doubled = {
        "infscale_waiting_requests",
        "infscale_inflight_requests",
        "infscale_up",
        "infscale_engine_state",
        "infscale_kv_cache_usage_ratio",
        "infscale_pending_requests",
        "infscale_pending_requests_limit",
    }
    told = [
        query
        for dashboard in DASHBOARDS
        for query in queries(dashboard)
        if {selector for selector in doubled if f"{selector}{{" in query.expr} and "[" not in query.expr
    ]
    before = {query: values(server.now(shown(query.expr), at_s)) for query in told}
    for name in doubled:
        found = server.now(name, at_s).series
        server.write(({**one["metric"], "job": "again"}, one["values"]) for one in found)
    assert len(server.now("infscale_up", at_s).series) == 2 * len(server.now('infscale_up{job="again"}', at_s).series)
    assert told
    for query in told:
        assert values(server.now(shown(query.expr), at_s)) == before[query], query


def values(answer: Answer) -> list[tuple[dict, str]]:
    """Series and values of an instant."""
    return [(one["metric"], one["values"][0][1]) for one in answer.series]


def test_every_recording_rule_has_data(loaded: Loaded):
    """Each rule records something of the scenario."""
    _, recorded = loaded
    assert set(recorded) == set(recording_rules())
    assert not [rule.name for rule, answer in recorded.items() if not answer.series]


def test_every_rule_answers_in_time(loaded: Loaded):
    """Each rule, alerts too, in the middle of the burst: without an error, in under a second."""
    server, _ = loaded
    for rule in rules():
        assert in_time(partial(server.now, rule.expr, START_S + BURST[0] + 300)), rule.name


def test_variables_offer_what_there_is(loaded: Loaded):
    """Each variable's query gives the scenario's names, a workload that sleeps at zero too."""
    server, _ = loaded
    wanted = {
        "namespace": {NAMESPACE},
        "model_name": {"llama-3.1-8b", "qwen3-32b"},
        "workload": {"chat", "batch"},
    }
    for dashboard in DASHBOARDS:
        for variable in dashboard["templating"]["list"][1:]:
            offered = offers(server, variable)
            if variable["name"] == "pod":
                assert {"chat-0-1", "batch-0-1"} <= offered
            else:
                assert offered == wanted[variable["name"]], (dashboard["uid"], variable["name"])


def test_a_model_leaves_its_own_workloads(loaded: Loaded):
    """Where a model is chosen, the workloads that serve only others are offered no more."""
    server, _ = loaded
    (variable,) = [v for v in DASHBOARDS[0]["templating"]["list"] if v["name"] == "workload"]
    assert offers(server, variable, {"model_name": "qwen3-32b"}) == {"batch"}


def offers(server: History, variable: dict, chosen: dict[str, str] | None = None) -> set[str]:
    """The values that a variable's query gives, as Grafana takes them."""
    asked: str = variable["query"]["query"]
    if asked.startswith("label_values("):
        selector, _, label = asked.removeprefix("label_values(").removesuffix(")").rpartition(", ")
        return set(server.values_of(label, expanded(selector, chosen)))
    expr = expanded(asked.removeprefix("query_result(").removesuffix(")"), chosen, range_s=END_S - START_S)
    promql_parser.parse(expr)
    return {one["metric"]["workload"] for one in server.now(expr).series}
