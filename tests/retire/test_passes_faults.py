"""Retirements, pass by pass, around which things change or fail between a look and what follows from it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from infscale.kube.objects import DELETION_COST
from infscale.retire.persisted import ANNOTATION
from infscale.retire.record import State
from infscale.retire.rules import Rule
from tests.kube.controller import restart
from tests.kube.wire import Fault
from tests.retire.rig import Rig

POD = "vllm-00001"
GROUP, SIZE = "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/size"


def at(rig: Rig, method: str, ending: str, do: Callable[[], object]) -> None:
    """Something happens, once, just before a call is answered."""
    before = rig.api.hook

    def hook() -> None:
        call = rig.api.requests[-1]
        if (call.method, call.path.endswith(ending)) == (method, True):
            rig.api.hook = before
            do()
        before()

    rig.api.hook = hook


def another(rig: Rig) -> None:
    """Another Pod has the target's name."""
    pod = rig.api.get("pods", POD)
    pod["metadata"].pop("resourceVersion")
    rig.api.remove("pods", POD)
    rig.api.add({**pod, "metadata": {**pod["metadata"], "uid": "another"}})


def puts(rig: Rig) -> int:
    """How often the scale was written."""
    return len(rig.api.calls("PUT"))


def test_nothing_begins_while_the_api_server_is_away(rig):
    """Neither without a look at the workload, nor where the record cannot be written; then it begins."""
    retirer = rig.retirer()
    rig.api.faults.append(Fault("status", path="/deployments/vllm", status=422))
    unread = rig.step(retirer)
    rig.api.faults.append(Fault("status", path="/deployments/vllm", method="PATCH", status=422))
    unwritten = rig.step(retirer)

    assert (unread.state, unread.rule, unread.final) == (None, Rule.API, False)
    assert (unwritten.state, unwritten.rule, unwritten.final) == (None, Rule.API, False)
    assert "HTTP 422" in unwritten.reason
    assert rig.step(retirer).state is State.ADMITTED


def test_a_record_that_cannot_be_written_holds(rig):
    """Nothing is done that is not written down first: the state stays as it was, and the next pass goes on."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.step(retirer)
    rig.api.faults.append(Fault("status", path="/deployments/vllm", method="PATCH", status=422))
    held = rig.step(retirer)

    assert (held.state, held.rule, puts(rig)) == (State.DELETING, Rule.API, 0)
    rig.run(retirer)
    assert (rig.replicas, puts(rig)) == (2, 1)


def test_a_record_of_another_controller_is_not_written_over(rig):
    """It wrote in the same instant: this one looks again, and goes on at the other's record."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.step(retirer)
    theirs = rig.record.replace('"reason":""', '"reason":"theirs"')

    def write() -> None:
        note = {ANNOTATION: theirs}
        rig.api.change("deployments", "vllm", lambda w: w["metadata"]["annotations"].update(note))

    at(rig, "PATCH", "/deployments/vllm", write)
    held = rig.step(retirer)

    assert (held.rule, puts(rig), rig.record) == (Rule.API, 0, theirs)
    assert "has changed since it was read" in held.reason


def test_another_count_between_the_look_and_the_patch(rig):
    """Somebody scaled after the look: nothing is patched, and the next pass looks at what there is."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.step(retirer)
    at(rig, "GET", "/scale", lambda: rig.api.change("deployments", "vllm", lambda w: w["spec"].update(replicas=5)))
    held = rig.step(retirer)

    assert (held.rule, puts(rig)) == (Rule.SCALE, 0)
    assert "asks for 5 by now, not 3: looking anew" in held.reason
    rig.run(retirer)
    assert rig.replicas == 4


def test_the_controller_has_its_time_from_the_patch_that_was_made(rig):
    """The API server refused the patch for a while: that is no time in which the workload's controller did nothing."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.step(retirer)
    rig.api.faults.append(Fault("status", path="/scale", method="PUT", status=422, times=3))
    for _ in range(3):
        refused = rig.step(retirer)
        rig.now_s += 15
    rig.api.hook = lambda: None
    rig.step(retirer)
    waiting = rig.step(retirer)

    assert (refused.rule, waiting.rule, rig.replicas) == (Rule.API, Rule.SCALE, 2)
    assert "waiting for the controller" in waiting.reason
    assert not [call for call in rig.api.calls("DELETE") if call.path.endswith(f"/pods/{POD}")]


