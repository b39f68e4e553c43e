"""Whole retirements, pass by pass, against the API server stand-in."""

from __future__ import annotations

import json

import pytest

from infscale.errors import StateError, UsageError
from infscale.kube.deletion_cost import OURS
from infscale.kube.objects import DELETION_COST
from infscale.retire.passes import Retirer
from infscale.retire.persisted import ANNOTATION
from infscale.retire.record import State
from infscale.retire.router import parse_rotation
from infscale.retire.rules import Rule
from tests.kube import objects
from tests.kube.controller import restart
from tests.kube.wire import Fault
from tests.raw_server import raw_server
from tests.retire.rig import Rig, engine, states
from tests.retire.sidecars import TOKEN

ALL = ["Admitted", "Withdrawing", "Draining", "Deleting", "Settling", "Completed"]


def writes(rig: Rig) -> list[str]:
    """What was written of the scale and deleted, as `METHOD path`."""
    calls = [f"{call.method} {call.path}" for call in rig.api.calls()]
    return [call for call in calls if call.startswith("PUT") or (call.startswith("DELETE") and "/proxy" not in call)]


def test_an_idle_replica_leaves(rig):
    """Of three idle replicas one is taken out of rotation, proven idle, and leaves; the two others stay."""
    before = rig.pods
    steps = rig.run(rig.retirer())
    target = steps[-1].target

    assert states(steps) == ALL
    assert rig.replicas == 2
    assert rig.pods == [pod for pod in before if pod != target]
    assert len(writes(rig)) == 1
    assert "POST /withdraw?lease=60" in rig.sidecar(target).calls
    assert not any("withdraw" in call for pod in rig.pods for call in rig.sidecar(pod).calls)


def test_the_least_loaded_leaves(rig):
    """And it leaves once its last request is done, not before."""
    for pod, count in zip(rig.pods, (5, 2, 4), strict=True):
        rig.sidecar(pod).inflight = count
    target = rig.pods[1]
    retirer = rig.retirer()
    rig.run(retirer, State.DRAINING)
    busy = [rig.step(retirer) for _ in range(4)]
    rig.sidecar(target).inflight = 0
    steps = rig.run(retirer)

    assert {step.rule for step in busy} == {Rule.SERVING}
    assert (steps[-1].state, steps[-1].target) == (State.COMPLETED, target)


def test_a_replica_that_is_still_starting_leaves_first(rig):
    """It never was ready: no reads are made of it, and a busy fleet does not keep it."""
    for pod in rig.pods:
        rig.sidecar(pod).inflight = 9
    rig.api.change("deployments", "vllm", lambda w: w["spec"].update(replicas=4))
    rig.starting.add("vllm-00004")
    assert rig.cluster().pods("ml", "app=vllm")[3].name == "vllm-00004"
    steps = rig.run(rig.retirer())

    assert states(steps) == [state for state in ALL if state != "Draining"]
    assert steps[-1].target == "vllm-00004"
    assert not any("GET" in call for call in rig.sidecar("vllm-00004").calls)
    assert (rig.replicas, len(rig.pods)) == (3, 3)


def test_a_starting_replica_that_gets_ready_is_read(rig):
    """It became ready while a sibling held the deletion: from then on it has to be proven idle like any other."""
    rig.api.change("deployments", "vllm", lambda w: w["spec"].update(replicas=4))
    rig.starting.add("vllm-00004")
    retirer = rig.retirer(token=False)
    rig.run(retirer, State.WITHDRAWING)
    rig.starting.add("vllm-00001")
    rig.run(retirer, State.DELETING)
    rig.now_s += 30
    rig.starting.clear()
    rig.sidecar("vllm-00004").inflight = 3
    steps = [rig.step(retirer) for _ in range(3)]

    assert {step.rule for step in steps[1:]} == {Rule.NOT_WITHDRAWN}
    assert rig.replicas == 4


