"""The page of a replica: in every state, in both formats, by the catalogue and by every checker."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from infscale import reading as states
from infscale.activator.counts import HoldCollector, HoldCounters
from infscale.fleet.source import WorkloadName
from infscale.metrics import catalogue, contract
from infscale.metrics.collectors import BuildInfo, ReplicaCollector, own_registry
from infscale.metrics.negotiate import OPENMETRICS, TEXT
from infscale.metrics.render import Renderer
from infscale.normalise import read_page
from infscale.reading import FAILURES, STATES, Reading
from infscale.reload import Reloader
from infscale.watch import View
from tests.conftest import Golden
from tests.metrics.cases import CASES, READ_AT_S, Case, failed, model, view
from tests.metrics.drain_cases import CASES as DRAINS
from tests.metrics.workload_cases import CASES as WORKLOADS

each_case = pytest.mark.parametrize("name", CASES)


def text_of(case: Case) -> str:
    """The replica's part of a page, in the text format."""
    return TEXT.write(case.collector()).decode()


def samples_of(families) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
    """Each sample of some families: name, labels, value."""
    return {(s.name, tuple(sorted(s.labels.items())), s.value) for family in families for s in family.samples}


def values_of(case: Case, name: str) -> dict[str, float]:
    """The values of one metric by its only label (or by "")."""
    found = [s for f in case.collector().collect() for s in f.samples if s.name == name]
    return {"".join(sample.labels.values()): sample.value for sample in found}


@each_case
def test_golden(name, golden: Golden):
    """Each state and kind of replica has the page that is written down."""
    golden(f"replica-{name}.prom", text_of(CASES[name]))


def test_golden_openmetrics(golden: Golden):
    """OpenMetrics differs from the text format as that format wants it: counters' heads, and the closing line."""
    golden("replica-ok.openmetrics.txt", OPENMETRICS.write(CASES["ok"].collector()).decode())


@each_case
def test_promtool(name):
    """Prometheus' own linter has nothing to say, in any state."""
    check_with_promtool(TEXT.write(CASES[name].collector()))


def test_promtool_whole_page():
    """Nor about a whole page, with the process's own metrics."""
    page = Renderer(CASES["ok"].collector(), own_registry("1.2.3")).page()

    assert b"infscale_build_info" in page.body
    check_with_promtool(page.body)


def check_with_promtool(page: bytes) -> None:
    """Fail with what promtool says, if it says anything."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert (done.returncode, done.stdout.decode()) == (0, "")


@each_case
def test_both_parsers_read_what_was_meant(name):
    """The client library's parsers read, from both formats, exactly the samples that the collector gave."""
    meant = samples_of(CASES[name].collector().collect())
    text = samples_of(text_string_to_metric_families(text_of(CASES[name])))
    page = OPENMETRICS.write(CASES[name].collector()).decode()

    assert meant == text
    assert meant == samples_of(openmetrics.text_string_to_metric_families(page))


@limits(max_examples=60)
@given(st.text(st.characters(), max_size=8), st.floats(min_value=0, allow_infinity=False, allow_nan=False))
def test_any_model_name_and_value_survive(name, value):
    """A model name with any character, and any count, are read back as they were; lone surrogates become `?`."""
    case = Case((view(Reading("vllm", states.OK, (model(name, value, 0.0),))),))
    expected = name.encode("utf-8", "replace").decode()

    for read in (
        text_string_to_metric_families(text_of(case)),
        openmetrics.text_string_to_metric_families(OPENMETRICS.write(case.collector()).decode()),
    ):
        labels = tuple({"model_name": expected}.items())
        assert ("infscale_running_requests", labels, value) in samples_of(read)


def test_every_state_has_a_case():
    """The golden files cover each state of a replica."""
    assert set(STATES) == {case.views[0].state for case in CASES.values()}


@each_case
def test_exactly_one_state_is_1(name):
    """All states are there, and one of them is 1."""
    shown = values_of(CASES[name], "infscale_engine_state")

    assert set(STATES) == set(shown)
    assert [value for value in shown.values() if value] == [1.0]


@each_case
def test_every_failure_is_there_from_the_start(name):
    """Each kind of failed read has a series, 0 before it happened."""
    shown = values_of(CASES[name], "infscale_scrape_failures_total")

    assert {reason: CASES[name].failures.get(reason, 0.0) for reason in FAILURES} == shown


@each_case
def test_a_queue_that_vanishes_is_never_0(name):
    """Without a reading there is no request count, no capacity and no timestamp: absent, not 0."""
    case = CASES[name]
    page = text_of(case)
    shows = all(one.reading for one in case.views)

    assert shows == ("infscale_inflight_requests{" in page)
    assert shows == ("infscale_reading_timestamp_seconds" in page)
    for absent in ("_waiting_requests", "_kv_cache", "_capacity", "_tokens_total", "_finished", "_first_token"):
        assert shows or absent not in page


@each_case
def test_never_on_a_page(name):
    """No NaN, no `_created`, no sample timestamp, and no series twice."""
    lines = [line for line in text_of(CASES[name]).splitlines() if not line.startswith("#")]
    series = [line.rpartition(" ")[0] for line in lines]

    assert len(series) == len(set(series))
    assert not [line for line in lines if "NaN" in line or "_created" in line or "StateSet" in line]
    assert all(sample.timestamp is None for f in CASES[name].collector().collect() for sample in f.samples)


