"""The committed dashboards: as the code makes them, whole, and laid out without a fault."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import yaml

from tests.dashboards.panels import FILES, ROOT, dashboards, panels
from tools.dashboards.files import COMPONENT, FOLDER, files

DASHBOARDS = dashboards()
BY_UID = {each["uid"]: each for each in DASHBOARDS}

every = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=list(BY_UID))


def test_what_is_committed_is_what_the_code_makes():
    """`python -m tools.dashboards` changes nothing, and nothing else lies in its folders."""
    made = files()
    assert {*FOLDER.glob("*.json"), *COMPONENT.glob("*")} == set(made)
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(ROOT)}: run `python -m tools.dashboards`"


def test_each_dashboard_has_its_own_name():
    """Uids are fixed, unique and ours, so that an import overwrites nobody's; the titles say whose they are."""
    assert list(BY_UID) == sorted(BY_UID)
    assert {path.stem for path in FILES} == set(BY_UID)
    assert {each["title"] for each in DASHBOARDS} == {
        "infscale / Fleet",
        "infscale / Replica",
        "infscale / Scaling decision",
        "infscale / Drain and rollout",
        "infscale / Activator",
    }


@every
def test_classic_model_that_is_provisioned_as_it_is(dashboard: dict[str, Any]):
    """Schema 39, no id or version of a server, no inputs that provisioning leaves open, and one time for all."""
    assert dashboard["schemaVersion"] == 39
    assert dashboard["id"] is None
    assert "version" not in dashboard
    assert "__inputs" not in dashboard
    assert dashboard["tags"] == ["infscale"]
    assert dashboard["graphTooltip"] == 1
    assert dashboard["time"] == {"from": "now-1h", "to": "now"}
    assert "DS_PROMETHEUS" not in json.dumps(dashboard)


@every
def test_leads_to_the_others_and_shows_decisions(dashboard: dict[str, Any]):
    """A link keeps variables and time; each decision to change a count is an annotation."""
    (link,) = dashboard["links"]
    assert link["type"] == "dashboards"
    assert link["tags"] == ["infscale"]
    assert link["includeVars"]
    assert link["keepTime"]
    (decisions,) = dashboard["annotations"]["list"]
    assert "infscale_decisions_total" in decisions["expr"]
    assert decisions["datasource"]["uid"] == "${datasource}"


@every
def test_chooses_namespace_model_and_workload(dashboard: dict[str, Any]):
    """The same variables on each dashboard, so that links carry them; Pods where panels show single replicas."""
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    single = ["pod"] if dashboard["uid"] in ("infscale-replica", "infscale-drain") else []
    assert names == ["datasource", "namespace", "model_name", "workload", *single]


@every
def test_panels_do_not_overlap(dashboard: dict[str, Any]):
    """Each place of the grid of 24 columns is taken once; numbers are unique."""
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        places = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert at["x"] + at["w"] <= 24
        assert not places & taken, panel["title"]
        taken |= places
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)


@every
def test_begins_with_what_fails_most(dashboard: dict[str, Any]):
    """The first row is of numbers: what is wrong now, or how the decision came to be."""
    first, *rest = dashboard["panels"]
    assert first["type"] == "row"
    row = list(itertools.takewhile(lambda panel: panel["type"] != "row", rest))
    assert row
    assert {panel["type"] for panel in row} == {"stat"}


@every
def test_at_most_five_lines_a_graph(dashboard: dict[str, Any]):
    """A graph of named lines has at most five; more is one query by label, with a table as its legend."""
    for panel in panels(dashboard):
        if panel["type"] == "timeseries":
            assert len(panel["targets"]) <= 5, panel["title"]


@every
def test_config_map_carries_the_same_dashboard(dashboard: dict[str, Any]):
    """The ConfigMap has the label that Grafana's sidecar looks for, and the JSON unchanged."""
    uid = dashboard["uid"]
    made = yaml.safe_load((COMPONENT / f"{uid}.yaml").read_text())
    assert made["kind"] == "ConfigMap"
    assert made["metadata"]["name"] == uid
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(made["data"][f"{uid}.json"]) == dashboard


def test_kustomization_names_every_config_map():
    """It is a component, to be taken into any kustomization."""
    made = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())
    assert made["kind"] == "Component"
    assert sorted(made["resources"]) == [f"{uid}.yaml" for uid in BY_UID]
