"""The page of a workload: in every situation, in both formats, by every checker; alone and below a replica's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from infscale.metrics import catalogue
from infscale.metrics.catalogue_workload import REASON_MEANINGS
from infscale.metrics.collectors import ReplicaCollector, Snapshot, own_registry
from infscale.metrics.negotiate import OPENMETRICS, TEXT
from infscale.metrics.render import Renderer
from infscale.metrics.workload import WorkloadView
from infscale.metrics.workload_collector import WorkloadCollector, WorkloadSnapshot
from infscale.metrics.workload_counters import WorkloadCounters
from tests.conftest import Golden
from tests.metrics.cases import CASES as REPLICAS
from tests.metrics.cases import view as replica_view
from tests.metrics.test_exposition import check_with_promtool, samples_of
from tests.metrics.workload_cases import CASES, HELD, NOW_S, VIEWS

each_case = pytest.mark.parametrize("name", CASES)
LABELS = b'{workload="llama",workload_namespace="inference"}'
OPENMETRICS_TYPE = "application/openmetrics-text;version=1.0.0"


def text_of(name: str) -> str:
    """The workload's part of a page, in the text format."""
    return TEXT.write(CASES[name].collector()).decode()


def values_of(name: str, metric: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The values of one metric, by the labels besides the workload's own."""
    found = [s for f in CASES[name].collector().collect() for s in f.samples if s.name == metric]
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in found}


@each_case
def test_golden(name, golden: Golden):
    """Each situation of a workload has the page that is written down."""
    golden(f"workload-{name}.prom", text_of(name))


def test_golden_openmetrics(golden: Golden):
    """OpenMetrics differs from the text format as that format wants it."""
    golden("workload-typical.openmetrics.txt", OPENMETRICS.write(CASES["typical"].collector()).decode())


@each_case
def test_promtool(name):
    """Prometheus' own linter has nothing to say: of the families alone, of a recommender's and a sidecar's page."""
    check_with_promtool(TEXT.write(CASES[name].collector()))
    check_with_promtool(Renderer(CASES[name].collector(), own_registry("1.2.3")).page().body)
    check_with_promtool(sidecar_page(name).encode())


def sidecar_page(name: str, accept: str = "") -> str:
    """The page of a sidecar with a fleet source."""
    replica, workload = REPLICAS["ok"].collector(), CASES[name].collector()
    return Renderer(replica, own_registry("1.2.3"), also=(workload,)).page(accept).body.decode()


@each_case
def test_both_parsers_read_what_was_meant(name):
    """The client library's parsers read, from both formats, exactly the samples that the collector gave."""
    meant = samples_of(CASES[name].collector().collect())
    page = OPENMETRICS.write(CASES[name].collector()).decode()

    assert meant == samples_of(text_string_to_metric_families(text_of(name)))
    assert meant == samples_of(openmetrics.text_string_to_metric_families(page))


@each_case
def test_sidecar_pages_parse(name):
    """A page with a replica and a workload parses in both formats: no family twice, in the catalogue's order."""
    text, strict = sidecar_page(name), sidecar_page(name, OPENMETRICS_TYPE)
    names = [family.name for family in text_string_to_metric_families(text)]
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE infscale")]

    assert len(names) == len(set(names))
    assert sorted(names) == sorted(f.name for f in openmetrics.text_string_to_metric_families(strict))
    assert heads == [metric.name for metric in catalogue.METRICS if metric.name in heads]
    assert strict.count("# EOF") == 1


@each_case
def test_every_series_names_its_workload(name):
    """All series carry the workload's namespace and name, and nothing else does: no other label is open."""
    for family in CASES[name].collector().collect():
        for sample in family.samples:
            assert (sample.labels["workload_namespace"], sample.labels["workload"]) == ("inference", "llama")


@each_case
def test_never_on_a_page(name):
    """No NaN, no `_created`, no sample timestamp, and no series twice."""
    lines = [line for line in text_of(name).splitlines() if not line.startswith("#")]
    series = [line.rpartition(" ")[0] for line in lines]

    assert len(series) == len(set(series))
    assert not [line for line in lines if "NaN" in line or "_created" in line]
    assert all(sample.timestamp is None for f in CASES[name].collector().collect() for sample in f.samples)


@each_case
def test_exactly_one_reason_is_1(name):
    """All reasons are there and one of them is 1; before the first evaluation none is there."""
    shown = values_of(name, "infscale_decision_reason", "reason")

    if VIEWS[name].reason:
        assert {(reason,) for reason in REASON_MEANINGS} == set(shown)
        assert [reason for (reason,), value in shown.items() if value] == [VIEWS[name].reason]
    else:
        assert shown == {}


@each_case
def test_counters_are_there_from_the_start(name):
    """Every counter and the histogram have all their series in every situation, 0 before anything happened."""
    assert len(values_of(name, "infscale_decisions_total", "direction", "reason")) == 3 * len(REASON_MEANINGS)
    assert len(values_of(name, "infscale_replica_seconds_total", "state")) == 4
    assert len(values_of(name, "infscale_cold_start_seconds_count")) == 1
    assert len(values_of(name, "infscale_state_resets_total")) == 1