@pytest.mark.parametrize("file", ["", "state.json"])
def test_a_controller_that_is_killed_at_each_state_goes_on(rig, file):
    """Each pass is made by another controller, which knows nothing but the record; no budget begins anew."""
    steps = [rig.step(rig.retirer(file=file))]
    while not steps[-1].final and len(steps) < 60:
        steps.append(rig.step(rig.retirer(file=file)))

    assert states(steps) == ALL
    assert rig.replicas == 2
    annotations = rig.api.get("deployments", "vllm")["metadata"].get("annotations", {})
    assert (ANNOTATION in annotations) is (not file)


@pytest.mark.parametrize("state", [State.ADMITTED, State.WITHDRAWING, State.DRAINING])
def test_a_restart_resets_no_budget(rig, state):
    """A controller that begins after the deadline aborts at once; the replica is kept, and back in rotation."""
    rig.run(rig.retirer(), state)
    rig.now_s += 300
    for pod in rig.pods:
        rig.sidecar(pod).inflight = 3
    progress = rig.step(rig.retirer())

    assert (progress.state, progress.final) == (State.ABORTED, True)
    assert "budget-exhausted" in progress.reason
    assert (rig.replicas, len(rig.pods)) == (3, 3)
    assert not any(sidecar.withdrawn for sidecar in rig.sidecars.values())


@pytest.mark.parametrize("state", [State.DELETING, State.SETTLING])
def test_a_restart_after_the_deadline_does_not_abort_what_deletes(rig, state):
    """From Deleting on it goes on, however late."""
    rig.run(rig.retirer(), state)
    rig.now_s += 1000
    retirer = rig.retirer()
    steps = [rig.step(retirer) for _ in range(20)]

    assert steps[-1].state is State.COMPLETED
    assert rig.replicas == 2


def test_a_withdrawal_that_ran_out_needs_a_new_proof(rig):
    """A controller that died while it deleted put the replica back; its successor proves anew before it scales."""
    rig.run(rig.retirer(), State.DELETING)
    target = rig.sidecar("vllm-00001")
    rig.now_s += 90
    assert not target.withdrawn
    target.inflight = 2
    retirer = rig.retirer()
    busy = [rig.step(retirer) for _ in range(20)]
    assert (busy[-1].rule, rig.replicas) == (Rule.SERVING, 3)
    target.inflight = 0
    steps = rig.run(retirer, State.SETTLING)

    assert rig.replicas == 2
    assert steps[-1].target == "vllm-00001"


def test_a_busy_replica_is_kept(rig):
    """It never gets idle: aborted at the end of its budget, with its capacity, and why."""
    for pod in rig.pods:
        rig.sidecar(pod).inflight = 3
    retirer = rig.retirer()
    rig.run(retirer, State.DRAINING)
    for _ in range(9):
        rig.now_s += 29
        last = rig.step(retirer)

    assert last.state is State.ABORTED
    assert "240 s for Draining are over; last: still-serving: 3 requests in flight" in last.reason
    assert (rig.replicas, len(rig.pods), writes(rig)) == (3, 3, [])
    assert not rig.sidecar(last.target).withdrawn


