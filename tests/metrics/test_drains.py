"""The page of a replica's drains: every outcome there from the start, in both formats, by every checker."""

from __future__ import annotations

import pytest

from infscale.metrics.catalogue_drain import DRAIN_MEANINGS
from infscale.metrics.collectors import own_registry
from infscale.metrics.drains import DURATION_BUCKETS_S, DrainCollector, DrainCounters
from infscale.metrics.negotiate import OPENMETRICS, TEXT
from infscale.metrics.render import Renderer
from tests.conftest import Golden
from tests.metrics.cases import CASES as REPLICAS
from tests.metrics.drain_cases import CASES
from tests.metrics.test_exposition import check_with_promtool, samples_of

each_case = pytest.mark.parametrize("name", CASES)


@each_case
def test_golden(name, golden: Golden):
    """Before, in and after a drain the page is the one that is written down."""
    golden(f"drain-{name}.prom", TEXT.write(CASES[name]).decode())


def test_golden_openmetrics(golden: Golden):
    """OpenMetrics differs from the text format as that format wants it."""
    golden("drain-deadline.openmetrics.txt", OPENMETRICS.write(CASES["deadline"]).decode())


@each_case
def test_promtool(name):
    """Prometheus' own linter has nothing to say, of a sidecar's whole page either."""
    check_with_promtool(TEXT.write(CASES[name]))
    check_with_promtool(Renderer(REPLICAS["ok"].collector(), own_registry("1"), also=[CASES[name]]).page().body)


def test_every_outcome_is_there_from_the_start():
    """Each outcome has its series at 0, so that the first drain shows as an increase."""
    samples = samples_of(CASES["none"].collect())
    for name in ("infscale_drains_total", "infscale_drain_requests_cut_total", "infscale_drain_duration_seconds_count"):
        assert {(name, (("outcome", outcome),), 0.0) for outcome in DRAIN_MEANINGS} <= samples
    assert ("infscale_draining", (), 0.0) in samples


def test_what_ended_adds_up():
    """Drains, their seconds and the requests cut are counted under their outcome."""
    samples = samples_of(CASES["deadline"].collect())
    deadline = (("outcome", "deadline"),)
    assert {
        ("infscale_drains_total", deadline, 2.0),
        ("infscale_drain_duration_seconds_sum", deadline, 140.0),
        ("infscale_drain_requests_cut_total", deadline, 15.0),
        ("infscale_draining", (), 1.0),
    } <= samples


def test_an_idle_engine_falls_into_the_first_bucket():
    """6 s and the two reads: what an idle engine costs is told apart from any wait."""
    assert DURATION_BUCKETS_S[0] > 6.0


def test_a_page_is_made_anew_only_when_something_changed():
    """Scrapes between two drains share the text."""
    counters, marked = DrainCounters(), [False]
    collector = DrainCollector(lambda: marked[0], counters)
    before = collector.snapshot()
    assert collector.snapshot().same_as(before)
    counters.ended("idle", 6.0)
    counted = collector.snapshot()
    assert not counted.same_as(before)
    marked[0] = True
    assert not collector.snapshot().same_as(counted)


def test_an_unknown_outcome_is_a_fault_of_ours():
    """The list of outcomes is closed; nothing else becomes a label."""
    with pytest.raises(KeyError):
        DrainCounters().ended("exploded", 1.0)