@pytest.mark.parametrize(
    ("name", "up"),
    [
        *[("ok", 1.0), ("fresh", 1.0), ("asleep", 1.0), ("stale", 1.0), ("several-engines", 1.0)],
        *[("saturated-held", 0.0), ("loading", 0.0), ("unreachable", 0.0), ("stats-disabled", 0.0)],
        *[("misconfigured", 0.0), ("not-an-engine", 0.0), ("saturated", 0.0), ("one-of-two-silent", 0.0)],
    ],
)
def test_up_is_about_the_last_read(name, up):
    """`infscale_up` is 1 when the last read gave metrics, and not for values that are only held."""
    assert {"": up} == values_of(CASES[name], "infscale_up")


def test_parts_add_up():
    """Running and waiting add up to in flight; where an engine tells only a total they are absent."""
    for name in ("ok", "several-models", "several-engines", "two-kinds-of-engine", "stale"):
        running = values_of(CASES[name], "infscale_running_requests")
        waiting = values_of(CASES[name], "infscale_waiting_requests")
        assert {m: running[m] + waiting[m] for m in running} == values_of(CASES[name], "infscale_inflight_requests")

    assert values_of(CASES["total-only"], "infscale_inflight_requests") == {"qwen": 9.0}
    assert not values_of(CASES["total-only"], "infscale_running_requests")


def test_info_keeps_its_last_known_values():
    """While reads fail the engine keeps its name; before the first good read there is none."""
    assert "infscale_engine_info{" in text_of(CASES["unreachable"])
    assert "infscale_engine_info" not in text_of(CASES["loading"])


def test_adapters_are_never_split():
    """The page of a vLLM that serves LoRA adapters is one series of each metric, with the base model's name."""
    page = (
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="base"} 3.0\n'
        "# TYPE vllm:num_requests_waiting gauge\n"
        'vllm:num_requests_waiting{engine="0",model_name="base"} 1.0\n'
        "# TYPE vllm:lora_requests_info gauge\n"
        'vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,poem",waiting_lora_adapters="sql"} 1.79e+09\n'
    )
    reading = read_page(page)
    assert isinstance(reading, Reading)

    case = Case((view(reading),))

    assert values_of(case, "infscale_inflight_requests") == {"base": 4.0}
    assert "sql" not in text_of(case)


def test_no_histogram_that_is_none():
    """A histogram whose counts fall, or that has no +Inf, is left out as a whole; the rest of the page stays."""
    inf = float("inf")
    for buckets in (((0.1, 3.0), (inf, 2.0)), ((0.1, 1.0),), ()):
        broken = states.Histogram("request_queue", "m", buckets, 1.0)
        case = Case((view(Reading("vllm", states.OK, (model("m", 1.0, 0.0),), histograms=(broken,))),))
        assert "infscale_request_queue_seconds" not in text_of(case)
        assert values_of(case, "infscale_inflight_requests") == {"m": 1.0}


def families_by_name() -> dict[str, list[Metric]]:
    """Every family of ours that any case publishes, under its name in the text format."""
    found: dict[str, list[Metric]] = {}
    replicas = [family for case in CASES.values() for family in case.collector().collect()]
    workloads = [family for case in WORKLOADS.values() for family in case.collector().collect()]
    drains = [family for case in DRAINS.values() for family in case.collect()]
    activator = HoldCollector(WorkloadName("ml", "vllm"), 1000, lambda: 3, HoldCounters()).collect()
    reloads = Reloader(list).collect()
    for family in [*replicas, *drains, *workloads, *activator, *reloads, *BuildInfo("1.2.3").collect()]:
        found.setdefault(family.name + "_total" * (family.type == "counter"), []).append(family)
    return found


def test_catalogue_and_exposition_agree():
    """Each metric of the catalogue is published by some case, and nothing else is; types, help and labels are equal."""
    published = families_by_name()

    assert {metric.name for metric in catalogue.METRICS} == set(published)
    for metric in catalogue.METRICS:
        extra = {"le"} if metric.type == contract.HISTOGRAM else set()
        for family in published[metric.name]:
            assert (metric.type, metric.help) == (family.type, family.documentation)
            for sample in family.samples:
                assert set(sample.labels) - extra == set(metric.label_names)


def test_closed_labels_are_as_listed():
    """A label with a closed list of values has these values and no other."""
    for metric in catalogue.METRICS:
        for label in metric.labels:
            shown = {s.labels[label.name] for f in families_by_name()[metric.name] for s in f.samples}
            assert not label.values or set(label.values) == shown


def test_the_page_is_in_the_catalogues_order():
    """Families come in the catalogue's order, so that two pages can be compared by eye."""
    order = [metric.name for metric in catalogue.METRICS]
    for name in CASES:
        heads = [line.split()[2] for line in text_of(CASES[name]).splitlines() if line.startswith("# TYPE")]
        assert heads == [known for known in order if known in heads]


def test_registering_reads_no_engine():
    """`describe()` tells the families, so that a registry need not read the engine for them; twice is refused."""
    reads: list[View] = []

    def read() -> list[View]:
        reads.append(failed(states.LOADING, "refused"))
        return reads[-1:]

    registry = CollectorRegistry(auto_describe=True)
    registry.register(ReplicaCollector(read, dict))

    assert reads == []
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(ReplicaCollector(read, dict))
    assert registry.get_sample_value("infscale_up") == 0.0
    assert len(reads) == 1


def test_timestamp_is_the_reads():
    """The timestamp is that of the values shown, also when they are held."""
    for name in ("ok", "saturated-held"):
        assert values_of(CASES[name], "infscale_reading_timestamp_seconds") == {"": READ_AT_S}