def hold(rig: Rig, how: str) -> None:
    """Something that keeps the first replica from being proven idle."""
    sidecar = rig.sidecar("vllm-00001")
    match how:
        case "incomplete":
            sidecar.said = {"complete": False, "state": "unreachable", "message": "vllm:num_requests_running is nan"}
        case "page 500":
            sidecar.instead("/metrics", lambda call: call.page(b"", status="500 Oops"))
        case "page reset":
            sidecar.instead("/metrics", lambda call: call.reset())
        case "page html":
            sidecar.page = b"<html>"
        case "reading html":
            sidecar.instead("/api/v1/reading", lambda call: call.page(b"<html>"))
        case "another pod":
            sidecar.uid = "someone"
        case "restarted":
            restart(rig.api, "vllm-00001", "engine")
        case "counters":
            sidecar.tokens_a_read = 1
        case "shared read":
            sidecar.said = {"read_at": 5.0}
        case "clients unseen":
            sidecar.said = {"client_connections": None}
        case "client":
            sidecar.clients = 1
        case "not withdrawn":
            sidecar.said = {"withdrawn": False}
        case "token":
            (rig.folder / "token").write_text("wrong")
        case "endpoint":
            uid = rig.api.get("pods", "vllm-00001")["metadata"]["uid"]
            there = objects.endpoint("10.0.0.1", ready=True, pod={"name": "x", "namespace": "ml", "uid": uid})
            rig.api.add(objects.endpoint_slice("other-1", "ml", there, service="other"))


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ("incomplete", Rule.INCOMPLETE),
        ("page 500", Rule.READ_FAILED),
        ("page reset", Rule.READ_FAILED),
        ("page html", Rule.READ_FAILED),
        ("reading html", Rule.READ_FAILED),
        ("another pod", Rule.DRIFTED),
        ("restarted", Rule.RESTARTED),
        ("counters", Rule.COUNTERS),
        ("shared read", Rule.ONE_READ),
        ("clients unseen", Rule.CLIENTS),
        ("client", Rule.CLIENTS),
        ("not withdrawn", Rule.NOT_WITHDRAWN),
        ("token", Rule.NOT_WITHDRAWN),
        ("endpoint", Rule.ENDPOINTS),
    ],
)
@pytest.mark.parametrize("state", [State.DRAINING, State.DELETING])
def test_what_holds(rig, how, rule, state):
    """Each hold, in Draining and right before the scale is patched: nothing is taken away, and the rule is named."""
    retirer = rig.retirer()
    rig.run(retirer, state)
    hold(rig, how)
    if how == "token":
        rig.now_s += 20
    held = [rig.step(retirer) for _ in range(3)]

    assert {step.rule for step in held[1:]} == {rule}
    assert {step.state for step in held} == {state}
    assert (rig.replicas, writes(rig)) == (3, [])


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ("token", Rule.NOT_WITHDRAWN),
        ("endpoint", Rule.ENDPOINTS),
        ("client", Rule.CLIENTS),
        ("clients unseen", Rule.CLIENTS),
        ("not withdrawn", Rule.NOT_WITHDRAWN),
        ("restarted", Rule.RESTARTED),
        ("reading html", Rule.READ_FAILED),
    ],
)
def test_what_keeps_it_in_rotation(rig, how, rule):
    """While requests can reach it no read is made; at the end of 30 s it is aborted with that reason."""
    retirer = rig.retirer()
    rig.run(retirer, State.WITHDRAWING)
    hold(rig, how)
    held = [rig.step(retirer) for _ in range(2)]
    rig.now_s += 27
    last = rig.step(retirer)

    assert held[1].rule is rule
    assert last.state is State.ABORTED
    assert f"30 s for Withdrawing are over; last: {rule.value}" in last.reason
    assert "GET /metrics" not in rig.sidecar("vllm-00001").calls
    assert not rig.sidecar("vllm-00001").withdrawn or how == "token"
    assert (rig.replicas, writes(rig)) == (3, [])


def test_a_router_that_ignores_readiness_is_asked(rig):
    """As long as it knows the target no read is made; then the retirement goes on."""
    known = ["10.0.0.1:8000", "10.0.0.2:8000"]
    with raw_server(lambda call: call.page(json.dumps(known).encode())) as router:
        retirer = rig.retirer(rotation=parse_rotation(f"llm-d:{router.url('/endpoints')}"))
        rig.run(retirer, State.WITHDRAWING)
        held = [rig.step(retirer) for _ in range(3)]
        known.pop(0)
        steps = rig.run(retirer)

    assert {step.rule for step in held[1:]} == {Rule.ROUTER}
    assert (steps[-1].state, rig.replicas) == (State.COMPLETED, 2)


def test_a_false_claim_ends_it(rig):
    """A sidecar that says idle over a page that does not."""
    retirer = rig.retirer()
    rig.run(retirer, State.DRAINING)
    rig.sidecar("vllm-00001").page = rig.sidecar("vllm-00001").metrics().replace(b'm"} 0', b'm"} 1')
    last = rig.step(retirer)

    assert (last.state, last.rule) == (State.ABORTED, Rule.FALSE_CLAIM)
    assert not rig.sidecar("vllm-00001").withdrawn


