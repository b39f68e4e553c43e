"""The rules in a real Prometheus, beside a real recommender that looks at the same five sidecars: one demand."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.prometheus_server import LONG_S, Prometheus
from tests.recommender_process import Recommender, Team
from tools.prometheus_rule import RULES

RULE_FILES = ("targets.yaml", "workload.yaml", "fleet.yaml", "latency.yaml")
OF_WORKLOAD = '{workload_namespace="ml",workload="vllm"}'
BY_RULE = f"workload:infscale_demand_requests:sum{OF_WORKLOAD}"
BY_RECOMMENDER = 'infscale_workload_demand_requests{job="recommender"}'
PUBLISHED_BY_RULE = 'infscale_workload_demand_requests{job="",workload="vllm"}'
PROPOSED = f"workload:infscale_proposed_replicas:hpa{OF_WORKLOAD}"
RECOMMENDED = "infscale_recommended_replicas"
TRIGGER = f"max(infscale_workload_demand_requests{OF_WORKLOAD})"


@pytest.fixture
def team() -> Iterator[Team]:
    """Five sidecars with 4 requests each."""
    crew = Team()
    yield crew
    crew.close()


def config(folder: Path, places: list[str], recommender: str) -> dict[str, Any]:
    """Scrapes as the monitors make them, twice a second, the first sidecar under two jobs; the rules as often."""
    for name in RULE_FILES:
        text = (RULES / name).read_text(encoding="utf-8")
        text = re.sub(r"interval: \w+", "interval: 500ms", text)
        if name == "targets.yaml":
            text = text.replace("namespace: example", "namespace: ml").replace("workload: example", "workload: vllm")
            text = text.replace("vector(24)", "vector(6)")
        (folder / name).write_text(text, encoding="utf-8")
    targets = [
        {"targets": [place], "labels": {"namespace": "ml", "workload": "vllm", "pod": f"vllm-{number}"}}
        for number, place in enumerate(places)
    ]
    return {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(folder / name) for name in RULE_FILES],
        "scrape_configs": [
            {"job_name": "sidecars", "static_configs": targets},
            {"job_name": "again", "static_configs": targets[:1]},
            {"job_name": "recommender", "static_configs": [{"targets": [recommender]}]},
        ],
    }


def until(server: Prometheus, expressions: dict[str, float | None]) -> None:
    """Wait until each expression has its value, all at one instant; None is no series."""
    end = time.monotonic() + LONG_S
    found: dict[str, float | None] = {}
    while found != expressions:
        assert time.monotonic() < end, {name: (found.get(name), value) for name, value in expressions.items()}
        time.sleep(0.2)
        now = str(time.time())
        results = {name: server.query(name, time=now) for name in expressions}
        found = {name: float(rows[0]["value"][1]) if rows else None for name, rows in results.items()}
        assert all(len(rows) <= 1 for rows in results.values()), results


def test_the_rules_and_the_recommender_agree(team: Team, tmp_path: Path) -> None:
    """All answer; loads rise; a sidecar is gone, and both fill it in; without the recommender the rule publishes."""
    recommender = Recommender(
        *(f"--fleet.source={team.static}", "--workload=ml/vllm", "--spec-replicas=5"),
        "--policy=queue:6,max=20,downwindow=0",
    )
    with recommender, closing(Prometheus(tmp_path, config(tmp_path, team.places, recommender.address))) as server:
        server.wait_ready()
        until(server, {BY_RECOMMENDER: 20, BY_RULE: 20, TRIGGER: 20, PROPOSED: 4, RECOMMENDED: 4})
        team.load(running=7, waiting=2)
        until(server, {BY_RECOMMENDER: 45, BY_RULE: 45, TRIGGER: 45, PROPOSED: 8, RECOMMENDED: 8})
        team.load(running=3)
        until(server, {BY_RECOMMENDER: 15, BY_RULE: 15, TRIGGER: 15})
        team.kill(4)
        until(
            server,
            {
                BY_RECOMMENDER: 18,  # 4 * 3, and one of five at its target
                BY_RULE: 18,
                TRIGGER: 18,
                PUBLISHED_BY_RULE: None,
                f"workload:infscale_known_requests:sum{OF_WORKLOAD}": 12,
                f"workload:infscale_missing_replicas:count{OF_WORKLOAD}": 1,
                PROPOSED: 3,
                RECOMMENDED: 3,
            },
        )
        assert recommender.stop() == 0
        until(server, {BY_RECOMMENDER: None, PUBLISHED_BY_RULE: 18, TRIGGER: 18, PROPOSED: 3})
        health = {(rule["name"], rule["health"], rule.get("lastError")) for rule in rules_of(server)}

    assert {name for name, _, _ in health} > {"workload:infscale_waiting_requests:sum", "target:up:age_seconds"}
    assert {(name, error) for name, state, error in health if state != "ok"} == set()


def rules_of(server: Prometheus) -> list[dict[str, Any]]:
    """Every rule as the server has it, with what its last evaluation gave."""
    with requests.Session() as session:
        session.trust_env = False
        groups = session.get(f"{server.url}/api/v1/rules", timeout=LONG_S).json()["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]
