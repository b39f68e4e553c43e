"""Scaling down through a retirement: what a decision asks for, in the caller's thread and in its own."""

from __future__ import annotations

import time

import pytest

from infscale.applier import KubeApplier
from infscale.cli.kube_output import outcome_of
from infscale.core.decision import Reason
from infscale.core.grammar import parse_policy
from infscale.core.memory import AT_ONCE
from infscale.core.scale_decision import Counts, ScaleDecision
from infscale.kube_command import KubeTurns, RetiringScaler, Scaled
from infscale.pod_pages import PageSettings, PodPages
from infscale.retire.record import State
from infscale.retirement import RETRY_AFTER_S, Retirement
from tests.kube.wire import Fault
from tests.retire.rig import Rig


def retirement(rig: Rig, **options) -> Retirement:
    """One whose waits drive the clock."""

    def wait(seconds: float) -> None:
        rig.now_s += seconds

    return Retirement(
        rig.retirer(),
        clock=lambda: rig.now_s,
        wall_clock=lambda: rig.now_s,
        wait=wait,
        **{"background": False, **options},
    )


def applier(rig: Rig, one: Retirement) -> KubeApplier:
    """What `recommender --apply --retire` scales with."""
    return KubeApplier(
        rig.cluster(), "deployment", "ml", "vllm", "a", retirement=one, lease_s=600, wall_clock=lambda: rig.now_s
    )


def to(desired: int | None, current: int = 3) -> ScaleDecision:
    """A decision."""
    return ScaleDecision(current, desired, desired, desired, Reason.METRIC, (), Counts(), 1.0)


def busy(rig: Rig) -> None:
    """No replica is idle."""
    for pod in rig.pods:
        rig.sidecar(pod).inflight = 2


def test_down_takes_one_away_and_up_is_written(rig):
    """3 to 1 takes one idle replica away, not two at once; 2 to 4 is a plain write."""
    scaler = applier(rig, retirement(rig))
    message = scaler.apply(to(1), rig.now_s)

    assert (rig.replicas, len(rig.pods)) == (2, 2)
    assert "Completed" in message
    assert scaler.apply(to(1, current=2), rig.now_s)
    assert rig.replicas == 1
    assert scaler.apply(to(4, current=1), rig.now_s) == ""
    assert rig.replicas == 4


def test_what_is_busy_stays_and_a_person_has_to_look(rig):
    """An aborted retirement says why, is not begun again by itself, and every replica is back in rotation."""
    busy(rig)
    one = retirement(rig)
    first, second = one.down(), one.down()

    assert rig.replicas == 3
    assert "Aborted" in first
    assert "still-serving" in first
    assert "needs-retry" in second
    assert not any(sidecar.withdrawn for sidecar in rig.sidecars.values())


def test_retry_begins_another_after_a_while(rig):
    """With retry the next one begins RETRY_AFTER_S later, not at the next decision."""
    busy(rig)
    one = retirement(rig, retry=True)
    one.down()
    for sidecar in rig.sidecars.values():
        sidecar.inflight = 0
    message = one.down()

    assert "another try" in message
    assert rig.replicas == 3
    rig.now_s += RETRY_AFTER_S
    assert "Completed" in one.down()
    assert rig.replicas == 2


def test_what_another_process_began_is_called_off(rig):
    """A process that begins with a decision to stay puts the replica back; the way down is open for later."""
    rig.run(rig.retirer(), State.DRAINING)
    one = retirement(rig)
    one.keep("load rises")

    assert rig.replicas == 3
    assert not any(sidecar.withdrawn for sidecar in rig.sidecars.values())
    assert "Completed" in one.down()
    assert rig.replicas == 2


@pytest.mark.parametrize("background", [False, True])
def test_calling_off_outlasts_an_api_server_that_is_away(rig, background):
    """The replica is put back as soon as the API server answers again, not left to its lease and its budget."""
    rig.run(rig.retirer(), State.DRAINING)
    one = retirement(rig, background=background)
    rig.api.faults.append(Fault("status", path="/deployments/vllm", status=422, times=2))
    until_s = time.monotonic() + 30
    one.keep("load rises")
    while any(sidecar.withdrawn for sidecar in rig.sidecars.values()) and time.monotonic() < until_s:
        one.keep("load rises")
        time.sleep(0.02)
    one.stop()

    assert "cancelled: load rises" in rig.record
    assert [fault.times for fault in rig.api.faults] == [0]