@pytest.mark.parametrize(
    ("container", "rule", "state"),
    [
        (engine("--kv-transfer-config", '{"kv_role": "kv_both"}'), Rule.ROLE, State.ABORTED),
        (objects.container("engine", command=["ollama", "serve"]), Rule.NO_GAUGES, State.ABORTED),
        (objects.container("engine", command=["/start.sh"]), Rule.UNCLAIMED, State.ADMITTED),
        (engine("$(FLAGS)"), Rule.UNREADABLE, State.ADMITTED),
        (engine("--nnodes", "2"), Rule.GROUP, State.ADMITTED),
    ],
)
def test_engines_that_are_not_retired(rigs, container, rule, state):
    """A role and an engine without gauges are refused at once; what cannot be told holds."""
    rig = rigs(container=container)
    retirer = rig.retirer()
    last = [rig.step(retirer) for _ in range(2)][-1]

    assert (last.state, last.rule) == (state, rule)
    assert not any(sidecar.withdrawn for sidecar in rig.sidecars.values())


def test_an_autoscaler_that_scales_down_refuses(rig):
    """The replica that leaves would be its choice; one whose way down is closed is well."""
    rig.api.add(objects.hpa())
    refused = rig.run(rig.retirer())[-1]
    closed = {"scaleDown": {"selectPolicy": "Disabled"}}
    rig.api.change("horizontalpodautoscalers", "vllm", lambda hpa: hpa["spec"].update(behavior=closed))
    retirer = rig.retirer(retry=True)

    assert (refused.state, refused.rule) == (State.ABORTED, Rule.AUTOSCALER)
    assert "HorizontalPodAutoscaler vllm scales deployment ml/vllm down" in refused.reason
    assert rig.run(retirer, State.WITHDRAWING)


def test_a_new_attempt_needs_retry(rig):
    """After an abort nothing begins unless it is asked for; after a completion another one may."""
    rig.api.add(objects.hpa())
    rig.run(rig.retirer())
    rig.api.remove("horizontalpodautoscalers", "vllm")
    again = rig.step(rig.retirer())
    assert (again.state, again.rule, again.final) == (State.ABORTED, Rule.RETRY, True)
    assert "--retry" in again.reason
    done = rig.run(rig.retirer(retry=True))
    another = rig.run(rig.retirer())

    assert [done[-1].state, another[-1].state] == [State.COMPLETED] * 2
    assert (rig.replicas, len(rig.pods)) == (1, 1)


def test_one_retirer_may_begin_again(rig):
    """A final step is repeated until `again` is called."""
    retirer = rig.retirer()
    first = rig.run(retirer)[-1]
    assert rig.step(retirer) == first
    assert rig.replicas == 2
    retirer.again()
    assert rig.step(retirer).state is State.ADMITTED


def test_two_controllers_are_one_operation(rig):
    """Both work on the one record of the workload: one replica leaves, not two."""
    one, other = rig.retirer(), rig.retirer()
    for _ in range(40):
        steps = [one.step(rig.now_s), other.step(rig.now_s)]
        rig.now_s += 1
        if all(step.final for step in steps):
            break

    assert (rig.replicas, len(rig.pods)) == (2, 2)
    assert len({step.target for step in steps}) == 1


@pytest.mark.parametrize("state", [State.ADMITTED, State.WITHDRAWING, State.DRAINING, State.DELETING])
def test_cancel(rig, state):
    """A replica that is wanted again is kept, until its deletion began."""
    retirer = rig.retirer()
    rig.run(retirer, state)
    progress = retirer.cancel("load rises", rig.now_s)

    if state is State.DELETING:
        assert progress.state is state
    else:
        assert (progress.state, progress.rule) == (State.ABORTED, Rule.CANCELLED)
        assert not any(sidecar.withdrawn for sidecar in rig.sidecars.values())