def test_the_deletion_cost_is_for_the_target_alone(rig):
    """A Pod that took its name in between gets none: a pass looks at the target, reads it, looks again, then writes."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    look = ("GET", f"/pods/{POD}")
    at(rig, *look, lambda: at(rig, *look, lambda: at(rig, *look, lambda: another(rig))))
    rig.step(retirer)

    assert rig.api.get("pods", POD)["metadata"]["uid"] == "another"
    assert DELETION_COST not in rig.api.get("pods", POD)["metadata"].get("annotations", {})
    assert (rig.replicas, puts(rig)) == (3, 0)


def test_the_name_of_the_target_is_anothers_now(rig):
    """The target is gone, whatever has its name: it is not ours to put back."""
    retirer = rig.retirer()
    rig.run(retirer, State.WITHDRAWING)
    another(rig)
    calls = len(rig.sidecar(POD).calls)
    last = rig.step(retirer)

    assert (last.state, last.rule) == (State.ABORTED, Rule.TARGET_LEFT)
    assert f"pod {POD} is gone, and not by this retirement" in last.reason
    assert rig.sidecar(POD).calls[calls:] == []


def test_a_target_that_is_gone_is_not_put_back(rig):
    """And that is no fault: the retirement ends with the reason that it is gone."""
    retirer = rig.retirer()
    rig.run(retirer, State.WITHDRAWING)
    rig.api.hook = lambda: None
    rig.api.remove("pods", POD)
    last = rig.step(retirer)

    assert (last.state, last.rule) == (State.ABORTED, Rule.TARGET_LEFT)


@pytest.mark.parametrize(("path", "word"), [(f"/pods/{POD}", "HTTP 422"), ("/withdraw", "not-withdrawn")])
def test_a_target_that_cannot_be_put_back_is_told(rig, path, word, caplog):
    """The lease runs out by itself: the retirement ends with its own reason, and a line says what failed."""
    caplog.set_level(logging.WARNING, "infscale.retire")
    retirer = rig.retirer()
    rig.run(retirer, State.WITHDRAWING)
    rig.api.faults.append(Fault("status", path=path, status=422))
    last = retirer.cancel("load rises", rig.now_s)

    assert (last.state, last.rule, last.reason) == (State.ABORTED, Rule.CANCELLED, "cancelled: load rises")
    assert [(record.message, word in record.__dict__["reason"]) for record in caplog.records] == [
        ("its lease runs out by itself", True)
    ]


def test_a_target_that_settles_is_left_alone(rig):
    """Its deletion was seen: whatever an API server that lags shows of it, it is neither read nor withdrawn again."""
    retirer = rig.retirer()
    rig.run(retirer, State.SETTLING)
    rig.api.hook = lambda: None
    rig.api.change("pods", POD, lambda pod: pod["metadata"].pop("deletionTimestamp"))
    calls = len(rig.sidecar(POD).calls)
    rig.now_s += 20
    held = rig.step(retirer)

    assert held.state is State.SETTLING
    assert rig.sidecar(POD).calls[calls:] == []


def test_a_workload_at_zero(rigs):
    """There is nobody to take away: refused, and the reason says so."""
    rig = rigs(replicas=0)
    last = rig.run(rig.retirer())[-1]

    assert (last.state, last.rule) == (State.ABORTED, Rule.NO_TARGET)
    assert "deployment ml/vllm asks for no replica" in last.reason


def test_a_replica_that_has_no_node_leaves_without_a_lease(rig):
    """It is pending: there is no sidecar yet that could be asked."""
    rig.starting.add("vllm-00004")
    rig.api.change("deployments", "vllm", lambda w: w["spec"].update(replicas=4))
    rig.cluster().pods("ml", "app=vllm")
    pending = {"phase": "Pending", "podIP": "", "conditions": []}
    rig.api.change("pods", "vllm-00004", lambda pod: pod["status"].update(pending))
    rig.sidecar("vllm-00004")
    steps = rig.run(rig.retirer())

    assert (steps[-1].state, steps[-1].target) == (State.COMPLETED, "vllm-00004")
    assert rig.sidecar("vllm-00004").calls == []
    assert (rig.replicas, len(rig.pods)) == (3, 3)


def test_a_worker_that_restarted_is_not_chosen_with_its_group(rigs):
    """Its past is unknown, as a leader's would be."""
    rig = rigs(plural="leaderworkersets", replicas=2)
    restart(rig.api, "vllm-1-1", "engine")
    retirer = rig.retirer()
    held = [rig.step(retirer) for _ in range(2)][-1]

    assert (held.state, held.rule) == (State.ADMITTED, Rule.RESTARTED)
    assert "pod vllm-1-1: its engine restarted 1 time(s)" in held.reason


def test_a_group_that_shrank_holds(rigs):
    """It is whole, and another than was chosen."""
    rig = rigs(plural="leaderworkersets", replicas=2)
    retirer = rig.retirer()
    rig.run(retirer, State.DRAINING)
    rig.api.hook = lambda: None
    rig.api.change("pods", "vllm-1", lambda pod: pod["metadata"]["annotations"].update({SIZE: "1"}))
    rig.api.change("pods", "vllm-1-1", lambda pod: pod["metadata"]["labels"].update({GROUP: "7"}))
    held = rig.step(retirer)

    assert (held.state, held.rule) == (State.DRAINING, Rule.GROUP)
    assert "group 1 has 1 Pods, and had 2" in held.reason


def test_a_worker_that_runs_another_engine_by_now_holds(rigs):
    """The leader's gauges say nothing of it."""
    rig = rigs(plural="leaderworkersets", replicas=2)
    retirer = rig.retirer()
    rig.run(retirer, State.DRAINING)
    command = ["python3", "-m", "sglang.launch_server"]
    rig.api.change("pods", "vllm-1-1", lambda pod: pod["spec"]["containers"][0].update(command=command))
    held = rig.step(retirer)

    assert (held.state, held.rule) == (State.DRAINING, Rule.DISAGREE)
    assert "leader vllm-1 runs vllm, vllm-1-1 runs sglang" in held.reason