def test_nothing_but_counters_before_the_first_evaluation():
    """A workload that was not evaluated has no count, no reason and no time: absent, not 0."""
    shown = {family.name for family in CASES["not-evaluated"].collector().collect()}

    assert shown == {
        "infscale_decisions",
        "infscale_cold_start_seconds",
        "infscale_replica_seconds",
        "infscale_state_resets",
    }


def test_absent_is_not_0():
    """Without spec.replicas there is no recommendation; with all replicas silent nothing is in flight, not even 0."""
    assert "infscale_recommended_replicas" not in text_of("no-spec")
    assert "infscale_hpa_recommended_replicas" not in text_of("no-spec")
    assert set(values_of("no-spec", "infscale_replicas", "state")) == {("starting",), ("silent",), ("draining",)}

    assert "infscale_workload_inflight_requests" not in text_of("all-silent")
    assert values_of("all-silent", "infscale_workload_demand_requests") == {(): 72.0}
    assert values_of("all-silent", "infscale_recommended_replicas") == {(): 3.0}


def test_zero_is_explicit_only_where_it_was_read():
    """At zero replicas the load is an explicit 0, so that KEDA's query has a result; not if an activator is silent."""
    load = ("infscale_workload_inflight_requests", "infscale_workload_demand_requests")

    assert [values_of("zero", name) for name in load] == [{(): 0.0}, {(): 0.0}]
    assert [values_of("zero-held", name) for name in load] == [{(): 5.0}, {(): 5.0}]
    assert [values_of("zero-activator-silent", name) for name in load] == [{}, {}]
    assert values_of("zero", "infscale_recommended_replicas") == {(): 0.0}


def test_no_value_that_is_none():
    """A value that is no count (NaN, infinite, negative) leaves its series out and the rest of the page whole."""
    broken = replace(HELD, measured=float("nan"), filled=float("inf"), target=-1.0, coverage=float("nan"))
    text = TEXT.write(WorkloadCollector(lambda: broken, WorkloadCounters())).decode()

    for name in ("workload_inflight", "workload_demand", "target_inflight", "coverage"):
        assert f"infscale_{name}" not in text
    assert "infscale_recommended_replicas{" in text


def test_nobody_told_the_name():
    """Without a namespace the label is empty, which to Prometheus is no label; the page is fine."""
    text = TEXT.write(WorkloadCollector(lambda: WorkloadView("", "llama"), WorkloadCounters()))

    assert b'{workload="llama",workload_namespace=""}' in text
    check_with_promtool(text)


def test_registering_asks_for_no_view():
    """`describe()` tells the families without a view; twice is refused."""
    asked: list[WorkloadView] = []

    def view() -> WorkloadView:
        asked.append(HELD)
        return HELD

    registry = CollectorRegistry(auto_describe=True)
    registry.register(WorkloadCollector(view, WorkloadCounters()))

    assert asked == []
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(WorkloadCollector(view, WorkloadCounters()))


class Sidecar:
    """A sidecar with a fleet source: views that change, and a count of the renderings of each half."""

    def __init__(self) -> None:
        self.engine, self.workload, self.counters = replica_view(), HELD, WorkloadCounters()
        self.rendered = {"replica": 0, "workload": 0}
        sidecar = self

        class CountingReplica(ReplicaCollector):
            def families(self, snapshot: Snapshot) -> list[Metric]:
                sidecar.rendered["replica"] += 1
                return super().families(snapshot)

        class CountingWorkload(WorkloadCollector):
            def families(self, snapshot: WorkloadSnapshot) -> list[Metric]:
                sidecar.rendered["workload"] += 1
                return super().families(snapshot)

        replica = CountingReplica(lambda: [self.engine], dict)
        workload = CountingWorkload(lambda: self.workload, self.counters)
        self.renderer = Renderer(replica, own_registry("1.2.3"), also=(workload,), clock=lambda: 100.0)


def test_each_half_is_rendered_when_it_changes():
    """A new reading does not write the workload anew, nor an evaluation the replica; nothing new writes nothing."""
    sidecar = Sidecar()
    first = sidecar.renderer.page()
    assert sidecar.renderer.page() is first
    assert sidecar.rendered == {"replica": 1, "workload": 1}

    sidecar.engine = replica_view(state="stale")
    assert b'infscale_engine_state{state="stale"} 1.0' in sidecar.renderer.page().body
    assert sidecar.rendered == {"replica": 2, "workload": 1}

    sidecar.workload = replace(HELD, recommended=4, reason="metric", evaluated_at_s=NOW_S + 15)
    assert b"infscale_recommended_replicas%b 4.0" % LABELS in sidecar.renderer.page().body
    assert sidecar.rendered == {"replica": 2, "workload": 2}

    sidecar.counters.state_reset()
    assert b"infscale_state_resets_total%b 1.0" % LABELS in sidecar.renderer.page().body
    assert sidecar.rendered == {"replica": 2, "workload": 3}