def test_a_target_that_leaves_by_another_hand_aborts(rig):
    """It is not ours any more."""
    retirer = rig.retirer()
    rig.run(retirer, State.WITHDRAWING)
    rig.cluster().delete_pod("ml", "vllm-00001", uid=rig.api.get("pods", "vllm-00001")["metadata"]["uid"])
    last = rig.step(retirer)

    assert (last.state, last.rule) == (State.ABORTED, Rule.TARGET_LEFT)


def test_siblings_must_be_ready(rig):
    """A sibling that is not ready holds the scale until it is."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.starting.add("vllm-00003")
    held = [rig.step(retirer) for _ in range(3)]
    assert ({step.rule for step in held}, rig.replicas) == ({Rule.SIBLINGS}, 3)
    rig.starting.clear()
    rig.run(retirer)

    assert rig.replicas == 2


def test_a_roll_out_holds(rig):
    """Pods of two ReplicaSets: a scale would be shared out between them."""
    other = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "vllm-new", "uid": "rs-2", "controller": True}
    rig.api.change("pods", "vllm-00002", lambda pod: pod["metadata"].update(ownerReferences=[other]))
    retirer = rig.retirer()
    held = [rig.step(retirer) for _ in range(3)]

    assert held[-1].rule is Rule.UNSETTLED
    assert "2 ReplicaSets" in held[-1].reason


def test_the_deletion_cost_steers(rig):
    """It is below every sibling's, and written with a mark that says whose it is."""
    low = {DELETION_COST: "-50"}
    rig.api.change("pods", "vllm-00002", lambda pod: pod["metadata"].update(annotations=low))
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.step(retirer)
    annotations = rig.api.get("pods", "vllm-00001")["metadata"]["annotations"]

    assert (annotations[DELETION_COST], annotations[OURS]) == ("-51", "-51")
    assert rig.replicas == 3
    rig.step(retirer)
    assert rig.replicas == 2


def test_a_foreign_deletion_cost_is_left_alone(rig):
    """Another writes it: it is not touched, and holds unless it is the lowest as it is."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.api.change("pods", "vllm-00001", lambda pod: pod["metadata"].update(annotations={DELETION_COST: "70"}))
    held = [rig.step(retirer) for _ in range(3)]
    assert {step.rule for step in held} == {Rule.COST}
    assert rig.api.get("pods", "vllm-00001")["metadata"]["annotations"] == {DELETION_COST: "70"}
    rig.api.change("pods", "vllm-00001", lambda pod: pod["metadata"].update(annotations={DELETION_COST: "-3"}))
    rig.run(retirer)

    assert rig.replicas == 2


def test_a_rival_that_scales_at_the_same_instant(rig):
    """The patch is a conflict: it is read anew, and one replica leaves of what the rival asks for."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.step(retirer)
    rivals = [4]

    def before_write() -> None:
        put = rig.api.requests[-1].method == "PUT"
        if put and rivals:
            rig.api.change("deployments", "vllm", lambda w: w["spec"].update(replicas=rivals.pop()))

    rig.api.before_write = before_write
    conflict = rig.step(retirer)
    assert (conflict.rule, rig.replicas) == (Rule.SCALE, 4)
    steps = rig.run(retirer)

    assert (rig.replicas, len(rig.pods)) == (3, 3)
    assert steps[-1].target == "vllm-00001"


