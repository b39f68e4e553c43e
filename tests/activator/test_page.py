"""The metrics page of an activator against the catalogue, and what its page for a person says."""

from __future__ import annotations

from infscale.activator.counts import HoldCollector, HoldCounters
from infscale.activator.page import activator_routes
from infscale.fleet.source import WorkloadName
from infscale.metrics.catalogue import in_group
from infscale.metrics.catalogue_activator import HELD_MEANINGS
from infscale.metrics.contract import ACTIVATOR
from infscale.web.message import Request
from tests.activator.rig import Client, activator, free_port, holds

NAMES = WorkloadName("ml", "vllm")


def test_the_page_is_the_catalogue():
    """Every metric of the catalogue is there from the start, with its labels, and nothing else."""
    collector = HoldCollector(NAMES, 1000, lambda: 3, HoldCounters())
    families = {family.name: family for family in collector.collect()}
    assert list(families) == [metric.name.removesuffix("_total") for metric in in_group(ACTIVATOR)]
    for metric in in_group(ACTIVATOR):
        for sample in families[metric.name.removesuffix("_total")].samples:
            assert sample.labels.keys() - {"le"} == set(metric.label_names)
            assert (sample.labels["workload_namespace"], sample.labels["workload"]) == ("ml", "vllm")
    outcomes = {sample.labels["outcome"]: sample.value for sample in families["infscale_held_requests"].samples}
    assert outcomes == dict.fromkeys(HELD_MEANINGS, 0)
    assert families["infscale_pending_requests"].samples[0].value == 3
    assert families["infscale_pending_requests_limit"].samples[0].value == 1000


def test_to_register_it_reads_nothing():
    """`describe` has the families without samples."""
    described = HoldCollector(NAMES, 1, lambda: 1, HoldCounters()).describe()
    assert [family.samples for family in described] == [[]] * len(in_group(ACTIVATOR))


def test_a_page_is_made_anew_only_when_something_changed():
    """Two snapshots of the same state make the same page."""
    counters, pending = HoldCounters(), [0]
    collector = HoldCollector(NAMES, 1, lambda: pending[0], counters)
    first = collector.snapshot()
    assert not first.same_as(None)
    assert collector.snapshot().same_as(first)
    pending[0] = 1
    assert not collector.snapshot().same_as(first)


def test_a_page_for_a_person():
    """It says that requests are held, how many of how many, and what came of the wake."""
    with activator(f"http://127.0.0.1:{free_port()}", max_held=7) as found, Client(found.port) as client:
        routes = activator_routes(found, NAMES, lambda: "not woken: <forbidden>")
        client.post()
        holds(found, 1)
        page = routes.dispatch(Request("GET", "/")).body.decode()
    for text in ("holding", "not woken: &lt;forbidden&gt;", "<dd>1</dd>", "<dd>7</dd>", "127.0.0.1", "not ready"):
        assert text in page
