"""A workload as a plain value, and what adds up over its evaluations."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.core.decision import Reason
from infscale.core.replicas import Phase
from infscale.core.scale_decision import Counts as PhaseCounts
from infscale.metrics.catalogue_workload import COUNT_MEANINGS, DIRECTIONS, PAID_MEANINGS, REASON_MEANINGS
from infscale.metrics.workload import Counts, WorkloadView, direction
from infscale.metrics.workload_counters import COLD_START_BUCKETS_S, MAX_GAP_S, PAID_STATES, WorkloadCounters
from tests.metrics.workload_cases import HELD, NOW_S, VIEWS


def test_reasons_are_the_cores():
    """Every reason of the core is explained, in its order, and no other."""
    assert [reason.value for reason in Reason] == list(REASON_MEANINGS)


def test_states_are_the_cores():
    """What is paid for is what a decision sees of a replica; every state has a count."""
    assert set(PAID_MEANINGS) == {phase.value for phase in Phase} == set(PhaseCounts.__slots__)
    assert set(COUNT_MEANINGS) | set(PAID_MEANINGS) == set(Counts.__dataclass_fields__)


def test_another_reason_is_refused():
    """A reason that no series could show is a mistake of the caller."""
    with pytest.raises(ValueError, match="expected one of metric"):
        WorkloadView("inference", "llama", reason="mood")


@pytest.mark.parametrize(
    ("changes", "inflight"),
    [
        pytest.param({}, 71.0, id="measured"),
        pytest.param({"measured": 0.0}, 0.0, id="idle-replicas-answered"),
        pytest.param({"measured": None, "replicas": Counts(spec=3, serving=0, silent=3)}, None, id="all-silent"),
        pytest.param({"measured": 0.0, "replicas": Counts(spec=3, serving=0, silent=3)}, None, id="sum-of-nothing"),
        pytest.param({"measured": 0.0, "replicas": Counts(spec=2, serving=0, starting=2)}, None, id="all-starting"),
        pytest.param({"measured": 0.0, "replicas": Counts()}, None, id="nothing-read"),
        pytest.param({"measured": None, "replicas": Counts(spec=0)}, 0.0, id="scaled-to-zero"),
        pytest.param({"measured": 0.0, "replicas": Counts(spec=0)}, 0.0, id="scaled-to-zero-summed"),
        pytest.param({"measured": None, "replicas": Counts(spec=0), "held": None}, None, id="zero-activator-silent"),
        pytest.param({"measured": 5.0, "replicas": Counts(spec=0, serving=0), "held": 5.0}, 5.0, id="zero-held"),
        pytest.param({"measured": 5.0, "replicas": Counts(spec=1, starting=1), "held": 5.0}, 5.0, id="waking-held"),
        pytest.param({"measured": 4.0, "replicas": Counts(spec=0, serving=1)}, 4.0, id="zero-one-still-serves"),
    ],
)
def test_a_zero_is_measured_or_read(changes, inflight):
    """A 0 comes from replicas that answered or from spec.replicas; the same holds for the demand."""
    view = replace(HELD, **changes)
    filled = replace(view, filled=view.measured)

    assert view.inflight == inflight
    assert filled.demand == inflight


def test_filled_demand_stands_without_a_value():
    """The demand of silent replicas is filled in, while what is in flight is not known."""
    view = VIEWS["all-silent"]

    assert (view.inflight, view.demand) == (None, 72.0)


def test_no_request_metric_no_demand():
    """A policy that scales on something else than requests has no demand, not even at zero."""
    view = replace(VIEWS["zero"], target=None)

    assert (view.inflight, view.demand) == (0.0, None)


@pytest.mark.parametrize(
    ("current", "desired", "way"),
    [(3, 5, "up"), (5, 3, "down"), (3, 3, "none"), (None, 3, "none"), (3, None, "none"), (0, 1, "up"), (1, 0, "down")],
)
def test_direction(current, desired, way):
    """The direction is that of the two counts; unknown ones have none."""
    view = replace(HELD, recommended=desired, replicas=Counts(spec=current))

    assert way == direction(current, desired) == view.direction


def test_counters_start_at_0():
    """Every pair of direction and reason, every bucket and state is there from the start."""
    totals = WorkloadCounters().totals()

    assert dict(totals.decisions) == {(way, reason): 0 for way in DIRECTIONS for reason in REASON_MEANINGS}
    assert totals.cold_start_buckets == tuple((le, 0) for le in COLD_START_BUCKETS_S)
    assert totals.replica_seconds == tuple((state, 0.0) for state in PAID_STATES)
    assert (totals.cold_start_sum_s, totals.state_resets) == (0.0, 0)


def test_decisions_are_counted():
    """Each evaluation counts under what it did and why."""
    counters = WorkloadCounters()
    for name in ("typical", "up", "typical", "no-spec"):
        counters.evaluated(VIEWS[name])
    counted = {pair: count for pair, count in counters.totals().decisions if count}

    assert counted == {("none", "tolerance"): 2, ("up", "rate_limited"): 1, ("none", "error"): 1}


def test_a_view_of_no_evaluation_is_refused():
    """What was not evaluated is not counted."""
    counters = WorkloadCounters()
    for view in (VIEWS["not-evaluated"], replace(HELD, reason=""), replace(HELD, evaluated_at_s=None)):
        with pytest.raises(ValueError, match="no evaluation"):
            counters.evaluated(view)

    assert counters.totals() == WorkloadCounters().totals()


def test_cold_starts():
    """A cold start is in every bucket that it fits in, the bound included; what is no duration is left out."""
    counters = WorkloadCounters()
    counters.evaluated(HELD, cold_starts_s=(5.0, 5.5, 3600.0, -1.0, math.nan, math.inf))
    totals = counters.totals()
    buckets = dict(totals.cold_start_buckets)

    assert (buckets[5], buckets[10], buckets[1800], buckets[math.inf]) == (1, 2, 2, 3)
    assert totals.cold_start_sum_s == 3610.5


def at(seconds: float, **replicas: int) -> WorkloadView:
    """An evaluation so many seconds after NOW_S, with these replicas."""
    return replace(HELD, evaluated_at_s=NOW_S + seconds, replicas=Counts(**replicas))


def test_replica_seconds():
    """Replicas are paid for from one evaluation to the next, each in its state; what was not read is not paid for."""
    counters = WorkloadCounters()
    counters.evaluated(at(0, serving=2, starting=1))
    counters.evaluated(at(15, serving=3, starting=0, silent=0, draining=0))
    counters.evaluated(at(30))
    counters.evaluated(at(45, draining=1, silent=4))
    counters.evaluated(at(55, serving=9))

    paid = {"serving": 2 * 15 + 3 * 15.0, "starting": 15.0, "silent": 40.0, "draining": 10.0}
    assert dict(counters.totals().replica_seconds) == paid


def test_a_gap_is_not_made_up():
    """A clock that goes back counts nothing, one that leaps (a suspended machine) five minutes at most."""
    counters = WorkloadCounters()
    counters.evaluated(at(0, serving=1))
    counters.evaluated(at(-1000, serving=1))
    assert dict(counters.totals().replica_seconds)["serving"] == 0.0

    counters.evaluated(at(100_000, serving=1))

    assert dict(counters.totals().replica_seconds)["serving"] == MAX_GAP_S


def test_state_resets():
    """Each state file that was set aside counts."""
    counters = WorkloadCounters()
    counters.state_reset()
    counters.state_reset()

    assert counters.totals().state_resets == 2


@given(st.lists(st.tuples(st.floats(-1e3, 1e6), st.sampled_from(sorted(VIEWS)), st.floats(-10, 1e4)), max_size=20))
def test_counters_only_grow(evaluations):
    """Whatever the clock and the views do, no count ever falls, and none is negative or no number."""
    counters = WorkloadCounters()
    before = flat(counters)
    for time_s, name, cold_start_s in evaluations:
        if VIEWS[name].reason:
            counters.evaluated(replace(VIEWS[name], evaluated_at_s=time_s), cold_starts_s=(cold_start_s,))
        after = flat(counters)
        assert all(0 <= old <= new < math.inf for old, new in zip(before, after, strict=True))
        before = after


def flat(counters: WorkloadCounters) -> list[float]:
    """Every count, in order."""
    totals = counters.totals()
    return [
        *(float(count) for _, count in totals.decisions),
        *(count for _, count in totals.cold_start_buckets),
        totals.cold_start_sum_s,
        *(seconds for _, seconds in totals.replica_seconds),
        float(totals.state_resets),
    ]


def test_many_threads_lose_nothing():
    """Counts told by several threads while others read are all there, and each reading is of one instant."""
    counters = WorkloadCounters()
    torn: list[float] = []

    def tell() -> None:
        for _ in range(200):
            counters.evaluated(HELD, cold_starts_s=(10.0,))

    def read() -> None:
        for _ in range(200):
            totals = counters.totals()
            if totals.cold_start_sum_s != 10.0 * totals.cold_start_buckets[-1][1]:
                torn.append(totals.cold_start_sum_s)

    threads = [threading.Thread(target=work) for work in (tell, read, tell, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert torn == []
    assert dict(counters.totals().decisions)["none", "tolerance"] == 400