def test_an_answer_that_is_lost_does_not_scale_twice(rig):
    """The patch was made, and the connection broke: the count tells, and no second patch follows."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.step(retirer)
    rig.api.faults.append(Fault("cut", path="/scale", method="PUT"))
    lost = rig.step(retirer)
    rig.run(rig.retirer())

    assert lost.rule is Rule.API
    assert (rig.replicas, len(rig.pods)) == (2, 2)


def test_another_replica_that_leaves_in_its_place(rig):
    """A sibling is deleted just before the patch: the target stays, and is back in rotation."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.step(retirer)

    def before_write() -> None:
        if rig.api.requests[-1].method == "PUT":
            leaving = {"deletionTimestamp": rig.api.now()}
            rig.api.change("pods", "vllm-00003", lambda pod: pod["metadata"].update(leaving))

    rig.api.before_write = before_write
    last = rig.run(retirer)[-1]

    assert last.state is State.COMPLETED
    assert "another replica left in its place: pod vllm-00001 stays" in last.reason
    assert (rig.replicas, rig.pods) == (2, ["vllm-00001", "vllm-00002"])
    assert not rig.sidecar("vllm-00001").withdrawn


def test_a_controller_that_does_not_act(rig):
    """The ReplicaSet's controller is away: the target itself is deleted, with its UID as the precondition."""
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.step(retirer)
    hook, rig.api.hook = rig.api.hook, lambda: None
    waiting = [rig.step(retirer) for _ in range(2)]
    rig.now_s += 14
    rig.step(retirer)
    rig.now_s += 14
    rig.step(retirer)
    deletes = [call for call in rig.api.calls("DELETE") if call.path.endswith("/vllm-00001")]
    rig.api.hook = hook
    steps = rig.run(retirer)

    assert waiting[-1].rule is Rule.SCALE
    assert [call.body["preconditions"]["uid"] for call in deletes]
    assert (steps[-1].state, rig.replicas, len(rig.pods)) == (State.COMPLETED, 2, 2)


def test_a_long_termination_is_only_reported(rigs):
    """After 30 s the retirement is complete, and says that the Pod is terminating still."""
    rig = rigs(gone_after_s=100)
    retirer = rig.retirer()
    rig.run(retirer, State.SETTLING)
    rig.now_s += 29
    last = rig.run(retirer)[-1]

    assert last.state is State.COMPLETED
    assert "still terminating" in last.reason


def test_a_stateful_set_gives_up_its_highest_ordinal(rigs):
    """And no other, whatever the loads."""
    rig = rigs(plural="statefulsets")
    rig.sidecar("vllm-2").inflight = 4
    retirer = rig.retirer()
    rig.run(retirer, State.DRAINING)
    rig.sidecar("vllm-2").inflight = 0
    steps = rig.run(retirer)

    assert steps[-1].target == "vllm-2"
    assert (rig.replicas, rig.pods) == (2, ["vllm-0", "vllm-1"])
    assert not any(call.path.endswith("vllm-2") for call in rig.api.calls("PATCH"))


def test_a_target_that_is_not_the_highest_any_more_holds(rigs):
    """Another scaled up meanwhile: the StatefulSet would give up another."""
    rig = rigs(plural="statefulsets")
    retirer = rig.retirer()
    rig.run(retirer, State.DELETING)
    rig.api.change("statefulsets", "vllm", lambda w: w["spec"].update(replicas=4))
    held = [rig.step(retirer) for _ in range(3)]

    assert {step.rule for step in held[1:]} == {Rule.ORDINAL}
    assert rig.replicas == 4


def test_a_leader_worker_set_gives_up_its_highest_group(rigs):
    """The leader answers for its group; all of it leaves."""
    rig = rigs(plural="leaderworkersets", replicas=2)
    steps = rig.run(rig.retirer())

    assert steps[-1].target == "vllm-1"
    assert (rig.replicas, rig.pods) == (1, ["vllm-0", "vllm-0-1"])
    assert not any("GET" in call for call in rig.sidecar("vllm-1-1").calls)


@pytest.mark.parametrize(
    ("seat", "words"),
    [(None, "has no seat"), ("0", "two leaders"), ("5", "2 of 2 Pods")],
)
@pytest.mark.parametrize("state", [State.ADMITTED, State.DRAINING])
def test_a_group_that_is_not_whole_holds(rigs, seat, words, state):
    """Before it is chosen, and later; what is not right is named."""
    rig = rigs(plural="leaderworkersets", replicas=2)
    retirer = rig.retirer()
    rig.run(retirer, state)
    label = "leaderworkerset.sigs.k8s.io/worker-index"
    rig.api.change(
        "pods",
        "vllm-1-1",
        lambda pod: pod["metadata"]["labels"].update({label: seat}) if seat else pod["metadata"]["labels"].pop(label),
    )
    held = rig.step(retirer)

    assert held.rule in (Rule.GROUP, Rule.UNSETTLED)
    assert words in held.reason or held.rule is Rule.UNSETTLED
    assert rig.replicas == 2