def test_what_another_process_left_meanwhile_is_called_off(rig):
    """The Lease was another's for a while, which began a retirement and died: that is not this one's to go on with."""
    one = retirement(rig)
    one.keep("all are busy")
    one.pause()
    rig.run(rig.retirer(), State.DRAINING)
    one.keep("all are busy")

    assert not any(sidecar.withdrawn for sidecar in rig.sidecars.values())
    assert "cancelled: all are busy" in rig.record


def test_a_count_that_was_not_decided_on_begins_nothing(rig):
    """The decision is about five replicas, and there are three by now: the next decision is about these."""
    message = applier(rig, retirement(rig)).apply(to(3, current=5), rig.now_s)

    assert message == "not scaled: deployment ml/vllm asks for 3 by now, not 5: deciding anew"
    assert rig.replicas == 3
    assert not rig.sidecars


def test_called_off_is_no_abort_for_the_next_process(rig):
    """What a decision called off may be begun by a process that knows nothing of it, without a person."""
    rig.run(rig.retirer(), State.DRAINING)
    retirement(rig).keep("load rises")

    assert "Completed" in retirement(rig).down()


def test_from_deleting_on_it_goes_on(rig):
    """A decision to stay that comes too late ends what was begun, and no second one."""
    retirer = rig.retirer()
    while rig.replicas != 2:
        rig.step(retirer)
    one = retirement(rig)
    one.keep("load rises")

    assert (rig.replicas, len(rig.pods)) == (2, 2)


def test_in_its_own_thread(rig):
    """A decision does not wait for the protocol: it goes on by itself, and ends with the process."""
    one = retirement(rig, background=True)
    assert "begins" in one.down()
    until_s = time.monotonic() + 30
    while rig.replicas == 3 and time.monotonic() < until_s:
        one.down()
        time.sleep(0.02)
    one.stop()

    assert rig.replicas == 2


def test_without_the_lease_nothing_goes_on(rig):
    """Another recommender holds the Lease: no replica is withdrawn by this one."""
    other = applier(rig, retirement(rig))
    assert other.apply(to(3), rig.now_s) == ""
    mine = KubeApplier(
        rig.cluster(), "deployment", "ml", "vllm", "b", retirement=retirement(rig), wall_clock=lambda: rig.now_s
    )

    assert "another recommender holds the Lease" in mine.apply(to(1), rig.now_s)
    assert rig.replicas == 3
    assert not any(sidecar.withdrawn for sidecar in rig.sidecars.values())


def test_missing_data_takes_nothing_away(rig):
    """Where nothing could be decided, what is under way is called off."""
    rig.run(rig.retirer(), State.DRAINING)
    applier(rig, retirement(rig)).apply(to(None), rig.now_s)

    assert rig.replicas == 3
    assert not any(sidecar.withdrawn for sidecar in rig.sidecars.values())
    assert "cancelled: nothing could be decided (metric)" in rig.record


def test_kube_scales_down_through_it(rig):
    """`infscale kube --apply --retire`: idle replicas leave one a run; what is busy stays."""
    pages = PodPages(rig.cluster(), "deployment", "ml", "vllm", PageSettings())

    def turns() -> KubeTurns:
        scaler = RetiringScaler(applier(rig, retirement(rig)), rig.cluster())
        policy = parse_policy("queue:4,max=3")
        return KubeTurns(pages, policy, state=AT_ONCE, scaler=scaler, wall_clock=lambda: rig.now_s)

    for pod in rig.pods:
        rig.sidecar(pod).inflight = 0
    turn = turns().turn()
    assert (turn.decision.current, turn.decision.desired, rig.replicas) == (3, 1, 2)
    assert turn.scaled is not None
    assert "Completed" in turn.scaled.message
    assert outcome_of(turn) == "scaled deployment ml/vllm from 3 to 2, 1 was decided"
    turn = turns().turn()
    assert (turn.scaled, rig.replicas) == (Scaled(True, turn.scaled.message if turn.scaled else ""), 1)