def test_a_member_that_restarted_holds_its_group(rigs):
    """A worker's restart counts as the leader's."""
    rig = rigs(plural="leaderworkersets", replicas=2)
    retirer = rig.retirer()
    rig.run(retirer, State.DRAINING)
    restart(rig.api, "vllm-1-1", "engine")

    assert rig.step(retirer).rule is Rule.RESTARTED


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (["python3", "-m", "sglang.launch_server"], Rule.DISAGREE),
        (["vllm", "serve", "m", "--data-parallel-rank", "1"], Rule.ROLE),
        (["vllm", "serve", "m", "--config", "x.yaml"], Rule.UNREADABLE),
        (["ray", "start"], None),
    ],
)
def test_members_must_agree(rigs, command, rule):
    """A worker that runs another engine, or has a role; one that runs none of its own is well."""
    rig = rigs(plural="leaderworkersets", replicas=2)
    rig.api.change("pods", "vllm-1-1", lambda pod: pod["spec"]["containers"][0].update(command=command))
    retirer = rig.retirer()
    steps = [rig.step(retirer) for _ in range(2)]

    assert steps[-1].rule is rule
    assert (steps[-1].state is State.WITHDRAWING) is (rule is None)


def test_the_api_server_is_away(rig):
    """Each failed pass holds, and the next goes on where it was."""
    retirer = rig.retirer()
    rig.run(retirer, State.DRAINING)
    rig.api.faults.append(Fault("status", path="/pods/vllm-00001", status=500, times=5))
    away = rig.step(retirer)
    steps = rig.run(retirer)

    assert (away.state, away.rule) == (State.DRAINING, Rule.API)
    assert steps[-1].state is State.COMPLETED


def test_what_is_not_allowed_is_told(rig):
    """The verb that a Role lacks."""
    verbs = [("apps", "deployments", "get", "patch"), ("", "pods", "get", "list", "patch")]
    also = [("autoscaling", "horizontalpodautoscalers", "list"), ("keda.sh", "scaledobjects", "list")]
    also += [("", "pods/proxy", "get"), ("discovery.k8s.io", "endpointslices", "list")]
    rig.api.role = [objects.role_rule(*rule) for rule in verbs + also]
    retirer = rig.retirer()
    rig.run(retirer, State.WITHDRAWING)
    held = rig.step(retirer)

    assert held.rule is Rule.NOT_WITHDRAWN
    assert "create pods/proxy" in held.reason


def test_a_damaged_record_is_refused(rig):
    """It is not guessed at: nothing is done."""
    rig.api.change("deployments", "vllm", lambda w: w["metadata"].update(annotations={ANNOTATION: "{"}))

    with pytest.raises(StateError, match=ANNOTATION):
        rig.step(rig.retirer())
    assert writes(rig) == []


def test_only_workloads_whose_choice_can_be_told(rig):
    """Another kind with a scale gives up whom it likes."""
    with pytest.raises(UsageError, match="only a Deployment"):
        Retirer(rig.cluster(), "apps/v1/replicasets", "ml", "vllm-6d8c5f7b9").check()
    with pytest.raises(UsageError):
        Retirer(rig.cluster(), "pod", "ml", "vllm")


def test_the_token_is_in_no_reason(rig):
    """Nor in the record."""
    (rig.folder / "token").write_text(f"{TOKEN}-other")
    retirer = rig.retirer()
    rig.run(retirer, State.WITHDRAWING)
    held = rig.step(retirer)

    assert "403" in held.reason
    assert TOKEN not in held.reason + rig.record
